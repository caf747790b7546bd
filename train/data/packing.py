"""Documents side by side in rows of one length, without one seeing another.

A document of n tokens takes n - 1 places: each holds a token and, as its target, the one that follows. What would join
one document to the next is in no place, and so is never learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zoo.models.errors import ZooError

from .examples import Example

# Rows that are still being filled. More fill better, up to a point, and mix less of the order that was asked for.
LOOKAHEAD = 32


@dataclass(frozen=True)
class Batch:
    """Rows of documents, each array [batch, seq].

    Attributes:
        tokens: int32; 0 where there is nothing.
        targets: int32; the next token of the same document.
        positions: int32, from 0 in each document.
        segment_ids: int32, from 1 in each row; 0 where there is nothing.
        weights: float32; 1 where the target counts in the loss, else 0.
    """

    tokens: np.ndarray
    targets: np.ndarray
    positions: np.ndarray
    segment_ids: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True)
class Plan:
    """Which documents are in which row.

    Attributes:
        documents: int64 [documents], as numbers among those planned, row after row.
        starts: int64 [rows + 1]; where in `documents` each row begins.
    """

    documents: np.ndarray
    starts: np.ndarray

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, row: int) -> np.ndarray:
        if not 0 <= row < len(self):
            raise IndexError(row)
        return self.documents[self.starts[row] : self.starts[row + 1]]


def pack(places: np.ndarray, seq_len: int, *, lookahead: int = LOOKAHEAD) -> Plan:
    """Puts each document into the first of the open rows that has place for it.

    At most `lookahead` rows are open; to open another, the oldest is closed. So the order of the rows is nearly that of
    the documents, and the work grows with the documents alone.

    Args:
        places: how many places each document takes, int [documents], each at least 1.

    Raises:
        ZooError: a document is longer than a row.
    """
    _check_places(places, seq_len)
    rows = np.empty(len(places), np.int64)
    opened: dict[int, int] = {}
    count = 0
    for document, need in enumerate(places.tolist()):
        row = next((row for row, left in opened.items() if left >= need), None)
        if row is None:
            if len(opened) == lookahead:
                del opened[next(iter(opened))]
            row, count = count, count + 1
            opened[row] = seq_len
        rows[document] = row
        opened[row] -= need
        if not opened[row]:
            del opened[row]
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(rows, minlength=count))])
    return Plan(np.argsort(rows, kind="stable"), starts)


def pad(places: np.ndarray, seq_len: int) -> Plan:
    """Puts each document into a row of its own.

    Raises:
        ZooError: a document is longer than a row.
    """
    _check_places(places, seq_len)
    return Plan(np.arange(len(places)), np.arange(len(places) + 1))


def fill(rows: Sequence[Sequence[Example]], seq_len: int) -> Batch:
    """A batch of rows of examples; a row without any is padding."""
    shape = (len(rows), seq_len)
    tokens, targets, positions, segment_ids = (np.zeros(shape, np.int32) for _ in range(4))
    weights = np.zeros(shape, np.float32)
    for row, examples in enumerate(rows):
        start = 0
        for segment, example in enumerate(examples, 1):
            place = (row, slice(start, start + len(example.tokens) - 1))
            tokens[place] = example.tokens[:-1]
            targets[place] = example.tokens[1:]
            positions[place] = np.arange(len(example.tokens) - 1)
            segment_ids[place] = segment
            weights[place] = example.learned[1:]
            start += len(example.tokens) - 1
    return Batch(tokens, targets, positions, segment_ids, weights)


def _check_places(places: np.ndarray, seq_len: int) -> None:
    if len(places) and (places.max() > seq_len or places.min() < 1):
        raise ZooError(
            f"expected documents of 2 to {seq_len + 1} tokens in rows of {seq_len}, "
            f"found {places.min() + 1} to {places.max() + 1}; truncate or drop the longer ones"
        )
