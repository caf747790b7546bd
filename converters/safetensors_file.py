"""One safetensors file: its header checked against the file, its tensors read one at a time.

The format is an 8-byte little-endian header length, a JSON header, and a buffer that the tensors cover exactly.
Reading goes through plain file reads and not a memory map: mapped pages would count towards the process, and the memory
of a conversion is to be bounded by one tensor.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zoo.models.errors import ZooError
from zoo.models.json_file import parse_json

from .source import DTYPES, TensorHeader

# The format's own bound on a header, against a length field that is garbage.
MAX_HEADER_BYTES = 100_000_000


@dataclass(frozen=True)
class SafetensorsFile:
    """A checked header. `offsets` are byte ranges in the file; `order` is that of the bytes.

    `header_text` is the header as it stands in the file, so that the same file can be written again.
    """

    path: Path
    header_text: str
    metadata: dict[str, str]
    headers: dict[str, TensorHeader]
    offsets: dict[str, tuple[int, int]]

    @property
    def order(self) -> list[str]:
        return sorted(self.offsets, key=lambda name: self.offsets[name])

    def read(self, name: str) -> np.ndarray:
        """The tensor `name`, in memory of its own."""
        header, (start, stop) = self.headers[name], self.offsets[name]
        buffer = np.empty(stop - start, np.uint8)
        with open(self.path, "rb", buffering=0) as file:
            file.seek(start)
            view, done = buffer.data, 0
            while done < len(view):
                count = file.readinto(view[done:])
                if not count:
                    raise ZooError(f"{self.path}: the file became shorter while tensor {name} was read; convert again")
                done += count
        return buffer.view(DTYPES[header.dtype]).reshape(header.shape)


def open_safetensors(path: Path) -> SafetensorsFile:
    """Reads and checks a file's header; no tensor is read.

    Raises:
        ZooError: the file is missing, truncated, or its header and its bytes disagree.
    """
    try:
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            text = _header_text(path, file.read(8), size, file)
    except FileNotFoundError:
        raise ZooError(f"{path}: no such file; fetch the missing shard again") from None
    metadata, headers, offsets = parse_header(text, str(path), size)
    return SafetensorsFile(path, text, metadata, headers, offsets)


def parse_header(
    text: str, where: str, size: int | None = None
) -> tuple[dict[str, str], dict[str, TensorHeader], dict[str, tuple[int, int]]]:
    """The metadata, the tensors and their places in the file, by a header's text.

    Args:
        where: how an error names the file.
        size: how many bytes the file has; as many as the header needs, if it is not given.

    Raises:
        ZooError: the header contradicts itself, or the size.
    """
    entries = _parse(where, text)
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ZooError(f"{where}: __metadata__ in the header must map strings to strings")
    headers: dict[str, TensorHeader] = {}
    offsets: dict[str, tuple[int, int]] = {}
    base = 8 + len(text.encode())
    for name, entry in entries.items():
        headers[name], (start, stop) = _entry(where, name, entry)
        offsets[name] = (base + start, base + stop)
    _check_coverage(where, offsets, base, size)
    return metadata, headers, offsets


def _header_text(path: Path, length_bytes: bytes, size: int, file: Any) -> str:
    if len(length_bytes) < 8:
        raise ZooError(f"{path}: truncated: expected an 8-byte header length, found {size} bytes; fetch the file again")
    (length,) = struct.unpack("<Q", length_bytes)
    if length > MAX_HEADER_BYTES:
        raise ZooError(f"{path}: not a safetensors file: it announces a header of {length} bytes")
    if 8 + length > size:
        raise ZooError(
            f"{path}: truncated: expected a header of {length} bytes, found {size - 8} bytes; fetch the file again"
        )
    try:
        return file.read(length).decode()
    except UnicodeDecodeError:
        raise ZooError(f"{path}: not a safetensors file: its header is not UTF-8") from None


def _parse(path: str, text: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) != len(names) else []
        if twice:
            raise ZooError(f"{path}: duplicate in the header: {', '.join(twice)}")
        return dict(pairs)

    entries = parse_json(text, f"{path}: header", pairs=unique)
    if not isinstance(entries, dict):
        raise ZooError(f"{path}: not a safetensors file: its header is not a JSON object")
    return entries


def _entry(path: str, name: str, entry: Any) -> tuple[TensorHeader, tuple[int, int]]:
    try:
        dtype, shape, (start, stop) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        integers = [*shape, start, stop]
        if not all(type(value) is int and value >= 0 for value in integers):
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise ZooError(f"{path}: tensor {name}: expected dtype, shape and data_offsets, found {entry!r}") from None
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ZooError(f"{path}: tensor {name}: unknown dtype {dtype!r}; known: {', '.join(DTYPES)}")
    header = TensorHeader(dtype, shape)
    if header.nbytes != stop - start:
        raise ZooError(
            f"{path}: tensor {name}: {dtype} {list(shape)} takes {header.nbytes} bytes, its offsets span {stop - start}"
        )
    return header, (start, stop)


def _check_coverage(path: str, offsets: dict[str, tuple[int, int]], base: int, size: int | None) -> None:
    position = base
    for name in sorted(offsets, key=lambda name: offsets[name]):
        start, stop = offsets[name]
        if start > position:
            raise ZooError(f"{path}: bytes {position} to {start} before tensor {name} belong to no tensor")
        if start < position:
            raise ZooError(f"{path}: tensor {name} overlaps the one before it, at byte {start}")
        position = stop
    if size is None:
        return
    if size < position:
        raise ZooError(f"{path}: truncated: expected {position} bytes, found {size}; fetch the file again")
    if size > position:
        raise ZooError(f"{path}: bytes {position} to {size} after the last tensor belong to no tensor")
