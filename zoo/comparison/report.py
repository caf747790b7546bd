"""The result of a comparison: the schema of `report.json`, and its short form `report.md`.

`docs/parity.md` says what the fields are; a field that changes its meaning changes `SCHEMA_VERSION`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel, ConfigDict

from .tolerance import Tolerance

SCHEMA_VERSION = 1


class _Part(BaseModel):
    # JSON has no infinity; the standard library's extension of it is read by few.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Check(_Part):
    """One condition: what was measured, the most that it may be, and where the worst was."""

    name: str
    passed: bool
    found: float | None
    allowed: float | None
    detail: str


class DocumentRecord(_Part):
    """A document of the probe."""

    name: str
    tokens: int
    first_position: int


class Statistics(_Part):
    """Of the logits of all documents; `relative` is a part of the reference's largest, or of its root mean square."""

    positions: int
    largest: float
    largest_relative: float
    rms: float
    rms_relative: float
    kl_mean: float
    kl_largest: float
    top_1: float
    top_5: float
    perplexity: float
    reference_perplexity: float


class ValueRecord(_Part):
    """A value inside a block that was given the reference's activations."""

    name: str
    rms: float
    largest: float
    allowed: float


class BlockRecord(_Part):
    """A block; `used_rms` is of its output on our own activations."""

    name: str
    used_rms: float
    values: tuple[ValueRecord, ...]


class PositionRecord(_Part):
    """The worst over all documents among positions from `first` on, counted within documents."""

    first: int
    largest_relative: float
    kl_largest: float


class TokenRecord(_Part):
    """A token that may follow, and its probability."""

    id: int
    text: str | None
    probability: float


class WorstRecord(_Part):
    """A position of large divergence: the text before it, and what both would continue with."""

    document: str
    position: int
    before: str | None
    kl: float
    ours: tuple[TokenRecord, ...]
    reference: tuple[TokenRecord, ...]


class HistogramRecord(_Part):
    """Counts of positions by the decimal logarithm of their divergence; the first bin has all below."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]


class TensorRecord(_Part):
    """A tensor behind the value that differs, and whether its bytes are the reference's; null where nobody knows."""

    native: str
    source: str | None
    row: str | None
    equal: bool | None


class CulpritRecord(_Part):
    """The first value that differs though what it is made of agrees."""

    stage: str
    value: str
    what: str
    rms: float
    blocks_that_differ: int
    tensors: tuple[TensorRecord, ...]
    advice: str


class Greedy(_Part):
    """A greedy continuation through the decode path; `agreed` of its tokens are the reference's likeliest."""

    prompt: str
    tokens: int
    agreed: int
    text: str | None


class Report(_Part):
    """What `zoo parity` found."""

    schema_version: Literal[1] = 1
    zoo_version: str
    model: str
    family: str | None
    reference: str
    dtype: str
    parameters: int
    blocks: int
    vocab: int
    passed: bool
    checks: tuple[Check, ...]
    tolerance: Tolerance
    documents: tuple[DocumentRecord, ...]
    not_covered: tuple[str, ...]
    statistics: dict[str, Statistics]
    block_records: tuple[BlockRecord, ...]
    position_records: tuple[PositionRecord, ...]
    kl_histogram: HistogramRecord
    worst: tuple[WorstRecord, ...]
    greedy: tuple[Greedy, ...]
    culprit: CulpritRecord | None

    def as_json(self) -> dict[str, object]:
        return self.model_dump(mode="json")

    def lines(self) -> list[str]:
        """For a terminal."""
        return list(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{'PASSED' if self.passed else 'FAILED'}  {self.model}  ({self.dtype})"
        yield f"against {self.reference}"
        yield ""
        width = max(len(check.name) for check in self.checks)
        for check in self.checks:
            numbers = "" if check.found is None else f"{check.found:.2e}"
            allowed = "" if check.allowed is None else f"of {check.allowed:.1e} allowed"
            mark = "ok  " if check.passed else "FAIL"
            yield f"{mark}  {check.name:<{width}}  {numbers:>8} {allowed:<20} {check.detail}".rstrip()
        yield ""
        yield from self._summary()
        for line in self.not_covered:
            yield f"not covered: {line}"
        if self.culprit is not None:
            yield ""
            yield from self._culprit_lines()

    def _summary(self) -> Iterator[str]:
        some = self.statistics["padding after"]
        yield (
            f"{some.positions} positions: top-1 {some.top_1:.2%}, top-5 {some.top_5:.2%}, "
            f"KL mean {some.kl_mean:.1e} largest {some.kl_largest:.1e}, "
            f"perplexity {some.perplexity:.6g} (reference {some.reference_perplexity:.6g})"
        )

    def _culprit_lines(self) -> Iterator[str]:
        culprit = self.culprit
        assert culprit is not None
        yield f"the first that differs: {culprit.stage}: {culprit.what} ({culprit.value}, by {culprit.rms:.1e})"
        for tensor in culprit.tensors:
            same = {True: "equal to the reference's", False: "NOT EQUAL to the reference's", None: ""}[tensor.equal]
            yield f"  {tensor.native}  <-  {tensor.source or '?'}  {same}".rstrip()
        yield f"  {culprit.advice}"

    def markdown(self) -> str:
        """Short enough for a comment on a pull request."""
        some = self.statistics["padding after"]
        lines = [
            f"### {'✅' if self.passed else '❌'} parity of `{self.model}` ({self.dtype})",
            f"against {self.reference}",
            "",
            "| check | found | allowed | |",
            "|---|---|---|---|",
            *(
                f"| {'✅' if c.passed else '❌'} {c.name} | {_number(c.found)} | {_number(c.allowed)} | {c.detail} |"
                for c in self.checks
            ),
            "",
            f"{some.positions} positions in {len(self.documents)} documents, {self.blocks} blocks; "
            f"top-1 {some.top_1:.2%}, top-5 {some.top_5:.2%}, KL mean {some.kl_mean:.1e}, "
            f"perplexity {some.perplexity:.6g} / {some.reference_perplexity:.6g}.",
            *(f"Not covered: {line}." for line in self.not_covered),
        ]
        if self.culprit is not None:
            lines += ["", *(line.strip() + "  " for line in self._culprit_lines())]
        return "\n".join(lines) + "\n"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"
