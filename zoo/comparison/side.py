"""What either side of a comparison is: something that goes through a network block by block while someone watches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float32]]
Integers = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True)
class Tokens:
    """A batch, each array [rows, seq]; a segment id of 0 is padding."""

    ids: Integers
    positions: Integers
    segment_ids: Integers


@dataclass(frozen=True)
class Stage:
    """A step of the way through a network, with what went in and came out, [rows, seq, embed].

    Attributes:
        layer: the block's number; None for the embedding.
        values: the named values inside the block, each [rows, seq, features]; see `zoo.models.names`.
    """

    layer: int | None
    inputs: Floats | None
    outputs: Floats
    values: Mapping[str, Floats]

    @property
    def name(self) -> str:
        return "embedding" if self.layer is None else f"layers.{self.layer}"


class Side(Protocol):
    """One implementation with its weights."""

    @property
    def description(self) -> str:
        """What it is, for the report."""
        ...

    @property
    def vocab(self) -> int:
        """The number of logits."""
        ...

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        ...

    @property
    def embed(self) -> int:
        """The elements of an activation."""
        ...

    def run(self, tokens: Tokens, watch: Callable[[Stage], None]) -> Floats:
        """Goes through the embedding and all blocks, calling `watch` after each; returns what the head is given."""
        ...

    def logits(self, hidden: Floats) -> Floats:
        """The logits of what `run` returned, or of a part of it: [rows, seq, embed] to [rows, seq, vocab]."""
        ...

    def named(self, path: str) -> tuple[str | None, str | None]:
        """What its checkpoint calls a parameter of ours, and the pattern of the row that binds it."""
        ...

    def parameter(self, path: str) -> Floats | None:
        """The parameter of this native path in its checkpoint; None where there is none."""
        ...

    def close(self) -> None:
        """Frees what it holds; it may run again."""
        ...
