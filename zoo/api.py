"""Conversion as a function."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from zoo.models.errors import ZooError


def convert(
    source: str | Path,
    destination: str | Path,
    *,
    to: Literal["orbax", "hf"],
    dtype: str | None = None,
    overwrite: bool = False,
) -> Any:
    """Converts a checkpoint.

    Args:
        source: a model directory (to a store), a store or a GGUF file (to a model directory), or a catalog name.
        destination: what to make.
        to: `orbax` makes a store, `hf` a Hugging Face directory.
        dtype: `keep`, `float32`, `bfloat16` or `float16`; by default `keep`, and `bfloat16` from GGUF.

    Returns:
        A report with `facts`, `notes` and `seconds`.

    Raises:
        ZooError: the source is not what it should be, or the destination cannot be made.
    """
    from .catalog import resolve

    path, target = resolve(str(source)), Path(destination)
    if to == "orbax":
        from zoo.converters.hf_to_orbax import hf_to_orbax

        return hf_to_orbax(path, target, dtype=dtype or "keep", overwrite=overwrite)
    if to != "hf":
        raise ZooError(f"unknown target {to!r}; expected 'orbax' or 'hf'")
    if path.is_file():
        from zoo.converters.gguf_to_hf import gguf_to_hf

        return gguf_to_hf(path, target, dtype=dtype or "bfloat16", overwrite=overwrite)
    from zoo.converters.orbax_to_hf import orbax_to_hf

    return orbax_to_hf(path, target, dtype=dtype or "keep", overwrite=overwrite)
