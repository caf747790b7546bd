"""What a conversion reads from: named tensors whose headers are known and whose bytes come one tensor at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import ml_dtypes
import numpy as np

# safetensors' names of element types, and numpy's types for them.
DTYPES: dict[str, np.dtype] = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
    "I16": np.dtype(np.int16),
    "I8": np.dtype(np.int8),
    "U64": np.dtype(np.uint64),
    "U32": np.dtype(np.uint32),
    "U16": np.dtype(np.uint16),
    "U8": np.dtype(np.uint8),
    "BOOL": np.dtype(np.bool_),
}
SAFETENSORS_NAMES = {dtype: name for name, dtype in DTYPES.items()}
FLOATS = ("F64", "F32", "F16", "BF16")
# What `--dtype` calls them.
DTYPE_CHOICES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}


@dataclass(frozen=True)
class TensorHeader:
    """A tensor as its file's header announces it. `dtype` is safetensors' name, `shape` in elements."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


class TensorSource(Protocol):
    """Named tensors in the Hugging Face layout."""

    @property
    def headers(self) -> Mapping[str, TensorHeader]: ...

    def read(self, name: str) -> np.ndarray:
        """The whole tensor, in memory of its own."""
        ...

    def where(self, name: str) -> str:
        """How an error names the place of a tensor."""
        ...
