"""What is measured of two sets of logits, and of two values inside a network."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from .side import Floats

TOP = 5


@dataclass(frozen=True)
class Difference:
    """Of two arrays: root mean square and largest difference, as parts of the reference's root mean square and largest.

    Infinite where one of them has what is no finite number.
    """

    rms: float
    largest: float

    @classmethod
    def of(cls, ours: Floats, reference: Floats, real: np.ndarray) -> Difference:
        """Of arrays [rows, seq, features], at the `real` tokens [rows, seq]."""
        if ours.shape != reference.shape:
            return cls(float("inf"), float("inf"))
        left, right = ours[real], reference[real]
        difference = left - right
        if not np.isfinite(difference).all():
            return cls(float("inf"), float("inf"))
        return cls(
            float(_rms(difference) / max(_rms(right), 1e-30)),
            float(np.abs(difference).max(initial=0) / max(np.abs(right).max(initial=0), 1e-30)),
        )

    def worse(self, other: Difference | None) -> Difference:
        """The larger of both."""
        return self if other is None else Difference(max(self.rms, other.rms), max(self.largest, other.largest))


def _rms(values: np.ndarray) -> np.floating[Any]:
    return np.sqrt(np.mean(np.square(values, dtype=np.float64)))


@dataclass(frozen=True)
class Scores:
    """For each position of some logits, float64 [positions]. Logarithms are natural.

    Where a logit is no finite number nothing agrees: differences, divergence and losses are infinite.

    Attributes:
        largest: the largest difference.
        squares: the mean square of the differences.
        reference_largest, reference_squares: the same of the reference's logits themselves.
        kl: the Kullback-Leibler divergence of our distribution from the reference's.
        top_1: whether the likeliest tokens are the same.
        top_5: the part of the five likeliest that both have.
        loss, reference_loss: minus the log-likelihood of the token that follows; NaN where none does.
        shortfall: how far the logit of that token is below the reference's largest.
        not_finite, reference_not_finite: whether some logit is no finite number.
    """

    largest: np.ndarray
    squares: np.ndarray
    reference_largest: np.ndarray
    reference_squares: np.ndarray
    kl: np.ndarray
    top_1: np.ndarray
    top_5: np.ndarray
    loss: np.ndarray
    reference_loss: np.ndarray
    shortfall: np.ndarray
    not_finite: np.ndarray
    reference_not_finite: np.ndarray

    @classmethod
    def of(cls, ours: Floats, reference: Floats, following: np.ndarray) -> Scores:
        """Of logits [positions, vocab]; `following` are the next tokens' ids, -1 for none."""
        bad, reference_bad = (~np.isfinite(logits).all(axis=-1) for logits in (ours, reference))
        wrong = bad | reference_bad
        left, right = (np.nan_to_num(logits.astype(np.float64)) for logits in (ours, reference))
        difference = left - right
        log_ours, log_reference = _log_softmax(left), _log_softmax(right)
        best, reference_best = _top(left), _top(right)
        rows = np.arange(len(ours))
        nothing = np.where(following < 0, np.nan, 0.0)
        token = np.maximum(following, 0)
        return cls(
            largest=np.where(wrong, np.inf, np.abs(difference).max(axis=-1)),
            squares=np.where(wrong, np.inf, np.mean(difference**2, axis=-1)),
            reference_largest=np.abs(right).max(axis=-1),
            reference_squares=np.mean(right**2, axis=-1),
            # Rounding may make it negative by as much as is lost.
            kl=np.where(wrong, np.inf, np.maximum(np.sum(np.exp(log_reference) * (log_reference - log_ours), -1), 0)),
            top_1=np.where(wrong, 0.0, best[:, 0] == reference_best[:, 0]),
            top_5=np.where(wrong, 0.0, np.mean((best[:, :, None] == reference_best[:, None, :]).any(axis=2), axis=1)),
            loss=nothing + np.where(bad, np.inf, -log_ours[rows, token]),
            reference_loss=nothing + np.where(reference_bad, np.inf, -log_reference[rows, token]),
            shortfall=nothing + np.where(reference_bad, np.inf, right.max(axis=-1) - right[rows, token]),
            not_finite=bad.astype(float),
            reference_not_finite=reference_bad.astype(float),
        )

    def without_worst(self, part: float) -> Scores:
        """Without the positions of the largest divergence, a part of all."""
        kept = np.sort(np.argsort(self.kl, kind="stable")[: len(self.kl) - int(part * len(self.kl))])
        return Scores(*(getattr(self, f.name)[kept] for f in fields(self)))

    @classmethod
    def joined(cls, parts: list[Scores]) -> Scores:
        return cls(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)))


def likeliest(logits: Floats) -> list[tuple[int, float]]:
    """The five likeliest tokens of logits [vocab], with their probabilities."""
    wide = np.nan_to_num(logits.astype(np.float64))[None]
    powers = np.exp(_log_softmax(wide)[0])
    return [(int(token), float(powers[token])) for token in _top(wide)[0]]


def _top(logits: np.ndarray) -> np.ndarray:
    """The ids of the five largest, largest first."""
    count = min(TOP, logits.shape[-1])
    some = np.argpartition(-logits, count - 1, axis=-1)[:, :count]
    order = np.argsort(-np.take_along_axis(logits, some, axis=-1), axis=-1, kind="stable")
    return np.take_along_axis(some, order, axis=-1)


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))
