"""What both sides are given: documents derived from the network, and how ours lie in a batch.

The reference reads each document alone. We read it three times: alone with padding behind it, with padding before it,
and packed behind others in one row; all three must agree with the reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from zoo.models.config import Attention as AttentionConfig
from zoo.models.config import DynamicRope, Llama3Rope, LongRope, ModelConfig, Rope, YarnRope
from zoo.models.rope import depends_on_length

from .side import Integers, Tokens

Arrangement = Literal["padding after", "padding before", "packed"]
ARRANGEMENTS: tuple[Arrangement, ...] = ("padding after", "padding before", "packed")
# Texts of several scripts, with code, numbers and characters that tokenizers divide.
TEXTS = {
    "prose": "The lighthouse keeper wrote down the time, 04:17, and the height of the tide: three metres and a half.",
    "code": "def mean(values: list[float]) -> float:\n    return sum(values) / len(values)  # fails if empty\n",
    "scripts": "Grüße aus Zürich — 東京は雨です。 Привет, как дела? مرحبا 🙂👩‍🚀 naïve façade £9.99",
}
# Documents up to this long share a batch.
SHORT = 128
# How far past a window or an original length a document reaches.
MARGIN = 17
# Padding that the longest row of a batch has.
ROOM = 6


@dataclass(frozen=True)
class Document:
    """One sequence. Its first token stands at position `start`."""

    name: str
    ids: tuple[int, ...]
    start: int = 0

    @property
    def end(self) -> int:
        """One more than its last position."""
        return self.start + len(self.ids)


@dataclass(frozen=True)
class Placement:
    """Where a document lies in a batch of ours."""

    arrangement: Arrangement
    document: int
    row: int
    column: int


@dataclass(frozen=True)
class Group:
    """Documents that are read together; `documents` are their numbers in the probe."""

    documents: tuple[int, ...]
    alone: Tokens
    arranged: Tokens
    placements: tuple[Placement, ...]


@dataclass(frozen=True)
class Probe:
    """All documents, and in `not_covered` what a longer one would have reached."""

    documents: tuple[Document, ...]
    groups: tuple[Group, ...]
    not_covered: tuple[str, ...]


def make_probe(
    config: ModelConfig,
    texts: Iterable[tuple[str, Sequence[int]]],
    *,
    special: frozenset[int] = frozenset(),
    longest: int = 1024,
) -> Probe:
    """The probe of a network.

    Args:
        texts: names and ids of documents beside those of random ids.
        special: ids that stand for something other than text, which random documents leave out.
        longest: the most tokens of a random document.
    """
    draw = np.random.default_rng(0)
    allowed = np.setdiff1d(np.arange(config.vocab), np.fromiter(special, int, len(special)))

    def random(count: int) -> tuple[int, ...]:
        return tuple(draw.choice(allowed, count).tolist())

    limit = min(longest, config.learned_positions or longest)
    reaches = _reaches(config)
    goal = max([0, *(size for _, size in reaches)]) + MARGIN
    documents = [Document("short", random(5)), Document("random", random(min(48, limit)))]
    documents.append(Document("long", random(min(limit, max(96, goal)))))
    unreached = [(what, size) for what, size in reaches if size >= limit]
    # Positions far from the start cost nothing: a short document may stand there.
    far = sorted({size for what, size in unreached if what != "window"} or {config.max_positions - MARGIN})
    documents += [
        Document(f"far, at {size}", random(2 * MARGIN), size - MARGIN)
        for size in far
        if config.learned_positions is None and size > limit
    ]
    documents += [Document(name, tuple(ids)) for name, ids in texts if len(ids) > 1]
    not_covered = [f"{what} {size}: the longest document has {limit} tokens" for what, size in unreached]
    read = {token for document in documents for token in document.ids}
    if len(read) < config.vocab:
        not_covered.append(f"{config.vocab - len(read):,} of {config.vocab:,} tokens: in no document")
    return Probe(tuple(documents), tuple(_groups(config, documents)), tuple(not_covered))


def _reaches(config: ModelConfig) -> list[tuple[str, int]]:
    """The lengths past which the network computes otherwise."""
    windows = {
        layer.attn.window
        for layer in config.layers
        if isinstance(layer.attn, AttentionConfig) and layer.attn.window is not None
    }
    originals = {length for rope in config.ropes if (length := _original(rope)) is not None}
    return [("window", size) for size in sorted(windows)] + [("original length", size) for size in sorted(originals)]


def _original(rope: Rope) -> int | None:
    if isinstance(rope, DynamicRope):
        return rope.max_positions
    return rope.original_max_positions if isinstance(rope, YarnRope | Llama3Rope | LongRope) else None


def _groups(config: ModelConfig, documents: Sequence[Document]) -> Iterator[Group]:
    """Short documents together, long ones alone; each alone where the rotation depends on the length of the whole."""
    alone = any(map(depends_on_length, config.ropes))
    together = [i for i, one in enumerate(documents) if len(one.ids) <= SHORT and not one.start and not alone]
    others = [i for i in range(len(documents)) if i not in together]
    for numbers in ([together] if together else []) + [[number] for number in others]:
        some = [documents[number] for number in numbers]
        placements, arranged = _arrange(some)
        placed = tuple(Placement(p.arrangement, numbers[p.document], p.row, p.column) for p in placements)
        yield Group(tuple(numbers), _alone(some), arranged, placed)


def _alone(documents: Sequence[Document]) -> Tokens:
    """One document a row, from the left."""
    longest = max(len(document.ids) for document in documents)
    ids, positions, segments = (np.zeros((len(documents), longest), np.int32) for _ in range(3))
    for row, document in enumerate(documents):
        _put(document, ids, positions, segments, row, 0, 1)
        positions[row, len(document.ids) :] = document.end - 1
    return Tokens(ids, positions, segments)


def _arrange(documents: Sequence[Document]) -> tuple[list[Placement], Tokens]:
    """Every document in every arrangement."""
    width = max(len(document.ids) for document in documents) + ROOM
    placements: list[Placement] = []
    for number, document in enumerate(documents):
        placements.append(Placement("padding after", number, number, 0))
        placements.append(Placement("padding before", number, len(documents) + number, width - len(document.ids)))
    row, column = 2 * len(documents), ROOM - 1
    for number, document in enumerate(documents):
        if column + len(document.ids) > width:
            row, column = row + 1, ROOM - 1
        placements.append(Placement("packed", number, row, column))
        column += len(document.ids)
    ids, positions, segments = (np.zeros((row + 1, width), np.int32) for _ in range(3))
    for segment, place in enumerate(placements, 2):
        _put(documents[place.document], ids, positions, segments, place.row, place.column, segment)
    for packed in range(2 * len(documents), row + 1):
        # Another document before them, so that none begins where the row does.
        _put(Document("", documents[0].ids[: ROOM - 1]), ids, positions, segments, packed, 0, 1)
    return placements, Tokens(ids, positions, segments)


def _put(
    document: Document, ids: Integers, positions: Integers, segments: Integers, row: int, column: int, segment: int
) -> None:
    where = slice(column, column + len(document.ids))
    ids[row, where], segments[row, where] = document.ids, segment
    positions[row, where] = np.arange(document.start, document.end)
