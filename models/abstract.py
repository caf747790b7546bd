"""What is known of a parameter before there is a value. Importing this loads no array library."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AbstractParameter:
    """A parameter's dimensions, and what they are called."""

    shape: tuple[int, ...]
    axes: tuple[str, ...]
