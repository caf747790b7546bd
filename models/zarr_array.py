"""One array of a store on disk: a zarr (version 2) folder whose chunks are uncompressed and divide the first axis.

Orbax writes and reads such folders through tensorstore. A conversion writes and reads them itself, for a chunk is
nothing but a slice of the array's bytes: that saves three copies of every weight.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import ml_dtypes
import numpy as np

from .direct_write import write_at
from .errors import ZooError
from .json_file import read_json

METADATA = ".zarray"
EXPECTED_KEYS = ("shape", "dtype", "compressor", "filters", "order", "zarr_format", "dimension_separator")
# A host that needs a part of a large array fetches the chunks it lies in.
CHUNK_BYTES = 64 << 20


def numpy_dtype(name: str) -> np.dtype:
    """numpy's type of this name; the names of narrow floats are attributes of ml_dtypes, not known to numpy."""
    return np.dtype(getattr(ml_dtypes, name, name))


def write_array(folder: Path, array: np.ndarray) -> None:
    """Writes an array over whatever the folder held; its bytes are on disk when this returns."""
    create_array(folder, array.shape, array.dtype)
    # Unlike ascontiguousarray, which makes a vector of a scalar.
    array = np.asarray(array, order="C")
    if array.ndim:
        write_rows(folder, 0, array, array.shape[0])
    else:
        _write_chunk(folder / _chunk_name(0, 0), array, array.nbytes)


def create_array(folder: Path, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Makes the folder of an array whose rows are written by and by."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "chunks": [chunk_rows(shape, dtype), *shape[1:]] if shape else [],
        "compressor": None,
        "dimension_separator": ".",
        "dtype": _zarr_dtype(dtype),
        "fill_value": None,
        "filters": None,
        "order": "C",
        "shape": list(shape),
        "zarr_format": 2,
    }
    (folder / METADATA).write_text(json.dumps(content), encoding="utf-8")


def write_rows(folder: Path, start: int, part: np.ndarray, length: int) -> None:
    """Writes the rows from `start` of an array with `length` of them; they are on disk when this returns.

    `start` is where a chunk begins; the last row ends one, or the array.
    """
    rows = chunk_rows((length, *part.shape[1:]), part.dtype)
    assert start % rows == 0, f"row {start} is within a chunk of {rows}"
    part = np.ascontiguousarray(part)
    nbytes = rows * math.prod(part.shape[1:]) * part.dtype.itemsize
    for first in range(0, part.shape[0], rows):
        _write_chunk(folder / _chunk_name((start + first) // rows, part.ndim), part[first : first + rows], nbytes)


def _write_chunk(path: Path, part: np.ndarray, nbytes: int) -> None:
    with open(path, "wb", buffering=0) as file:
        write_at(file.fileno(), 0, part.reshape(-1).view(np.uint8).data)
        if part.nbytes < nbytes:
            # The last chunk has the size of the others; what is past the end means nothing.
            os.ftruncate(file.fileno(), nbytes)
        os.fdatasync(file.fileno())


def read_array(
    folder: Path, shape: tuple[int, ...], dtype: np.dtype, rows: tuple[int, int] | None = None
) -> np.ndarray:
    """The array, or its rows from the one to before the other, in memory of its own.

    Raises:
        ZooError: the folder does not hold an array of this shape and type, or a chunk of it is missing or short.
    """
    step = _check_metadata(folder, shape, dtype)
    if not shape:
        array = np.empty(shape, dtype)
        _read_into(folder / _chunk_name(0, 0), 0, array)
        return array
    start, stop = rows or (0, shape[0])
    array = np.empty((stop - start, *shape[1:]), dtype)
    row_bytes = math.prod(shape[1:]) * dtype.itemsize
    for number in range(start // step, -(-stop // step)):
        first, last = max(start, number * step), min(stop, (number + 1) * step)
        path = folder / _chunk_name(number, len(shape))
        _read_into(path, (first - number * step) * row_bytes, array[first - start : last - start])
    return array


def _read_into(path: Path, position: int, part: np.ndarray) -> None:
    """Fills a contiguous array with a file's bytes from this position on."""
    view = part.reshape(-1).view(np.uint8).data
    try:
        with open(path, "rb", buffering=0) as file:
            file.seek(position)
            done = 0
            while done < len(view):
                count = file.readinto(view[done:])
                if not count:
                    raise ZooError(f"{path}: truncated: expected {position + len(view)} bytes, found {position + done}")
                done += count
    except FileNotFoundError:
        raise ZooError(f"{path}: missing") from None


def check_array(folder: Path, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Compares what the folder holds with an array of this shape and type, by metadata and sizes alone.

    Raises:
        ZooError: they differ, or a chunk is missing or short.
    """
    rows = _check_metadata(folder, shape, dtype)
    expected = (rows * math.prod(shape[1:]) if shape else 1) * dtype.itemsize
    for number, _ in enumerate(range(0, shape[0] if shape else 1, rows)):
        path = folder / _chunk_name(number, len(shape))
        found = path.stat().st_size if path.is_file() else None
        if found != expected:
            raise ZooError(f"{path}: " + ("missing" if found is None else f"expected {expected} bytes, found {found}"))


def _check_metadata(folder: Path, shape: tuple[int, ...], dtype: np.dtype) -> int:
    """Compares the array's metadata with what it should be; returns the rows of a chunk."""
    path = folder / METADATA
    try:
        content = read_json(path)
        chunks = content["chunks"]
        found = {key: content[key] for key in EXPECTED_KEYS}
    except KeyError as error:
        raise ZooError(f"{path}: not the metadata of an array: {error!r}") from None
    expected = {
        "shape": list(shape),
        "dtype": _zarr_dtype(dtype),
        "compressor": None,
        "filters": None,
        "order": "C",
        "zarr_format": 2,
        "dimension_separator": ".",
    }
    if found != expected:
        wrong = [f"{key} {found[key]!r}, expected {value!r}" for key, value in expected.items() if found[key] != value]
        raise ZooError(f"{path}: {', '.join(wrong)}")
    if not shape:
        return 1
    if not isinstance(chunks, list) or chunks[1:] != list(shape[1:]) or not isinstance(chunks[0], int) or chunks[0] < 1:
        raise ZooError(f"{path}: chunks {chunks} do not divide the first axis of {list(shape)} alone")
    return chunks[0]


def chunk_rows(shape: tuple[int, ...], dtype: np.dtype) -> int:
    """How many rows of such an array a chunk has."""
    nbytes = math.prod(shape) * dtype.itemsize
    return max(1, math.ceil(shape[0] / max(1, math.ceil(nbytes / CHUNK_BYTES))))


def _chunk_name(number: int, ndim: int) -> str:
    return ".".join([str(number), *["0"] * (ndim - 1)])


def _zarr_dtype(dtype: np.dtype) -> str:
    """tensorstore's spelling: numpy's code with its byte order, or the name of a narrow float."""
    return dtype.name if dtype.kind == "V" or dtype.name.startswith(("bfloat", "float8")) else dtype.str
