"""JSON that somebody else wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .errors import ZooError


def parse_json(text: str, where: str, *, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """The value that a text stands for.

    Args:
        where: how an error names the text.
        pairs: makes the value of an object from its members.

    Raises:
        ZooError: it is not JSON, or no program could hold what it says: numbers of thousands of digits, thousands of
            nested lists.
    """
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except (ValueError, RecursionError) as error:
        raise ZooError(f"{where}: not JSON: {error}") from None


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        ZooError: the file is not there, is not JSON, or is another kind of JSON value.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ZooError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise ZooError(f"{path}: not JSON: {error}") from None
    value = parse_json(text, str(path))
    if not isinstance(value, dict):
        raise ZooError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value
