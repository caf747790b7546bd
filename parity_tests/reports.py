"""Writes the parity reports that CI publishes, for a tiny random model of each family and for the real one.

    python -m parity_tests.reports FOLDER

FOLDER gets a report for each, `index.html`, and `index.json`. The table goes to stdout, and the exit code is 1 if a
model is flagged: all of them are correct.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

import zoo
from zoo.catalog import resolve
from zoo.comparison.page import STYLE
from zoo.comparison.report import Report
from zoo.comparison.report_folder import write_report
from zoo.converters.family import families
from zoo.converters.gguf_to_hf import gguf_to_hf
from zoo.converters.hf_to_orbax import hf_to_orbax

from .reference import write_checkpoint

REAL = "smollm2-135m-instruct"
# Past the windows and original lengths of the tiny models.
LONGEST = 256
COLUMNS = ("model", "result", "logits", "RMS", "KL", "top-1", "block alone", "seconds", "documents")


def main(folder: Path) -> int:
    """Makes all reports; returns the exit code."""
    reports: dict[str, tuple[Report, float]] = {}
    for name, report, seconds in _reports():
        write_report(report, folder / name)
        reports[name] = report, seconds
        print(f"{name}: {'passed' if report.passed else 'FAILED'}, {seconds:.1f} s", file=sys.stderr, flush=True)
    rows = [_row(name, report, seconds) for name, (report, seconds) in reports.items()]
    (folder / "index.html").write_text(_page(rows), encoding="utf-8")
    index = {name: {"passed": report.passed} for name, (report, _) in reports.items()}
    (folder / "index.json").write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    print("\n".join(_table([list(COLUMNS), *rows])))
    flagged = [name for name, (report, _) in reports.items() if not report.passed]
    print(f"{len(reports)} models, {len(flagged)} flagged{': ' + ', '.join(flagged) if flagged else ''}")
    return int(bool(flagged))


def _reports() -> Iterator[tuple[str, Report, float]]:
    for family in families():
        with TemporaryDirectory(prefix="zoo-reports-") as made:
            source = Path(made) / family.model_type
            write_checkpoint(source, family.tiny)
            start = time.monotonic()
            yield family.model_type, zoo.parity(source, longest=LONGEST), time.monotonic() - start
    with TemporaryDirectory(prefix="zoo-reports-") as made:
        source, store = Path(made) / "hf", Path(made) / REAL
        gguf_to_hf(resolve(REAL), source)
        hf_to_orbax(source, store)
        start = time.monotonic()
        yield REAL, zoo.parity(store), time.monotonic() - start


def _row(name: str, report: Report, seconds: float) -> list[str]:
    every = report.statistics.values()
    alone = max(value.rms for block in report.block_records for value in block.values)
    return [
        name,
        "passed" if report.passed else "FAILED",
        f"{max(some.largest_relative for some in every):.1e}",
        f"{max(some.rms_relative for some in every):.1e}",
        f"{max(some.kl_largest for some in every):.1e}",
        f"{min(some.top_1 for some in every):.1%}",
        f"{alone:.1e}",
        f"{seconds:.1f}",
        str(len(report.documents)),
    ]


def _table(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _page(rows: list[list[str]]) -> str:
    body = "".join(
        f'<tr><td><a href="{escape(row[0])}/report.html">{escape(row[0])}</a></td>'
        f'<td class="{"good" if row[1] == "passed" else "bad"}">{row[1]}</td>'
        + "".join(f'<td class="number">{escape(cell)}</td>' for cell in row[2:])
        + "</tr>"
        for row in rows
    )
    head = "".join(f"<th>{escape(name)}</th>" for name in COLUMNS)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Parity of every family</title><style>{STYLE}</style></head><body><h1>Parity of every family</h1>"
        f'<p class="soft">zoo {zoo.__version__}: tiny random models of each family, and {REAL}, against transformers. '
        "The largest difference of a logit, as a part of the largest; the root mean square, likewise; the largest "
        "divergence, in nats; the worst value in a block given the reference's activations.</p>"
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        "</body></html>\n"
    )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m parity_tests.reports FOLDER")
    sys.exit(main(Path(sys.argv[1])))
