"""The header of a GGUF file: metadata and tensor descriptions, parsed in one forward pass.

The layout, all little-endian: magic, version, number of tensors, number of metadata entries; the entries (key, type,
value); the tensors (name, dimensions, type, offset); padding; then the bytes of the tensors. A string is a length and
UTF-8; an array is an element type, a length and its elements. The `gguf` library's own reader makes several numpy
views for every string, seconds for a vocabulary, which is too long to look at a header; it is the reference in tests.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from zoo.models.errors import ZooError, report_all

VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
# ggml's own bound on the number of axes of a tensor.
MAX_AXES = 4

_STRING, _ARRAY = 8, 9
_NUMBERS = {
    0: np.dtype("<u1"),
    1: np.dtype("<i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype("?"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}


@dataclass(frozen=True)
class TensorEntry:
    """A tensor as the header describes it: axes from the slowest to the fastest, offset from `Header.data_start`."""

    name: str
    shape: tuple[int, ...]
    type_number: int
    offset: int


@dataclass(frozen=True)
class Header:
    """What precedes the tensors. `data_start` is where in the file their bytes begin."""

    metadata: dict[str, Any]
    tensors: list[TensorEntry]
    alignment: int
    data_start: int


def read_header(path: Path) -> Header:
    """Parses the header of a GGUF file.

    Raises:
        ZooError: the file is missing, is no GGUF file of a known version and byte order, is truncated, or names
            something twice.
    """
    try:
        size = os.path.getsize(path)
        with open(path, "rb", buffering=1 << 20) as file:
            return _parse(_Cursor(path, file, size))
    except FileNotFoundError:
        raise ZooError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise ZooError(f"{path}: expected a GGUF file, found a directory") from None


class _Cursor:
    """Reads values one after the other, never beyond the end of the file whatever a length field says."""

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self.path, self._file, self._size = path, file, size
        self.position = 0

    def take(self, count: int, what: str) -> bytes:
        if count > self._size - self.position:
            raise ZooError(
                f"{self.path}: truncated: {what} needs {count} bytes at byte {self.position} of {self._size}; "
                "fetch the file again"
            )
        self.position += count
        return self._file.read(count)

    def integer(self, count: int, what: str) -> int:
        return int.from_bytes(self.take(count, what), "little")

    def string(self, what: str) -> str:
        raw = self.take(self.integer(8, what), what)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise ZooError(f"{self.path}: {what} is not UTF-8: {raw[:40]!r}") from None

    def value(self, kind: int, what: str) -> Any:
        if kind == _STRING:
            return self.string(what)
        if kind == _ARRAY:
            return self._array(self.integer(4, what), self.integer(8, what), what)
        return self._numbers(kind, 1, what)[0]

    def _array(self, kind: int, count: int, what: str) -> list[Any]:
        if kind == _ARRAY:
            raise ZooError(f"{self.path}: {what} is an array of arrays, which no known key is")
        if kind == _STRING:
            return [self.string(what) for _ in range(count)]
        return self._numbers(kind, count, what)

    def _numbers(self, kind: int, count: int, what: str) -> list[Any]:
        if kind not in _NUMBERS:
            raise ZooError(f"{self.path}: {what} has unknown value type {kind}; known: 0 to 12")
        dtype = _NUMBERS[kind]
        return np.frombuffer(self.take(count * dtype.itemsize, what), dtype).tolist()


def _parse(cursor: _Cursor) -> Header:
    _check_start(cursor)
    tensor_count = cursor.integer(8, "the number of tensors")
    entry_count = cursor.integer(8, "the number of metadata entries")
    metadata: dict[str, Any] = {}
    twice: list[str] = []
    for index in range(entry_count):
        key = cursor.string(f"the key of metadata entry {index}")
        if key in metadata:
            twice.append(f"metadata {key}")
        metadata[key] = cursor.value(cursor.integer(4, f"metadata {key}"), f"metadata {key}")
    tensors = [_tensor(cursor, index) for index in range(tensor_count)]
    names: set[str] = set()
    for tensor in tensors:
        if tensor.name in names:
            twice.append(f"tensor {tensor.name}")
        names.add(tensor.name)
    report_all(twice, f"{cursor.path}: named twice in the header:")
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise ZooError(f"{cursor.path}: general.alignment must be a power of two, found {alignment!r}")
    return Header(metadata, tensors, alignment, -(-cursor.position // alignment) * alignment)


def _check_start(cursor: _Cursor) -> None:
    magic = cursor.take(4, "the magic number")
    if magic != b"GGUF":
        raise ZooError(f"{cursor.path}: not a GGUF file: expected it to begin with b'GGUF', found {magic!r}")
    raw = cursor.take(4, "the version")
    (version,) = struct.unpack("<I", raw)
    if version in VERSIONS:
        return
    if struct.unpack(">I", raw)[0] in (1, *VERSIONS):
        raise ZooError(
            f"{cursor.path}: a big-endian GGUF file; only little-endian ones are read: convert its byte order"
        )
    raise ZooError(f"{cursor.path}: GGUF version {version}; known: {', '.join(map(str, VERSIONS))}")


def _tensor(cursor: _Cursor, index: int) -> TensorEntry:
    name = cursor.string(f"the name of tensor {index}")
    what = f"tensor {name}"
    axes = cursor.integer(4, what)
    if not 1 <= axes <= MAX_AXES:
        raise ZooError(f"{cursor.path}: {what} has {axes} axes; expected 1 to {MAX_AXES}")
    shape = tuple(cursor.integer(8, what) for _ in range(axes))[::-1]
    return TensorEntry(name, shape, cursor.integer(4, what), cursor.integer(8, what))
