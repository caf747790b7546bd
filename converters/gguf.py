"""A GGUF file: its header checked against the file, its tensors dequantised one at a time.

The block formats belong to the `gguf` library, which dequantises them in numpy. Reading goes through plain file reads
and not a memory map: mapped pages would count towards the process. A quantised tensor is expanded a stretch at a time,
so that the memory in use is the result and little more.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from zoo.models.errors import ZooError, report_all

from .gguf_header import Header, TensorEntry, read_header

# Types that hold plain numbers: these are returned as they are stored.
PLAIN = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
}
# Elements expanded at once: enough to be quick, little beside any model's largest tensor.
STRETCH_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class GgufTensor:
    """A tensor in a GGUF file. `shape` is row-major, `nbytes` the stored size, `start` where it lies in the file."""

    path: Path
    name: str
    shape: tuple[int, ...]
    quantisation: str
    nbytes: int
    start: int

    @property
    def dtype(self) -> np.dtype:
        """The element type of what `read` returns: float32 for everything quantised."""
        return PLAIN.get(self.quantisation, np.dtype(np.float32))

    def read(self) -> np.ndarray:
        """The whole tensor, dequantised, in memory of its own."""
        with open(self.path, "rb", buffering=0) as file:
            file.seek(self.start)
            if self.quantisation in PLAIN:
                return self._fill(file, self.nbytes).view(self.dtype).reshape(self.shape)
            kind = GGMLQuantizationType[self.quantisation]
            block_elements, block_bytes = GGML_QUANT_SIZES[kind]
            result = np.empty(math.prod(self.shape), np.float32)
            # Blocks follow one another without regard to rows, so that a stretch may cross them.
            stretch = STRETCH_ELEMENTS // block_elements
            for first in range(0, result.size // block_elements, stretch):
                part = result[first * block_elements : (first + stretch) * block_elements]
                blocks = self._fill(file, part.size // block_elements * block_bytes)
                part[:] = dequantize(_in_rows(blocks, block_bytes), kind).reshape(-1)
            return result.reshape(self.shape)

    def members(self) -> list[GgufTensor]:
        """The parts along the first axis, each as a tensor of its own."""
        if len(self.shape) < 2:
            return [self]
        size = self.nbytes // self.shape[0]
        return [
            replace(self, shape=self.shape[1:], nbytes=size, start=self.start + number * size)
            for number in range(self.shape[0])
        ]

    def _fill(self, file: Any, count: int) -> np.ndarray:
        buffer = np.empty(count, np.uint8)
        view, done = buffer.data, 0
        while done < count:
            read = file.readinto(view[done:])
            if not read:
                raise ZooError(f"{self.path}: the file became shorter while tensor {self.name} was read; convert again")
            done += read
        return buffer


@dataclass(frozen=True)
class GgufFile:
    """A GGUF file whose header was read and checked. `metadata` holds plain Python values."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]

    @classmethod
    def open(cls, path: Path) -> GgufFile:
        """Reads and checks the header; no tensor is read.

        Raises:
            ZooError: the file is damaged, is one part of several, or holds what cannot be dequantised; all mistakes
                about tensors together.
        """
        header = read_header(path)
        _check_whole(path, header)
        tensors: dict[str, GgufTensor] = {}
        problems: list[str] = []
        for entry in header.tensors:
            problem = _problem(entry, header.alignment)
            if problem:
                problems.append(f"{entry.name}: {problem}")
                continue
            kind = GGMLQuantizationType(entry.type_number)
            block_elements, block_bytes = GGML_QUANT_SIZES[kind]
            nbytes = math.prod(entry.shape) // block_elements * block_bytes
            start = header.data_start + entry.offset
            tensors[entry.name] = GgufTensor(path, entry.name, entry.shape, kind.name, nbytes, start)
        report_all(problems, f"{path}: tensors that cannot be read:")
        _check_places(path, tensors)
        return cls(path, header.metadata, tensors)

    def read(self, name: str) -> np.ndarray:
        """The tensor `name`, dequantised, in memory of its own."""
        return self.tensors[name].read()


def _in_rows(blocks: np.ndarray, block_bytes: int) -> np.ndarray:
    """The same blocks in rows of up to 64: the library works through a few rows at a time, and one block is no work."""
    count = blocks.size // block_bytes
    return blocks.reshape(-1, math.gcd(count, 64) * block_bytes)


def _check_whole(path: Path, header: Header) -> None:
    parts = header.metadata.get("split.count", 1)
    if isinstance(parts, int) and parts > 1:
        number = header.metadata.get("split.no", 0)
        part = number + 1 if isinstance(number, int) else repr(number)
        raise ZooError(f"{path}: part {part} of a model split into {parts} files; merge them into one file first")


@cache
def _can_dequantise(kind: GGMLQuantizationType) -> bool:
    """Whether the library expands a type; it knows the sizes of more types than it expands."""
    try:
        dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except NotImplementedError:
        return False
    return True


def _problem(entry: TensorEntry, alignment: int) -> str | None:
    try:
        kind = GGMLQuantizationType(entry.type_number)
    except ValueError:
        return f"unknown quantisation, type number {entry.type_number}"
    if kind.name not in PLAIN and not _can_dequantise(kind):
        supported = [other.name for other in GGMLQuantizationType if other.name in PLAIN or _can_dequantise(other)]
        return f"quantisation {kind.name} cannot be dequantised; supported: {', '.join(supported)}"
    block_elements = GGML_QUANT_SIZES[kind][0]
    if entry.shape[-1] % block_elements:
        return f"{kind.name} comes in blocks of {block_elements}; the last axis of {list(entry.shape)} is no multiple"
    if math.prod(entry.shape) == 0:
        return f"shape {list(entry.shape)} has no elements"
    if entry.offset % alignment:
        return f"offset {entry.offset} is no multiple of the alignment {alignment}"
    return None


def _check_places(path: Path, tensors: dict[str, GgufTensor]) -> None:
    """Every tensor lies in the file, and no two overlap."""
    size = os.path.getsize(path)
    in_order = sorted(tensors.values(), key=lambda tensor: tensor.start)
    outside = [tensor for tensor in in_order if tensor.start + tensor.nbytes > size]
    if outside:
        end = max(tensor.start + tensor.nbytes for tensor in outside)
        raise ZooError(
            f"{path}: truncated: the tensors end at byte {end}, the file has {size}; {len(outside)} of {len(tensors)} "
            f"lie outside it, the first is {outside[0].name}; fetch the file again"
        )
    report_all(
        (
            f"{after.name} begins at byte {after.start}, {before.name} ends at {before.start + before.nbytes}"
            for before, after in pairwise(in_order)
            if before.start + before.nbytes > after.start
        ),
        f"{path}: tensors overlap:",
    )
