"""What a row is: which fields it has says how it becomes a text to learn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zoo.models.errors import ZooError


@dataclass(frozen=True)
class Shape:
    """A kind of row.

    Attributes:
        fields: those a row must have.
        optional: those it may have; others than these are ignored.
        learned: what is learned of it, for people.
    """

    name: str
    fields: tuple[str, ...]
    optional: tuple[str, ...]
    learned: str

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(self.fields)})"


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("chat", ("messages",), ("tools",), "the assistant's turns, each with its end"),
        Shape("conversations", ("conversations",), ("system", "tools"), "the assistant's turns, each with its end"),
        Shape("completion", ("prompt", "completion"), ("tools",), "the completion and the end of text"),
        Shape("instruction", ("instruction", "output"), ("input", "system"), "the output and its end"),
        Shape("text", ("text",), (), "every token and the end of text"),
        Shape("preference", ("chosen", "rejected"), ("prompt", "tools"), "to prefer the chosen answer"),
    )
}


def recognise(row: Mapping[str, Any]) -> Shape:
    """The shape of a row, by its fields; a field that is null counts as absent.

    Raises:
        ZooError: it fits none, or more than one.
    """
    if not row:
        raise ZooError(f"the row is empty; {_known()}")
    present = {name for name, value in row.items() if value is not None}
    found = [shape for shape in SHAPES.values() if present.issuperset(shape.fields)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ZooError(f"unknown shape of row: found the fields {', '.join(sorted(present)) or 'none'}; {_known()}")
    names = " and ".join(shape.name for shape in found)
    raise ZooError(
        f"the row can be read as {names}, having the fields {', '.join(sorted(present))}; "
        f"say which is meant: shape: {found[0].name}"
    )


def named_shape(name: str) -> Shape:
    """
    Raises:
        ZooError: there is no such shape.
    """
    if name not in SHAPES:
        raise ZooError(f"shape: expected one of {', '.join(SHAPES)}, found {name!r}")
    return SHAPES[name]


def check_shape(row: Mapping[str, Any], shape: Shape) -> None:
    """
    Raises:
        ZooError: the row lacks a field of the shape.
    """
    missing = [name for name in shape.fields if row.get(name) is None]
    if missing:
        raise ZooError(
            f"expected {shape}, found the fields {', '.join(sorted(row)) or 'none'}: {', '.join(missing)} is missing"
        )


def renamed(row: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    """A row with fields under our names: `columns` says the file's name of each of ours.

    Raises:
        ZooError: the row lacks a field that `columns` names.
    """
    missing = [theirs for theirs in columns.values() if theirs not in row]
    if missing:
        raise ZooError(f"columns: {', '.join(missing)}: no such field; found {', '.join(sorted(row)) or 'none'}")
    taken = set(columns.values())
    rest = {name: value for name, value in row.items() if name not in taken and name not in columns}
    return rest | {ours: row[theirs] for ours, theirs in columns.items()}


def _known() -> str:
    return "known are: " + "; ".join(map(str, SHAPES.values()))
