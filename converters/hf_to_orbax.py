"""Hugging Face directory to store, streaming: memory is bounded by the largest tensor, not by the model."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zoo.models.checkpoint import SIDE_FILES
from zoo.models.manifest import FORMAT_VERSION, FileRecord, Manifest, ParameterRecord, Provenance, TensorRecord
from zoo.models.zarr_array import chunk_rows

from .cast import cast, check_dtype, stored_dtype
from .digest import array_digest
from .family import family_of
from .hf_dir import HfDirectory, open_hf_directory
from .layout import Binding
from .pipeline import in_order
from .plan import Plan, plan_conversion
from .report import Progress, Report, Silent, Stopwatch, size_text
from .source import DTYPES, TensorHeader, TensorSource
from .staging import check_destination, stage
from .store_writer import StoreWriter, copy_side_files

# Source bytes between two lines of the journal, which is what a killed run loses at most.
RECORD_BYTES = 64 << 20
# Source bytes held at a time, over all threads, unless one tensor is larger.
BUDGET_BYTES = 128 << 20
# What an array or a file takes on disk beside its bytes: folders, metadata and blocks that are not full.
FILE_BYTES = 16 << 10
# What this process takes before it reads a weight, for the plan's estimate.
BASE_BYTES = 250 << 20


@dataclass(frozen=True)
class ConversionPlan:
    """What `--plan` shows: all that headers alone can tell."""

    source: Path
    destination: Path
    plan: Plan
    nbytes: int
    largest_bytes: int
    dtypes: tuple[str, ...]
    side_files: tuple[str, ...]
    left_out: tuple[str, ...]

    @property
    def peak_bytes(self) -> int:
        """An upper estimate of the memory the conversion will take."""
        return BASE_BYTES + 2 * BUDGET_BYTES + 3 * self.largest_bytes

    def as_json(self) -> dict[str, Any]:
        tensors = sum(len(binding.sources) for binding in self.plan.bindings)
        return {
            "source": str(self.source),
            "destination": str(self.destination),
            "family": self.plan.family.model_type,
            "tensors": tensors,
            "parameters": len(self.plan.parameters),
            "passengers": tensors - len(self.plan.parameters) if len(self.plan.bindings) == tensors else None,
            "redundant_tensors": dict(self.plan.redundant_head),
            "dtypes": list(self.dtypes),
            "bytes": self.nbytes,
            "largest_tensor_bytes": self.largest_bytes,
            "peak_memory_bytes": self.peak_bytes,
            "side_files": list(self.side_files),
            "left_out": list(self.left_out),
        }

    def lines(self) -> list[str]:
        facts = self.as_json()
        return [
            f"{self.source} -> {self.destination}",
            f"family {facts['family']}: {facts['tensors']} tensors ({', '.join(self.dtypes)}) fit the layout table",
            f"{size_text(self.nbytes)} of weights, the largest tensor {size_text(self.largest_bytes)}, "
            f"at most {size_text(self.peak_bytes)} of memory",
            f"{len(self.side_files)} files carried along: {', '.join(self.side_files)}",
            *([f"left out: {', '.join(self.left_out)}"] if self.left_out else []),
        ]


def plan_hf_to_orbax(
    source: Path, destination: Path, *, dtype: str = "keep", overwrite: bool = False
) -> ConversionPlan:
    """Checks a conversion from headers alone and says what it will take; reads and writes no weights."""
    check_dtype(dtype)
    check_destination(source, destination, overwrite=overwrite)
    directory = open_hf_directory(source)
    plan = _plan(directory, compare_tied=False)
    sizes = [TensorHeader(stored_dtype(h.dtype, dtype), h.shape).nbytes for h in directory.headers.values()]
    return ConversionPlan(
        source,
        destination,
        plan,
        nbytes=sum(sizes),
        largest_bytes=max(sizes),
        dtypes=tuple(sorted({stored_dtype(h.dtype, dtype) for h in directory.headers.values()})),
        side_files=directory.side_files,
        left_out=directory.left_out,
    )


def hf_to_orbax(
    source: Path, destination: Path, *, dtype: str = "keep", overwrite: bool = False, progress: Progress | None = None
) -> Report:
    """Converts a model directory to a store, continuing an earlier run of the same conversion that was killed.

    Args:
        dtype: `keep`, or the type every floating tensor is cast to.

    Raises:
        ZooError: the source contradicts itself or its family's table, or the destination cannot be made.
    """
    watch = Stopwatch()
    check_dtype(dtype)
    directory = open_hf_directory(source)
    plan = _plan(directory, compare_tied=True)
    nbytes = sum(header.nbytes for header in directory.headers.values())
    side_bytes = sum((source / name).stat().st_size for name in directory.side_files)
    job = _job(directory, dtype)
    needed = nbytes + side_bytes + FILE_BYTES * (len(directory.headers) + len(directory.side_files))
    with stage(source, destination, job, overwrite=overwrite, needed_bytes=needed) as staging:
        resumed = staging.resumed
        with StoreWriter(staging, _dtypes(plan, directory, dtype)) as writer:
            _save_parameters(writer, plan, directory, dtype, progress or Silent())
            writer.finish()
        # Those of an earlier run may be gone by now.
        shutil.rmtree(staging.path / SIDE_FILES, ignore_errors=True)
        side_files = copy_side_files(source, staging.path / SIDE_FILES, directory.side_files)
        _manifest(directory, plan, writer.tensors, side_files).write(staging.path)
        staging.publish(overwrite)
    facts = {"family": plan.family.model_type, "tensors": len(directory.headers), "bytes": nbytes, "dtype": dtype}
    return Report(str(source), str(destination), facts, _notes(directory, plan, resumed), watch.seconds)


def _dtypes(plan: Plan, source: TensorSource, dtype: str) -> dict[str, np.dtype]:
    """The element type of each parameter, which is that of the tensor it comes from once that is cast."""
    return {
        native: DTYPES[stored_dtype(source.headers[binding.sources[0]].dtype, dtype)]
        for binding in plan.bindings
        for native in binding.natives
    }


def _plan(directory: HfDirectory, *, compare_tied: bool) -> Plan:
    family = family_of(directory.config, str(directory.path / "config.json"))
    return plan_conversion(family, directory.config, directory, compare_tied=compare_tied)


def _job(directory: HfDirectory, dtype: str) -> dict[str, Any]:
    """What identifies a conversion: continuing is right only for the same bytes and options."""
    shards = {}
    for shard in directory.shards:
        status = shard.path.stat()
        shards[str(shard.path.relative_to(directory.path))] = [status.st_size, status.st_mtime_ns]
    return {
        "job": "hf-to-orbax",
        "format_version": FORMAT_VERSION,
        "source": str(directory.path.resolve()),
        "shards": shards,
        "config": dict(directory.config),
        "dtype": dtype,
    }


def _save_parameters(writer: StoreWriter, plan: Plan, source: TensorSource, dtype: str, progress: Progress) -> None:
    def nbytes_of(binding: Binding) -> int:
        return sum(source.headers[name].nbytes for name in binding.sources)

    def cost(binding: Binding) -> int:
        return max(nbytes_of(part) for _, part in _parts(binding, dtype_of(binding)))

    def dtype_of(binding: Binding) -> np.dtype:
        return DTYPES[stored_dtype(source.headers[binding.sources[0]].dtype, dtype)]

    def work(binding: Binding) -> tuple[dict[str, TensorRecord], int]:
        records: dict[str, TensorRecord] = {}
        for start, part in _parts(binding, dtype_of(binding)):
            tensors: list[np.ndarray] = []
            for name in part.sources:
                source_dtype = source.headers[name].dtype
                to = stored_dtype(source_dtype, dtype)
                tensors.append(cast(source.read(name), to, name))
                digest = array_digest(tensors[-1])
                records[name] = TensorRecord(
                    dtype=to, source_dtype=source_dtype, shape=binding.source_shape, digest=digest
                )
            for path, shape, parameter in zip(part.natives, binding.native_shapes, part.import_(tensors), strict=True):
                if part is binding:
                    writer.write(path, parameter)
                else:
                    writer.write_rows(path, start, parameter, shape)
        return records, nbytes_of(binding)

    done = sum(source.headers[name].nbytes for name in writer.tensors)
    todo = [binding for binding in plan.bindings if not all(name in writer.tensors for name in binding.sources)]
    progress.start(done + sum(map(nbytes_of, todo)), "converting")
    progress.advance(done)
    written: dict[str, TensorRecord] = {}
    since = 0
    for records, nbytes in in_order(todo, work, cost, BUDGET_BYTES):
        written |= records
        since += nbytes
        if since >= RECORD_BYTES:
            writer.record(written)
            written, since = {}, 0
        progress.advance(nbytes)
    writer.record(written)
    progress.finish()


def _parts(binding: Binding, dtype: np.dtype) -> list[tuple[int, Binding]]:
    """What of a binding is converted at a time, and where it begins: of a stack as much as fills a chunk."""
    if not binding.is_stack:
        return [(0, binding)]
    rows, count = chunk_rows(binding.native_shapes[0], dtype), len(binding.sources)
    if rows >= count:
        return [(0, binding)]
    return [(start, binding.members(start, min(start + rows, count))) for start in range(0, count, rows)]


def _manifest(
    directory: HfDirectory, plan: Plan, tensors: Mapping[str, TensorRecord], side_files: dict[str, str]
) -> Manifest:
    from importlib.metadata import version

    parameters = {
        native: ParameterRecord(
            dtype=DTYPES[tensors[binding.sources[0]].dtype].name,
            shape=shape,
            axes=axes,
        )
        for binding in plan.bindings
        for native, shape, axes in zip(binding.natives, binding.native_shapes, binding.native_axes, strict=True)
    }
    return Manifest(
        format_version=FORMAT_VERSION,
        family=plan.family.model_type,
        model=plan.config,
        provenance=Provenance(source=str(directory.path.resolve()), zoo_version=version("zoo-jax")),
        parameters=parameters,
        tensors=tensors,
        redundant=plan.redundant_head,
        files=tuple(
            FileRecord(name=str(shard.path.relative_to(directory.path)), header=shard.header_text)
            for shard in directory.shards
        ),
        side_files=side_files,
    )


def _notes(directory: HfDirectory, plan: Plan, resumed: bool) -> list[str]:
    notes: list[str] = []
    if resumed:
        notes.append("continued an earlier run that was interrupted")
    notes += [f"{head} equals {embedding} and is stored once" for head, embedding in plan.redundant_head.items()]
    if directory.config.get("tie_word_embeddings") and not plan.config.tied_head:
        notes.append("config.json ties the head to the embedding, but the two differ: they are kept as two parameters")
    notes += [f"left out: {name}" for name in directory.left_out]
    return notes
