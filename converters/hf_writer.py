"""Writes safetensors files front to back, continuing inside a file where an earlier run stopped."""

from __future__ import annotations

import json
import os
import struct
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from zoo.models.direct_write import write_at

from .hf_dir import INDEX, SINGLE
from .source import TensorHeader
from .staging import Staging

# Bytes between two entries of the journal, which is also what a killed run loses at most.
CHECKPOINT_BYTES = 64 << 20


@dataclass(frozen=True)
class FileLayout:
    """A file to be written: its header as text, and its tensors in the order of their bytes."""

    name: str
    header: str
    tensors: tuple[str, ...]

    @property
    def prefix(self) -> bytes:
        """The bytes before the first tensor's."""
        text = self.header.encode()
        return struct.pack("<Q", len(text)) + text


def layout_of(name: str, header: str) -> FileLayout:
    """The layout that a header's text describes."""
    entries = {key: value for key, value in json.loads(header).items() if key != "__metadata__"}
    return FileLayout(name, header, tuple(sorted(entries, key=lambda key: entries[key]["data_offsets"])))


def make_layout(name: str, tensors: Mapping[str, TensorHeader], metadata: Mapping[str, str]) -> FileLayout:
    """A new header for these tensors, in their order, padded with spaces to a multiple of 8 as the format asks."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt", **metadata}}
    position = 0
    for key, header in tensors.items():
        entries[key] = {
            "dtype": header.dtype,
            "shape": list(header.shape),
            "data_offsets": [position, position + header.nbytes],
        }
        position += header.nbytes
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False)
    return FileLayout(name, text + " " * (-len(text.encode()) % 8), tuple(tensors))


def shard_layouts(
    tensors: Mapping[str, TensorHeader], metadata: Mapping[str, str], max_shard_size: int | None
) -> tuple[list[FileLayout], dict[str, object] | None]:
    """Divides tensors, in order, into files of at most `max_shard_size` bytes; returns them and the index, if any."""
    shards: list[dict[str, TensorHeader]] = [{}]
    size = 0
    for name, header in tensors.items():
        if shards[-1] and max_shard_size is not None and size + header.nbytes > max_shard_size:
            shards.append({})
            size = 0
        shards[-1][name] = header
        size += header.nbytes
    if len(shards) == 1:
        return [make_layout(SINGLE, shards[0], metadata)], None
    names = [f"model-{number:05}-of-{len(shards):05}.safetensors" for number in range(1, len(shards) + 1)]
    layouts = [make_layout(name, shard, metadata) for name, shard in zip(names, shards, strict=True)]
    total = sum(header.nbytes for header in tensors.values())
    weight_map = {tensor: layout.name for layout in layouts for tensor in layout.tensors}
    return layouts, {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}


def write_index(folder: Path, index: Mapping[str, object] | None) -> None:
    """Writes the index of a sharded model, or removes a stale one."""
    if index is None:
        (folder / INDEX).unlink(missing_ok=True)
    else:
        (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


# Given names and a place for tensors, puts each tensor in it, in any thread, and then yields its name, in order.
Producer = Callable[[Sequence[str], Callable[[str, np.ndarray], None]], Iterable[str]]


def write_files(
    staging: Staging,
    layouts: Sequence[FileLayout],
    produce: Producer,
    nbytes: Mapping[str, int],
    advance: Callable[[int], None],
) -> None:
    """Writes the files with the tensors that `produce` makes when it is given the names still to be written.

    Args:
        nbytes: the size of each tensor.
        advance: told of bytes written, those of an earlier run included.
    """
    reached = {entry["file"]: entry["tensors"] for entry in staging.entries}
    places: dict[str, tuple[Path, int]] = {}
    todo: list[str] = []
    for layout in layouts:
        path, done = staging.path / layout.name, reached.get(layout.name, 0)
        position = len(layout.prefix)
        for name in layout.tensors:
            places[name] = path, position
            position += nbytes[name]
        if not done:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(layout.prefix)
        todo += layout.tensors[done:]
        advance(sum(nbytes[name] for name in layout.tensors[:done]))
    # The kernel lets one thread write a file at a time, and the others spin until they may: rather let them wait here.
    turn = threading.Lock()

    def put(name: str, array: np.ndarray) -> None:
        with turn:
            _put(*places[name], array)

    finished = iter(produce(todo, put))
    for layout in layouts:
        since = 0
        for number, name in enumerate(layout.tensors[reached.get(layout.name, 0) :], reached.get(layout.name, 0) + 1):
            if next(finished) != name:
                raise RuntimeError(f"tensor {name} was not made in its turn")
            since += nbytes[name]
            advance(nbytes[name])
            if since >= CHECKPOINT_BYTES or number == len(layout.tensors):
                _sync(staging.path / layout.name)
                staging.record({"file": layout.name, "tensors": number})
                since = 0


def _put(path: Path, position: int, array: np.ndarray) -> None:
    """Writes an array's bytes at a position of a file."""
    view = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    descriptor = os.open(path, os.O_WRONLY)
    try:
        write_at(descriptor, position, view)
    finally:
        os.close(descriptor)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
