"""Sizes as people write them."""

from __future__ import annotations

import re

from zoo.models.errors import ZooError

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def parse_size(text: str, what: str) -> int:
    """Bytes meant by `5GB`, `200MiB` or `1000`.

    Raises:
        ZooError: it is no size.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if found is None or found.group(2).upper() not in UNITS:
        raise ZooError(f"{what}: expected a size such as 5GB, 200MiB or 1000, found {text!r}")
    if len(text) > 30:
        raise ZooError(f"{what}: expected a size such as 5GB, found one of {len(text)} characters")
    return int(float(found.group(1)) * UNITS[found.group(2).upper()])


def count(number: int) -> str:
    """A large number in three digits or so: 135M, 8.03B, 671B."""
    for unit, name in ((10**9, "B"), (10**6, "M")):
        # What rounds to the unit is one.
        if number >= 0.9995 * unit:
            return f"{number / unit:#.3g}".rstrip(".") + name
    return str(number)
