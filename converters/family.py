"""Model families: one file each in `families/`, found by being there.

A family's file has a docstring saying what is unusual about it and these names:

    ARCHITECTURES   the `architectures` entries of a config.json that it serves
    config          function of a parsed config.json, returning the ModelConfig
    ROWS            its layout table
    PASSENGERS      templates of tensors carried along untouched (buffers that the forward pass computes itself)
    TIED            (head, embedding): source names that are one tensor where the configuration ties them, or None
    TINY            a small config.json, for tests

The family's name is its file's name and the source's own `model_type`.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from zoo.models.config import ModelConfig
from zoo.models.errors import ZooError

from . import families as families_package
from .layout import Row


@dataclass(frozen=True)
class Family:
    """What a family's file says; see the module's docstring."""

    model_type: str
    summary: str
    architectures: tuple[str, ...]
    config: Callable[[Mapping[str, Any]], ModelConfig]
    rows: Sequence[Row]
    passengers: Sequence[str]
    tied: tuple[str, str] | None
    tiny: Mapping[str, Any]


@cache
def families() -> tuple[Family, ...]:
    """Every family, sorted by name."""
    found: list[Family] = []
    for module_info in pkgutil.iter_modules(families_package.__path__):
        module = importlib.import_module(f"{families_package.__name__}.{module_info.name}")
        found.append(
            Family(
                model_type=module_info.name,
                summary=(module.__doc__ or "").strip().split("\n")[0],
                architectures=tuple(module.ARCHITECTURES),
                config=module.config,
                rows=tuple(module.ROWS),
                passengers=tuple(module.PASSENGERS),
                tied=module.TIED,
                tiny=module.TINY,
            )
        )
    return tuple(sorted(found, key=lambda family: family.model_type))


def family_of(config: Mapping[str, Any], where: str) -> Family:
    """The family of a parsed config.json, by its `model_type` and `architectures`; never by a name or a size.

    Args:
        config: the parsed config.json.
        where: how an error names the file.

    Raises:
        ZooError: there is no such family, or the two fields contradict each other.
    """
    known = {family.model_type: family for family in families()}
    model_type = config.get("model_type")
    architectures = config.get("architectures") or []
    if not isinstance(model_type, str) or model_type not in known:
        raise ZooError(f"{where}: unknown model_type {model_type!r}; {_known(str(model_type), list(known))}")
    family = known[model_type]
    unknown = [name for name in architectures if name not in family.architectures]
    if unknown:
        raise ZooError(
            f"{where}: unknown architecture {', '.join(map(repr, unknown))} for model_type {model_type!r}; "
            + _known(str(unknown[0]), list(family.architectures))
        )
    return family


def _known(name: str, known: list[str]) -> str:
    nearest = difflib.get_close_matches(name.lower(), [entry.lower() for entry in known], n=1, cutoff=0.4)
    hint = next((entry for entry in known if nearest and entry.lower() == nearest[0]), None)
    return f"known: {', '.join(known)}" + (f"; the nearest is {hint!r}" if hint else "")
