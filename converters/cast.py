"""Changing the element type of weights, the only change a conversion makes to a number, and only when asked."""

from __future__ import annotations

import numpy as np

from zoo.models.errors import ZooError

from .source import DTYPE_CHOICES, DTYPES, FLOATS

KEEP = "keep"


def check_dtype(dtype: str, *, keep: bool = True) -> str:
    """`dtype` as given, if it is one that `--dtype` knows."""
    known = [KEEP, *DTYPE_CHOICES] if keep else list(DTYPE_CHOICES)
    if dtype not in known:
        raise ZooError(f"unknown dtype {dtype!r}; expected one of {', '.join(known)}")
    return dtype


def stored_dtype(source_dtype: str, dtype: str) -> str:
    """safetensors' name of the type a tensor is written in: numbers other than floats keep theirs."""
    return source_dtype if dtype == KEEP or source_dtype not in FLOATS else DTYPE_CHOICES[dtype]


def cast(array: np.ndarray, to: str, name: str) -> np.ndarray:
    """`array` in safetensors' type `to`, rounded to nearest even; the array itself where it has it already.

    Raises:
        ZooError: a finite number is beyond the range of `to`.
    """
    target = DTYPES[to]
    if array.dtype == target:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        result = array.astype(target)
        if to == "F16" and np.isinf(result).sum() != np.isinf(array).sum():
            raise ZooError(f"tensor {name} holds numbers beyond the range of float16; convert to bfloat16 or float32")
    return result
