"""`report.html`: one file without scripts that needs no network, for wide screens and phones."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from html import escape

from .report import Report, TokenRecord, WorstRecord

WIDTH, HEIGHT = 640, 220
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 18, 34
# Cells that are not to be divided.
NUMBER = re.compile(r"[\d.,%e+-]+( of \d+)?")
# What is 0 is drawn here.
SMALLEST = 1e-16

STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --soft: #63676e; --line: #d8dbe0; --paper: #fff; --panel: #f6f7f9;
  --one: #1668c7; --two: #b3541e; --good: #15733c; --bad: #b42318; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #9aa0a8; --line: #3a3f46; --paper: #16181b;
  --panel: #1f2226; --one: #6fb1ff; --two: #f0a06a; --good: #5fce8b; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem; max-width: 60rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.35rem; margin: 0 0 .3rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
.soft { color: var(--soft); } .good { color: var(--good); } .bad { color: var(--bad); } p { margin: .3rem 0; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 500; white-space: nowrap; } p code { overflow-wrap: anywhere; }
td.number, td .token { font-variant-numeric: tabular-nums; white-space: nowrap; }
code { font: .88em ui-monospace, monospace; background: var(--panel); padding: .05em .3em; border-radius: 3px; }
svg { width: 100%; height: auto; display: block; } svg text { font: 11px system-ui, sans-serif; fill: var(--soft); }
.panel { background: var(--panel); border-radius: 6px; padding: .7rem 1rem; } .key { white-space: nowrap; }
.key i { display: inline-block; width: 1.2em; height: .2em; vertical-align: middle; margin: 0 .4em 0 .8em; }
@media (max-width: 36rem) { svg text { font-size: 19px; } svg .between { display: none; } table { font-size: .8rem; }
  th { white-space: normal; } }
"""


def page(report: Report) -> str:
    """The whole page."""
    title = f"{'Passed' if report.passed else 'Failed'}: parity of {report.model}"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
            *_head(report),
            *_culprit(report),
            *_checks(report),
            *_blocks(report),
            *_positions(report),
            *_histogram(report),
            *_statistics(report),
            *_worst(report),
            *_greedy(report),
            *_documents(report),
            "</body></html>",
            "",
        ]
    )


def _head(report: Report) -> Iterator[str]:
    verdict = '<span class="good">passed</span>' if report.passed else '<span class="bad">failed</span>'
    yield f"<h1>Parity of <code>{escape(report.model)}</code>: {verdict}</h1>"
    yield f'<p class="soft">against {escape(report.reference)}</p>'
    facts = [
        report.family or "",
        f"{report.parameters:,} parameters",
        f"{report.blocks} blocks",
        f"{report.vocab:,} tokens",
        report.dtype,
        f"zoo {report.zoo_version}",
    ]
    yield f'<p class="soft">{escape(" · ".join(fact for fact in facts if fact))}</p>'


def _culprit(report: Report) -> Iterator[str]:
    culprit = report.culprit
    if culprit is None:
        return
    yield '<h2>The first that differs</h2><div class="panel">'
    yield f"<p><code>{escape(culprit.stage)}</code>: {escape(culprit.what)}</p>"
    yield f"<p>{escape(culprit.advice)}</p>"
    if culprit.tensors:
        names = {True: "equal", False: "not equal", None: ""}
        yield from _table(
            ["parameter", "tensor of the reference", "row", "bytes"],
            [
                [_code(t.native), _code(t.source), _code(t.row), f"<span>{names[t.equal]}</span>"]
                for t in culprit.tensors
            ],
        )
    yield "</div>"


def _checks(report: Report) -> Iterator[str]:
    yield "<h2>Checks</h2>"
    yield from _table(
        ["", "check", "found", "allowed", ""],
        [
            [
                '<span class="good">✓</span>' if check.passed else '<span class="bad">✗</span>',
                escape(check.name),
                _number(check.found),
                _number(check.allowed),
                escape(check.detail),
            ]
            for check in report.checks
        ],
    )
    for line in report.not_covered:
        yield f'<p class="soft">Not covered: {escape(line)}.</p>'


def _blocks(report: Report) -> Iterator[str]:
    yield "<h2>Difference by block</h2>"
    yield '<p class="soft">Root mean square, as a part of that of the value.'
    yield _key(("--one", "output, on our own activations"), ("--two", "worst value, on the reference's")) + "</p>"
    used = [block.used_rms for block in report.block_records]
    alone = [max((value.rms for value in block.values), default=0.0) for block in report.block_records]
    labels = ["emb" if block.name == "embedding" else block.name.split(".")[-1] for block in report.block_records]
    yield _lines_chart("Difference by block", labels, [("--one", used), ("--two", alone)])


def _positions(report: Report) -> Iterator[str]:
    yield "<h2>Difference by position</h2>"
    yield '<p class="soft">The largest of any document, counted from its first token.'
    yield _key(("--one", "logits, as a part of the largest"), ("--two", "divergence (KL), nats")) + "</p>"
    records = report.position_records
    yield _lines_chart(
        "Difference by position",
        [str(record.first) for record in records],
        [("--one", [r.largest_relative for r in records]), ("--two", [r.kl_largest for r in records])],
    )


def _histogram(report: Report) -> Iterator[str]:
    yield '<h2>Positions by divergence</h2><p class="soft">How many positions have a KL divergence up to so much.</p>'
    histogram = report.kl_histogram
    labels = [f"{edge:.0e}".replace("e-0", "e-").replace("e+00", "") for edge in histogram.edges] + ["more"]
    yield _bars_chart("Positions by divergence", labels, histogram.counts)


def _statistics(report: Report) -> Iterator[str]:
    yield "<h2>Logits</h2>"
    rows = [
        ("positions", lambda s: f"{s.positions:,}"),
        ("largest difference", lambda s: f"{s.largest:.2e}"),
        ("…as a part of the largest logit", lambda s: f"{s.largest_relative:.2e}"),
        ("root mean square", lambda s: f"{s.rms:.2e}"),
        ("…as a part of the logits'", lambda s: f"{s.rms_relative:.2e}"),
        ("KL, mean", lambda s: f"{s.kl_mean:.2e}"),
        ("KL, largest", lambda s: f"{s.kl_largest:.2e}"),
        ("same likeliest token", lambda s: f"{s.top_1:.2%}"),
        ("of the five likeliest in common", lambda s: f"{s.top_5:.2%}"),
        ("perplexity", lambda s: f"{s.perplexity:.6g}"),
        ("…of the reference", lambda s: f"{s.reference_perplexity:.6g}"),
    ]
    yield from _table(
        ["", *report.statistics],
        [[escape(name), *(show(some) for some in report.statistics.values())] for name, show in rows],
    )


def _worst(report: Report) -> Iterator[str]:
    yield "<h2>Where the distributions differ most</h2>"
    yield from _table(
        ["where", "KL", "ours", "reference"],
        [[_place(worst), f"{worst.kl:.1e}", _tokens(worst.ours), _tokens(worst.reference)] for worst in report.worst],
    )


def _place(worst: WorstRecord) -> str:
    text = "" if worst.before is None else f'<br><span class="soft">…{escape(worst.before)}</span>'
    return f"{escape(worst.document)}, {worst.position}{text}"


def _tokens(tokens: Sequence[TokenRecord]) -> str:
    return "<br>".join(
        f'<span class="token">{_code(str(token.id) if token.text is None else repr(token.text))} '
        f"<bdi>{token.probability:.3g}</bdi></span>"
        for token in tokens
    )


def _greedy(report: Report) -> Iterator[str]:
    if not report.greedy:
        return
    yield "<h2>Greedy decoding</h2>"
    yield from _table(
        ["prompt", "the reference's likeliest", "text"],
        [[escape(one.prompt), f"{one.agreed} of {one.tokens}", escape(one.text or "")] for one in report.greedy],
    )


def _documents(report: Report) -> Iterator[str]:
    yield "<h2>Documents</h2>"
    yield from _table(
        ["document", "tokens", "first position"],
        [[escape(d.name), f"{d.tokens:,}", f"{d.first_position:,}"] for d in report.documents],
    )


# ------------------------------------------------------------------------------------------------------- pieces


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Cells are HTML."""
    yield '<div class="scroll"><table><thead><tr>'
    yield "".join(f"<th>{escape(name)}</th>" for name in head) + "</tr></thead><tbody>"
    for row in rows:
        yield "<tr>" + "".join(map(_cell, row)) + "</tr>"
    yield "</tbody></table></div>"


def _cell(content: str) -> str:
    return f'<td class="number">{content}</td>' if NUMBER.fullmatch(content) else f"<td>{content}</td>"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2e}"


def _code(text: str | None) -> str:
    return "" if text is None else f'<code dir="auto">{escape(text)}</code>'


def _key(*entries: tuple[str, str]) -> str:
    return " ".join(
        f'<span class="key"><i style="background:var({colour})"></i>{escape(text)}</span>' for colour, text in entries
    )


def _lines_chart(title: str, labels: Sequence[str], lines: Sequence[tuple[str, Sequence[float]]]) -> str:
    """Lines over a logarithmic axis; what is not finite is drawn at the top."""
    shown = [value for _, values in lines for value in values if 0 < value < math.inf]
    low = math.floor(math.log10(max(min(shown, default=1e-8), SMALLEST)))
    high = max(math.ceil(math.log10(max(shown, default=1.0))), low + 1)
    parts = [_axis_y(low, high)]
    for colour, values in lines:
        points = [(_x(index, len(values)), _y(value, low, high)) for index, value in enumerate(values)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="var({colour})" stroke-width="1.8"/>')
        dots = points if len(points) <= 80 else []
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2" fill="var({colour})"/>' for x, y in dots]
    parts += _axis_x(labels, [_x(index, len(labels)) for index in range(len(labels))])
    return _svg(title, parts)


def _bars_chart(title: str, labels: Sequence[str], counts: Sequence[int]) -> str:
    largest = max(max(counts), 1)
    slot = (WIDTH - LEFT - RIGHT) / len(counts)
    parts: list[str] = []
    for index, number in enumerate(counts):
        height = (HEIGHT - TOP - BOTTOM) * number / largest
        x, y = LEFT + slot * index, HEIGHT - BOTTOM - height
        parts.append(
            f'<rect x="{x + 1:.1f}" y="{y:.1f}" width="{slot - 2:.1f}" height="{height:.1f}" fill="var(--one)"/>'
        )
        if number:
            parts.append(f'<text x="{x + slot / 2:.1f}" y="{y - 2:.1f}" text-anchor="middle">{number}</text>')
    parts += _axis_x(labels, [LEFT + slot * (index + 0.5) for index in range(len(labels))])
    return _svg(title, parts)


def _svg(title: str, parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'


def _x(index: int, count: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (0.5 if count == 1 else index / (count - 1))


def _y(value: float, low: int, high: int) -> float:
    exponent = high if math.isinf(value) or math.isnan(value) else math.log10(max(value, 10.0**low))
    return TOP + (HEIGHT - TOP - BOTTOM) * (high - exponent) / (high - low)


def _axis_y(low: int, high: int) -> str:
    step = max(1, math.ceil((high - low) / 6))
    parts: list[str] = []
    for exponent in range(low, high + 1, step):
        y = _y(10.0**exponent, low, high)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--line)"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">1e{exponent}</text>')
    return "".join(parts)


def _axis_x(labels: Sequence[str], places: Sequence[float]) -> list[str]:
    """On a phone only every third label."""
    step = max(1, math.ceil(len(labels) / 16))
    parts: list[str] = []
    for index in range(0, len(labels), step):
        kind = ' class="between"' if index // step % 3 else ""
        where = f'x="{places[index]:.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle"'
        parts.append(f"<text {where}{kind}>{escape(labels[index])}</text>")
    return parts
