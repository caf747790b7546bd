"""Tensors that a family names and no parameter needs: carried along as they are."""

from __future__ import annotations

from .layout import Binding, Row

# They are stored beside the parameters under this prefix and their own name.
PASSENGER = "passengers."


def passenger_binding(name: str, shape: tuple[int, ...]) -> Binding:
    """A tensor that is carried along as it is."""
    axes = tuple(f"axis{number}" for number in range(len(shape)))
    text = " ".join(axes)
    row = Row(name, PASSENGER + name, f"{text} -> {text}")
    sizes = dict(zip(axes, shape, strict=True))
    return Binding(row, (name,), (PASSENGER + name,), shape, (shape,), (sizes,))
