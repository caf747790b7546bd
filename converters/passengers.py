"""Tensors that a family names and no parameter needs: carried along as they are."""

from __future__ import annotations

from zoo.models.errors import ZooError
from zoo.models.manifest import is_file_name

from .layout import Binding, Row

# They are stored beside the parameters under this prefix and their own name.
PASSENGER = "passengers."


def passenger_binding(name: str, shape: tuple[int, ...]) -> Binding:
    """A tensor that is carried along as it is.

    Raises:
        ZooError: its name could not be that of a folder.
    """
    if not is_file_name(name) or "/" in name:
        raise ZooError(f"tensor {name!a}: expected a name in UTF-8 without a slash")
    axes = tuple(f"axis{number}" for number in range(len(shape)))
    text = " ".join(axes)
    row = Row(name, PASSENGER + name, f"{text} -> {text}")
    sizes = dict(zip(axes, shape, strict=True))
    return Binding(row, (name,), (PASSENGER + name,), shape, (shape,), (sizes,))
