"""Prints, at the end, how many planted faults were caught."""

from __future__ import annotations

from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    scores = [
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, value in report.user_properties
        if name == "planted fault"
    ]
    if scores:
        caught, named = (sum(column) for column in zip(*scores, strict=True))
        terminalreporter.write_line(f"planted faults: {caught} of {len(scores)} caught, {named} named where they are")
