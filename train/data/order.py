"""In which order rows are read: a function of the seed and the epoch and of nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def permutation(count: int, *key: int) -> np.ndarray:
    """The numbers below `count`, int64 [count], in an order that only `key` decides.

    Sorts the bare output of a bit generator. NumPy promises that this never changes, while `Generator.permutation` may
    with each release, and a run would then continue with other rows.
    """
    raw = np.random.PCG64(np.random.SeedSequence(key)).random_raw(count)
    return np.argsort(raw, kind="stable")


def draws(sizes: Sequence[int], weights: Sequence[float] | None) -> list[int]:
    """How many rows an epoch takes of each source.

    Without weights each row once. With weights, as few as have these proportions and take from each source at least as
    many rows as it has: one that is small for its weight is read several times over.
    """
    if weights is None:
        return list(sizes)
    scale = max(size / weight for size, weight in zip(sizes, weights, strict=True))
    return [max(size, round(scale * weight)) for size, weight in zip(sizes, weights, strict=True)]


def epoch_order(
    sources: Sequence[np.ndarray], weights: Sequence[float] | None, *, seed: int, epoch: int, shuffle: bool
) -> np.ndarray:
    """The rows of an epoch, int64 [draws].

    Args:
        sources: the rows that each source has, int64 [rows].

    A source that is read several times over is in another order each time, and the next epoch goes on where this one
    ended; so at any time each of its rows was read as often as any other, or once more.
    """
    counts = draws([len(rows) for rows in sources], weights)
    taken = [
        _take(rows, count, number, seed, epoch, shuffle)
        for number, (rows, count) in enumerate(zip(sources, counts, strict=True))
    ]
    if weights is None and not shuffle:
        return np.concatenate(taken)
    if weights is None:
        everything = np.concatenate(taken)
        # No source has this number, so its order is not that of a source.
        return everything[permutation(len(everything), seed, len(sources), epoch)]
    # Evenly, so that each batch has about the same of each.
    due = np.concatenate([(np.arange(count) + 0.5) / count for count in counts])
    return np.concatenate(taken)[np.argsort(due, kind="stable")]


def _take(rows: np.ndarray, count: int, source: int, seed: int, epoch: int, shuffle: bool) -> np.ndarray:
    """Draws `epoch * count` to `(epoch + 1) * count` of an endless stream of passes over the rows."""
    first, stop = epoch * count, (epoch + 1) * count
    passes = range(first // len(rows), -(-stop // len(rows)))
    stream = [rows[permutation(len(rows), seed, source, number)] if shuffle else rows for number in passes]
    begin = first - passes.start * len(rows)
    return np.concatenate(stream)[begin : begin + count]
