"""GGUF file to Hugging Face directory: dequantised weights, configuration, tokenizer and chat template."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from .cast import cast, check_dtype, stored_dtype
from .gguf_config import generation_config
from .gguf_source import GgufSource, open_gguf
from .gguf_tokenizer import write_tokenizer
from .hf_to_orbax import BUDGET_BYTES
from .hf_writer import Producer, shard_layouts, write_files, write_index
from .pipeline import in_order
from .report import Progress, Report, Silent, Stopwatch
from .source import TensorHeader
from .staging import stage

MAX_SHARD_BYTES = 5_000_000_000


def gguf_to_hf(
    source: Path,
    destination: Path,
    *,
    dtype: str = "bfloat16",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Writes a GGUF file as a model directory that `transformers` loads.

    Quantised weights are dequantised in float32 and rounded once to `dtype`.

    Raises:
        ZooError: the file is damaged, of an unknown architecture or quantisation, or the destination cannot be made.
    """
    watch = Stopwatch()
    progress = progress or Silent()
    check_dtype(dtype, keep=False)
    gguf = open_gguf(source)
    headers = {name: TensorHeader(stored_dtype(h.dtype, dtype), h.shape) for name, h in gguf.headers.items()}
    layouts, index = shard_layouts(headers, {}, MAX_SHARD_BYTES)
    sizes = {name: header.nbytes for name, header in headers.items()}
    total = sum(sizes.values())
    status = source.stat()
    job = {
        "job": "gguf-to-hf",
        "source": str(source.resolve()),
        "size": status.st_size,
        "modified": status.st_mtime_ns,
        "dtype": dtype,
    }
    with stage(source, destination, job, overwrite=overwrite, needed_bytes=total) as staging:
        resumed = staging.resumed
        progress.start(total, "dequantising")
        write_files(staging, layouts, _producer(gguf, headers), sizes, progress.advance)
        progress.finish()
        write_index(staging.path, index)
        _write_json(staging.path / "config.json", {**gguf.config, "torch_dtype": dtype})
        _write_json(staging.path / "generation_config.json", generation_config(gguf.file.metadata))
        write_tokenizer(gguf.file.metadata, staging.path, str(source))
        staging.publish(overwrite)
    facts = {"family": gguf.family.model_type, "tensors": len(headers), "bytes": total, "dtype": dtype}
    notes = ["continued an earlier run that was interrupted"] if resumed else []
    return Report(str(source), str(destination), facts, notes, watch.seconds)


def _producer(gguf: GgufSource, headers: dict[str, TensorHeader]) -> Producer:
    def produce(names: Sequence[str], put: Callable[[str, np.ndarray], None]) -> Iterator[str]:
        def work(name: str) -> str:
            put(name, cast(gguf.read(name), headers[name].dtype, name))
            return name

        # Dequantised, a tensor is float32 whatever it becomes.
        return in_order(names, work, lambda name: 2 * gguf.headers[name].nbytes, BUDGET_BYTES)

    return produce


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
