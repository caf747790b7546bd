"""Errors that are written for people: what was expected, what was found, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterable

# Problems that one error lists.
MOST_LINES = 100


class ZooError(Exception):
    """Bad input or usage: the command line prints it as `error: ...` and exits with 2."""

    exit_code = 2


class CheckFailed(ZooError):
    """A check ran and did not hold (a digest differs, logits over tolerance): exits with 1."""

    exit_code = 1


def report_all(problems: Iterable[str], heading: str, error: type[ZooError] = ZooError) -> None:
    """Raises one `error` that lists every problem under `heading`; does nothing when there is none."""
    found = list(problems)
    if found:
        lines = "\n".join(f"  - {problem}" for problem in found[:MOST_LINES])
        if len(found) > MOST_LINES:
            lines += f"\n  and {len(found) - MOST_LINES} more"
        raise error(f"{heading}\n{lines}")
