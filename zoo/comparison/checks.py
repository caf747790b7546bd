"""The conditions that a model has to meet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from zoo.models.tokenizer import Tokenizer, eos_of_files

from .greedy import Continued
from .lockstep import Comparison
from .probe import TEXTS, Probe
from .records import shortfalls, statistics_of
from .report import Check
from .sides import Ours, tokenizer_of
from .tolerance import Tolerance


def logit_checks(comparison: Comparison, tolerance: Tolerance, probe: Probe, has_experts: bool) -> Iterator[Check]:
    """Of all positions; those left out that ties of experts may have decided, in a mixture in low precision."""
    ties = tolerance.ties if has_experts else 0.0
    for arrangement in comparison.scores:
        scores = comparison.joined(arrangement)
        for side, bad in (("ours", scores.not_finite), ("the reference's", scores.reference_not_finite)):
            if bad.any():
                where = _where(comparison, probe, arrangement, int(np.argmax(bad)))
                yield Check(
                    name=f"logits are numbers, {arrangement}",
                    passed=False,
                    found=None,
                    allowed=None,
                    detail=f"{side}: {int(bad.sum())} positions have NaN or infinity, the first {where}",
                )
        some = statistics_of(scores.without_worst(ties))
        worst = _where(comparison, probe, arrangement, int(np.argmax(scores.largest)))
        left_out = f"without the worst {ties:.0%} of positions, for ties of experts"
        for name, found, allowed, detail in (
            ("largest", some.largest_relative, tolerance.logits_largest, worst if not ties else left_out),
            ("RMS", some.rms_relative, tolerance.logits_rms, ""),
            ("KL", some.kl_largest, tolerance.kl_largest, ""),
        ):
            yield Check(
                name=f"logits, {arrangement}: {name}",
                passed=found <= allowed,
                found=found,
                allowed=allowed,
                detail=detail,
            )


def _where(comparison: Comparison, probe: Probe, arrangement: Any, index: int) -> str:
    for number, scores in comparison.scores[arrangement].items():
        if index < len(scores.kl):
            return f"in {probe.documents[number].name!r} at position {probe.documents[number].start + index}"
        index -= len(scores.kl)
    raise AssertionError("an index into all scores is in one of them")


def block_check(comparison: Comparison) -> Check:
    name, value, alone = max(
        ((stage, value, alone) for stage, result in comparison.stages.items() for value, alone in result.alone.items()),
        key=lambda found: found[2].excess,
    )
    return Check(
        name="every block alone: RMS",
        passed=alone.excess <= 1,
        found=alone.difference.rms,
        allowed=alone.allowed,
        detail=f"in {name}: {value}",
    )


def greedy_checks(
    continued: list[Continued], comparison: Comparison, probe: Probe, tolerance: Tolerance
) -> Iterator[Check]:
    """Whether every token that decoding chose is the reference's likeliest, or as likely within the tolerance."""
    if not continued:
        return
    scores = comparison.scores["padding after"]
    # What the logits' root mean square may differ by, at four deviations, both ways.
    squares = np.concatenate([part.reference_squares for part in scores.values()])
    room = 8 * tolerance.logits_rms * float(np.sqrt(squares.mean()))
    shortfall = np.concatenate(list(shortfalls(continued, comparison, probe)))
    yield Check(
        name="greedy decoding: below the reference's largest logit",
        passed=bool(shortfall.max() <= room),
        found=float(shortfall.max()),
        allowed=room,
        detail=f"{int(np.sum(shortfall <= 0))} of {len(shortfall)} tokens are the reference's likeliest",
    )


def text_checks(ours: Ours, tokenizer: Tokenizer | None, folder: Path) -> Iterator[Check]:
    """Whether both sides make the same ids of texts, and end at the same ones."""
    theirs = tokenizer_of(folder)
    if tokenizer is not None and theirs is not None:
        different = [name for name, text in TEXTS.items() if tokenizer.encode(text) != theirs.encode(text)]
        detail = f"{len(TEXTS)} texts have the same ids" if not different else f"other ids for {', '.join(different)}"
        yield Check(name="tokenizer", passed=not different, found=None, allowed=None, detail=detail)
    elif (tokenizer is None) != (theirs is None):
        side = "the reference" if theirs is None else "our side"
        yield Check(name="tokenizer", passed=False, found=None, allowed=None, detail=f"{side} has none")
    left, right = (
        sorted(eos_of_files(where) if one is None else one.eos)
        for where, one in ((ours.source.tokenizer_folder, tokenizer), (folder, theirs))
    )
    detail = ", ".join(map(str, left)) or "none"
    if left != right:
        detail = f"ours {left}, the reference's {right}"
    yield Check(name="end tokens", passed=left == right, found=None, allowed=None, detail=detail)
