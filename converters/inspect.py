"""What lies at a path, from headers only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.models.checkpoint import UNFINISHED, is_store, looks_unfinished, open_store
from zoo.models.errors import ZooError

from .report import size_text
from .source import TensorHeader


@dataclass(frozen=True)
class Inspection:
    """A checkpoint's kind, family, sizes and tensors (safetensors' dtype or GGUF's quantisation, shape)."""

    path: str
    kind: str
    facts: Mapping[str, Any]
    tensors: Mapping[str, tuple[str, tuple[int, ...]]]

    def as_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "kind": self.kind,
            **self.facts,
            "tensors": {name: {"dtype": dtype, "shape": list(shape)} for name, (dtype, shape) in self.tensors.items()},
        }

    def lines(self) -> list[str]:
        facts = [f"{key.replace('_', ' ')}: {_shown(key, value)}" for key, value in self.facts.items()]
        width = max((len(name) for name in self.tensors), default=0)
        tensors = [f"  {name:<{width}}  {dtype:<5} {list(shape)}" for name, (dtype, shape) in self.tensors.items()]
        return [f"{self.path}: {self.kind}", *facts, "", *tensors]


def _shown(key: str, value: Any) -> str:
    if key.endswith("bytes"):
        return size_text(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} x {count}" for name, count in value.items())
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def inspect(path: Path) -> Inspection:
    """Looks at a model directory, a store or a GGUF file without reading a weight.

    Raises:
        ZooError: it is none of these, or contradicts itself.
    """
    if path.is_file():
        return _inspect_gguf(path)
    if not path.exists():
        unfinished = path.with_name(path.name + UNFINISHED)
        hint = f"; an unfinished conversion lies in {unfinished}" if unfinished.exists() else ""
        raise ZooError(f"{path}: no such file or directory{hint}")
    if is_store(path) or looks_unfinished(path):
        return _inspect_store(path)
    return _inspect_directory(path)


def _inspect_directory(path: Path) -> Inspection:
    from .family import family_of
    from .hf_dir import open_hf_directory

    directory = open_hf_directory(path)
    family = family_of(directory.config, str(path / "config.json"))
    facts = {
        "family": family.model_type,
        **_numbers(directory.headers),
        "files": len(directory.shards),
        "side_files": len(directory.side_files),
    }
    tensors = {name: (header.dtype, header.shape) for name, header in directory.headers.items()}
    return Inspection(str(path), "Hugging Face directory", facts, tensors)


def _inspect_store(path: Path) -> Inspection:
    manifest = open_store(path).manifest
    headers = {name: TensorHeader(record.dtype, record.shape) for name, record in manifest.tensors.items()}
    facts = {
        "family": manifest.family,
        **_numbers(headers),
        "source": manifest.provenance.source,
        "zoo_version": manifest.provenance.zoo_version,
        "side_files": len(manifest.side_files),
    }
    tensors = {name: (record.dtype, record.shape) for name, record in manifest.parameters.items()}
    return Inspection(str(path), "store", facts, tensors)


def _inspect_gguf(path: Path) -> Inspection:
    from .gguf import GgufFile

    file = GgufFile.open(path)
    facts = {
        "family": str(file.metadata.get("general.architecture")),
        "name": str(file.metadata.get("general.name", "")),
        "parameters": sum(_count(tensor.shape) for tensor in file.tensors.values()),
        "bytes": sum(tensor.nbytes for tensor in file.tensors.values()),
        "dtypes": dict(Counter(tensor.quantisation for tensor in file.tensors.values())),
    }
    return Inspection(str(path), "GGUF file", facts, {n: (t.quantisation, t.shape) for n, t in file.tensors.items()})


def _numbers(headers: Mapping[str, TensorHeader]) -> dict[str, Any]:
    return {
        "parameters": sum(_count(header.shape) for header in headers.values()),
        "bytes": sum(header.nbytes for header in headers.values()),
        "dtypes": dict(Counter(header.dtype for header in headers.values())),
    }


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
