"""Store to Hugging Face directory, streaming: the files it came from, bit for bit, unless another form is asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zoo.models.abstract import AbstractParameter
from zoo.models.checkpoint import SIDE_FILES, Store, open_store
from zoo.models.errors import CheckFailed, ZooError, report_all
from zoo.models.manifest import MANIFEST

from .cast import KEEP, cast, check_dtype, stored_dtype
from .digest import array_digest
from .family import families
from .hf_dir import INDEX
from .hf_writer import FileLayout, layout_of, shard_layouts, write_files, write_index
from .layout import Binding, bind
from .passengers import PASSENGER, passenger_binding
from .pipeline import in_order
from .report import Progress, Report, Silent, Stopwatch
from .safetensors_file import parse_header
from .source import DTYPE_CHOICES, TensorHeader
from .staging import stage
from .store_writer import copy_side_files

# Bytes of tensors held at a time, over all threads, unless one is larger.
BUDGET_BYTES = 128 << 20


def store_bindings(store: Store) -> list[Binding]:
    """The bindings between a store's parameters and its source's tensors, by the family's table of today.

    Raises:
        ZooError: the store and the table no longer fit each other.
    """
    manifest = store.manifest
    family = next((family for family in families() if family.model_type == manifest.family), None)
    if family is None:
        raise ZooError(f"{store.path}: of family {manifest.family!r}, which this zoo does not know")
    # What the store says of its parameters is all that the table needs: the model itself need not be built.
    parameters = {
        path: AbstractParameter(record.shape, record.axes)
        for path, record in manifest.parameters.items()
        if not path.startswith(PASSENGER)
    }
    bindings, problems = bind(family.rows(manifest.tensors), parameters)
    bindings += [
        passenger_binding(name, record.shape)
        for name, record in manifest.tensors.items()
        if PASSENGER + name in manifest.parameters
    ]
    expected = {name for binding in bindings for name in binding.sources}
    problems += [f"{name} is in the store and in no row" for name in manifest.tensors if name not in expected]
    problems += [f"{name} is in a row and not in the store" for name in expected if name not in manifest.tensors]
    report_all(problems, f"{store.path}: the store does not fit the layout table of {family.model_type}:")
    return bindings


@dataclass(frozen=True)
class StoreTensors:
    """The tensors of a store in the Hugging Face layout, a binding at a time."""

    store: Store
    bindings: Mapping[str, Binding]

    @classmethod
    def of(cls, store: Store) -> StoreTensors:
        return cls(store, {name: binding for binding in store_bindings(store) for name in binding.sources})

    def each(
        self, names: Sequence[str], dtype: str, use: Callable[[str, np.ndarray], None], *, check: bool = True
    ) -> Iterator[tuple[str, str]]:
        """Calls `use` with each name and tensor, in several threads, then yields (name, digest as stored), in order.

        A redundant tensor is that which it equals.

        Args:
            dtype: `keep`, or the type that floating tensors are cast to.
            check: compare each with its record.

        Raises:
            CheckFailed: a tensor is not the one that was stored.
        """
        records = self.store.manifest.tensors
        redundant = self.store.manifest.redundant

        def work(name: str) -> tuple[str, str]:
            kept = redundant.get(name, name)
            tensor = self._tensor(kept)
            digest = array_digest(tensor)
            if check and digest != records[kept].digest:
                raise CheckFailed(
                    f"{self.store.path}: parameter {', '.join(self.bindings[kept].natives)} is damaged: as "
                    f"{name} its digest is {digest}, expected {records[kept].digest}; convert the source again"
                )
            use(name, cast(tensor, stored_dtype(records[kept].dtype, dtype), name))
            return name, digest

        def cost(name: str) -> int:
            return header(records[redundant.get(name, name)]).nbytes

        yield from in_order(names, work, cost, BUDGET_BYTES)

    def _tensor(self, name: str) -> np.ndarray:
        """One source tensor; of a stack nothing else is read."""
        binding, rows = self.bindings[name], None
        if binding.is_stack:
            index = binding.sources.index(name)
            binding, rows = binding.members(index, index + 1), (index, index + 1)
        exported = binding.export([self.store.read(native, rows) for native in binding.natives])
        return exported[binding.sources.index(name)]

    def binding(self, name: str) -> Binding:
        """The binding that makes a tensor."""
        return self.bindings[self.store.manifest.redundant.get(name, name)]


def header(record: Any) -> TensorHeader:
    """The safetensors header of a stored tensor."""
    return TensorHeader(record.dtype, record.shape)


def orbax_to_hf(
    source: Path,
    destination: Path,
    *,
    dtype: str = KEEP,
    max_shard_size: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Writes a store out as a model directory, continuing an earlier run that was killed.

    With `dtype` keep and no `max_shard_size` the directory is the source's own: every file has its sha256.

    Args:
        dtype: `keep`, or the type every floating tensor is cast to.
        max_shard_size: bytes of weights in one file at most, unless one tensor is larger.

    Raises:
        ZooError: the store is unfinished or unknown, or the destination cannot be made.
        CheckFailed: a parameter is not the one that was stored.
    """
    watch = Stopwatch()
    progress = progress or Silent()
    check_dtype(dtype)
    store = open_store(source)
    check_files(store)
    if max_shard_size is not None and max_shard_size <= 0:
        raise ZooError(f"the maximal shard size must be a positive number of bytes, found {max_shard_size}")
    tensors = StoreTensors.of(store)
    layouts, index, unchanged = _layouts(store, dtype, max_shard_size)
    sizes = _sizes(store, dtype)
    job = {
        "job": "orbax-to-hf",
        "manifest": store.manifest.model_dump(mode="json"),
        "dtype": dtype,
        "max": max_shard_size,
    }
    total = sum(sizes[name] for layout in layouts for name in layout.tensors)
    with stage(source, destination, job, overwrite=overwrite, needed_bytes=total) as staging:
        resumed = staging.resumed
        progress.start(total, "exporting")
        write_files(
            staging,
            layouts,
            lambda names, put: (name for name, _ in tensors.each(names, dtype, put)),
            sizes,
            progress.advance,
        )
        progress.finish()
        _write_side_files(store, staging.path, dtype, index, unchanged)
        staging.publish(overwrite)
    facts = {
        "tensors": sum(len(layout.tensors) for layout in layouts),
        "files": len(layouts),
        "bytes": total,
        "dtype": dtype,
    }
    notes = ["continued an earlier run that was interrupted"] if resumed else []
    if unchanged:
        notes.append("every file has the bytes of the source's")
    return Report(str(source), str(destination), facts, notes, watch.seconds)


def check_files(store: Store) -> None:
    """Checks that the headers on record describe the tensors of the store, each once.

    Raises:
        ZooError: they do not.
    """
    manifest = store.manifest
    found: list[str] = []
    problems: list[str] = []
    for file in manifest.files:
        for name, entry in parse_header(file.header, f"{store.path / MANIFEST}: {file.name}")[1].items():
            found.append(name)
            record = manifest.tensors.get(manifest.redundant.get(name, name))
            if record is None:
                problems.append(f"{file.name}: {name} is not in the store")
            elif (entry.dtype, entry.shape) != (record.source_dtype, record.shape):
                problems.append(f"{file.name}: {name} is {entry.dtype} {list(entry.shape)} there, not here")
    expected = {*manifest.tensors, *manifest.redundant}
    problems += [f"{name} is in no file" for name in sorted(expected - set(found))]
    problems += [f"{name} is in two files" for name in sorted({name for name in found if found.count(name) > 1})]
    report_all(problems, f"{store.path / MANIFEST}: damaged; convert the source again:")


def _layouts(
    store: Store, dtype: str, max_shard_size: int | None
) -> tuple[list[FileLayout], dict[str, object] | None, bool]:
    """The files to write, their index, and whether they are the source's own."""
    manifest = store.manifest
    originals = [layout_of(file.name, file.header) for file in manifest.files]
    same_types = all(
        stored_dtype(record.dtype, dtype) == record.source_dtype == record.dtype for record in manifest.tensors.values()
    )
    if same_types and max_shard_size is None:
        return originals, None, True
    metadata: dict[str, str] = {}
    for file in manifest.files:
        metadata.update(json.loads(file.header).get("__metadata__", {}))
    headers = {
        name: TensorHeader(stored_dtype(record.dtype, dtype), record.shape)
        for layout in originals
        for name in layout.tensors
        for record in [manifest.tensors[manifest.redundant.get(name, name)]]
    }
    if max_shard_size is None and len(originals) > 1:
        # The source's own division into files, with new headers.
        max_shard_size = max(sum(headers[name].nbytes for name in layout.tensors) for layout in originals)
    layouts, index = shard_layouts(headers, metadata, max_shard_size)
    return layouts, index, False


def _sizes(store: Store, dtype: str) -> dict[str, int]:
    records = dict(store.manifest.tensors)
    records |= {name: records[kept] for name, kept in store.manifest.redundant.items()}
    return {
        name: TensorHeader(stored_dtype(record.dtype, dtype), record.shape).nbytes for name, record in records.items()
    }


def _write_side_files(store: Store, folder: Path, dtype: str, index: dict[str, object] | None, unchanged: bool) -> None:
    names = [name for name in store.manifest.side_files if unchanged or name != INDEX]
    digests = copy_side_files(store.path / SIDE_FILES, folder, names)
    report_all(
        (
            f"{name}: sha256 {digests[name]}, expected {store.manifest.side_files[name]}"
            for name in names
            if digests[name] != store.manifest.side_files[name]
        ),
        f"{store.path / SIDE_FILES}: files were changed since the conversion:",
        CheckFailed,
    )
    if unchanged:
        return
    write_index(folder, index)
    written = {stored_dtype(record.dtype, dtype) for record in store.manifest.tensors.values()}
    names_of = {short: long for long, short in DTYPE_CHOICES.items()}
    if len(written) == 1 and (written_name := names_of.get(written.pop())) is not None:
        _set_config_dtype(folder / "config.json", written_name)


def _set_config_dtype(path: Path, dtype: str) -> None:
    """Makes config.json say the type that the weights have, under the name it used before."""
    config = json.loads(path.read_text(encoding="utf-8"))
    key = "dtype" if "dtype" in config else "torch_dtype"
    if config.get(key) != dtype:
        config[key] = dtype
        path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
