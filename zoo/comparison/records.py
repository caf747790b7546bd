"""What was measured, as the records of a report."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from zoo.models.json_file import read_json
from zoo.models.parameters import abstract_parameters
from zoo.models.tokenizer import Tokenizer

from .. import __version__
from .culprit import find_culprit
from .greedy import Continued
from .lockstep import Comparison
from .probe import Document, Probe
from .report import (
    BlockRecord,
    Check,
    CulpritRecord,
    DocumentRecord,
    Greedy,
    HistogramRecord,
    PositionRecord,
    Report,
    Statistics,
    TensorRecord,
    TokenRecord,
    ValueRecord,
    WorstRecord,
)
from .side import Side
from .sides import Ours
from .statistics import Scores
from .tolerance import Tolerance

# Decimal exponents of the divergences that the histogram counts.
KL_EXPONENTS = range(-14, 2)
# How many bins the positions of documents are put into.
POSITION_BINS = 64


def make_report(
    ours: Ours,
    tokenizer: Tokenizer | None,
    reference: Side,
    probe: Probe,
    comparison: Comparison,
    checks: list[Check],
    continued: list[Continued],
    notes: list[str],
    tolerance: Tolerance,
    described_dtype: str,
) -> Report:
    scores = comparison.joined("padding after")
    passed = all(check.passed for check in checks)
    return Report(
        zoo_version=__version__,
        model=ours.name,
        family=_family(ours),
        reference=reference.description,
        dtype=described_dtype,
        parameters=sum(math.prod(p.shape) for p in abstract_parameters(ours.source.config).values()),
        blocks=len(ours.source.config.layers),
        vocab=ours.native.vocab,
        passed=passed,
        checks=tuple(checks),
        tolerance=tolerance,
        documents=tuple(
            DocumentRecord(name=d.name, tokens=len(d.ids), first_position=d.start) for d in probe.documents
        ),
        not_covered=(*probe.not_covered, *notes),
        statistics={name: statistics_of(comparison.joined(name)) for name in comparison.scores},
        block_records=tuple(_block_records(comparison)),
        position_records=tuple(_position_records(comparison, probe)),
        kl_histogram=_histogram(scores.kl),
        worst=tuple(_worst(comparison, probe, tokenizer)),
        greedy=tuple(_greedy(continued, comparison, probe, tokenizer)),
        culprit=None if passed else _culprit(ours, reference, comparison, checks),
    )


def shortfalls(continued: list[Continued], comparison: Comparison, probe: Probe) -> Iterator[np.ndarray]:
    """For each continuation how far the logits of its tokens are below the reference's largest."""
    scores = comparison.scores["padding after"]
    numbers = {document.name: number for number, document in enumerate(probe.documents)}
    for one in continued:
        yield scores[numbers[f"{one.name}, continued"]].shortfall[-one.made - 1 : -1]


def _greedy(
    continued: list[Continued], comparison: Comparison, probe: Probe, tokenizer: Tokenizer | None
) -> Iterator[Greedy]:
    for one, shortfall in zip(continued, shortfalls(continued, comparison, probe), strict=True):
        text = None if tokenizer is None else tokenizer.decode(one.ids[-one.made :])
        yield Greedy(prompt=one.name, tokens=one.made, agreed=int(np.sum(shortfall <= 0)), text=text)


def _family(ours: Ours) -> str | None:
    if ours.store is not None:
        return ours.store.manifest.family
    config = ours.source.tokenizer_folder / "config.json"
    return str(read_json(config).get("model_type")) if config.is_file() else None


def statistics_of(scores: Scores) -> Statistics:
    largest = float(scores.largest.max())
    rms = float(np.sqrt(scores.squares.mean()))
    return Statistics(
        positions=len(scores.kl),
        largest=largest,
        largest_relative=largest / max(float(scores.reference_largest.max()), 1e-30),
        rms=rms,
        rms_relative=rms / max(float(np.sqrt(scores.reference_squares.mean())), 1e-30),
        kl_mean=float(scores.kl.mean()),
        kl_largest=float(scores.kl.max()),
        top_1=float(scores.top_1.mean()),
        top_5=float(scores.top_5.mean()),
        perplexity=_perplexity(scores.loss),
        reference_perplexity=_perplexity(scores.reference_loss),
    )


def _perplexity(losses: np.ndarray) -> float:
    mean = float(np.nanmean(losses))
    return math.exp(mean) if mean < 700 else math.inf


def _block_records(comparison: Comparison) -> Iterator[BlockRecord]:
    for name, stage in comparison.stages.items():
        values = tuple(
            ValueRecord(name=value, rms=a.difference.rms, largest=a.difference.largest, allowed=a.allowed)
            for value, a in stage.alone.items()
        )
        yield BlockRecord(name=name, used_rms=math.inf if stage.used is None else stage.used.rms, values=values)


def _position_records(comparison: Comparison, probe: Probe) -> Iterator[PositionRecord]:
    parts = comparison.scores["padding after"]
    scale = max(float(part.reference_largest.max()) for part in parts.values())
    longest = max(len(document.ids) for document in probe.documents)
    width = -(-longest // POSITION_BINS)
    for first in range(0, longest, width):
        some = slice(first, first + width)
        inside = [part for part in parts.values() if len(part.kl) > first]
        yield PositionRecord(
            first=first,
            largest_relative=max(float(part.largest[some].max()) for part in inside) / max(scale, 1e-30),
            kl_largest=max(float(part.kl[some].max()) for part in inside),
        )


def _histogram(kl: np.ndarray) -> HistogramRecord:
    edges = [10.0**exponent for exponent in KL_EXPONENTS]
    bins = np.searchsorted(edges, kl, side="right")
    counts = np.bincount(bins, minlength=len(edges) + 1)
    return HistogramRecord(edges=tuple(edges), counts=tuple(counts.tolist()))


def _worst(comparison: Comparison, probe: Probe, tokenizer: Tokenizer | None) -> Iterator[WorstRecord]:
    def text(ids: list[int]) -> str | None:
        return None if tokenizer is None else tokenizer.decode(ids)

    def record(pair: tuple[int, float]) -> TokenRecord:
        return TokenRecord(id=pair[0], text=text([pair[0]]), probability=pair[1])

    for position in comparison.worst:
        document: Document = probe.documents[position.document]
        yield WorstRecord(
            document=document.name,
            position=document.start + position.index,
            before=text(list(document.ids[max(0, position.index - 11) : position.index + 1])),
            kl=position.kl,
            ours=tuple(map(record, position.ours)),
            reference=tuple(map(record, position.reference)),
        )


def _culprit(ours: Ours, reference: Side, comparison: Comparison, checks: list[Check]) -> CulpritRecord | None:
    head_differs = any(not check.passed and check.name.startswith("logits, padding after") for check in checks)
    paths = list(abstract_parameters(ours.source.config))
    found = find_culprit(comparison, ours.source.config, paths, head_differs)
    if found is None:
        return None
    tensors = tuple(_tensors(ours, reference, found.paths))
    unequal = [tensor.native for tensor in tensors if tensor.equal is False]
    if endless := [path for path in found.paths if not np.isfinite(_parameter(ours, path)).all()]:
        advice = f"NaN or infinity in: {', '.join(endless[:4])}"
    elif unequal:
        advice = f"other numbers than the reference's: {', '.join(unequal[:4])}"
    elif tensors and all(tensor.equal for tensor in tensors):
        advice = "its tensors are the reference's: look at the configuration and at the arithmetic, not at the weights"
    elif tensors:
        advice = "look at these tensors and at how they are used"
    else:
        advice = "no tensor makes it: look at the configuration and at the arithmetic"
    return CulpritRecord(
        stage=found.stage,
        value=found.value,
        what=found.what,
        rms=found.rms,
        blocks_that_differ=found.others + 1,
        tensors=tensors,
        advice=advice,
    )


def _tensors(ours: Ours, reference: Side, paths: tuple[str, ...]) -> Iterator[TensorRecord]:
    """The parameters behind a value, with the rows that bind them, and whether the reference's are the same."""
    for path in paths:
        source, row = reference.named(path)
        theirs = reference.parameter(path)
        equal = None if theirs is None else np.array_equal(_parameter(ours, path), theirs, equal_nan=True)
        yield TensorRecord(native=path, source=source, row=row, equal=equal)


def _parameter(ours: Ours, path: str) -> np.ndarray:
    return np.asarray(ours.source.load(None, None, [path])[path], np.float32)
