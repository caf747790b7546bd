"""What a conversion tells its caller: progress while it runs, and what it did."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


class Progress(Protocol):
    """Told how far a long piece of work is."""

    def start(self, total_bytes: int, what: str) -> None: ...

    def advance(self, nbytes: int) -> None: ...

    def finish(self) -> None: ...


class Silent:
    """Progress that nobody watches."""

    def start(self, total_bytes: int, what: str) -> None:
        pass

    def advance(self, nbytes: int) -> None:
        pass

    def finish(self) -> None:
        pass


@dataclass
class Report:
    """The outcome of a conversion. `facts` are what `--json` shows, in the order a person reads them."""

    source: str
    destination: str
    facts: Mapping[str, Any]
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "destination": self.destination,
            **self.facts,
            "notes": self.notes,
            "seconds": round(self.seconds, 3),
        }

    def lines(self) -> list[str]:
        facts = ", ".join(f"{key.replace('_', ' ')} {_shown(key, value)}" for key, value in self.facts.items())
        return [f"{self.source} -> {self.destination}", f"{facts}, in {self.seconds:.1f} s", *self.notes]


def _shown(key: str, value: Any) -> str:
    return size_text(value) if key.endswith("bytes") else str(value)


def size_text(nbytes: int) -> str:
    """A number of bytes for people, in decimal units."""
    value = float(nbytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.2f} {unit}"
        value /= 1000
    return f"{value:.2f} TB"


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start
