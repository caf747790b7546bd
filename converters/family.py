"""Model families: one file each in `families/`, found by being there.

A family's file has a docstring saying what is unusual about it and these names:

    ARCHITECTURES   the `architectures` entries of a config.json that it serves
    config          function of a parsed config.json, returning the ModelConfig
    ROWS            its layout table
    OTHER_ROWS      optional: tables of other ways in which its tensors are named and divided; their names choose
    PASSENGERS      templates of tensors carried along untouched (buffers that the forward pass computes itself, parts
                    that take no part in language); one that ends in `*` fits every name that begins so, and the
                    index `{after}` fits layers after the network's last, such as those that predict further tokens
    GGUF            optional: a `GgufColumn`, where GGUF files of the architecture are read
    TINY            a small config.json, for tests
    VARIANTS        changes to it by name, for tests: between them every field has two values; `...` takes a field out

The family's name is its file's name and the source's own `model_type`.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from zoo.models.config import ModelConfig
from zoo.models.errors import ZooError

from . import families as families_package
from .gguf_column import GgufColumn
from .layout import Row, match


@dataclass(frozen=True)
class Family:
    """What a family's file says; see the module's docstring."""

    model_type: str
    summary: str
    architectures: tuple[str, ...]
    config: Callable[[Mapping[str, Any]], ModelConfig]
    tables: tuple[tuple[Row, ...], ...]
    passengers: Sequence[str]
    gguf: GgufColumn | None
    tiny: Mapping[str, Any]
    variants: Mapping[str, Mapping[str, Any]]

    def rows(self, names: Iterable[str]) -> tuple[Row, ...]:
        """The table that most of these source tensors' names fit."""
        if len(self.tables) == 1:
            return self.tables[0]
        # Names that differ in their indices alone fit the same rows.
        kinds = {re.sub(r"(?<=\.)[0-9]+(?=\.)", "0", name) for name in names}
        fits = [
            sum(any(match(row.source, kind) is not None for row in table) for kind in kinds) for table in self.tables
        ]
        return self.tables[fits.index(max(fits))]

    def is_passenger(self, name: str, layers: int) -> bool:
        """Whether a source tensor is one that is carried along untouched, in a network of so many layers."""
        return any(_fits(template, name, layers) for template in self.passengers)


def _fits(template: str, name: str, layers: int) -> bool:
    if not template.endswith("*"):
        return match(template, name) is not None
    before, marker, _ = template.partition("{after}")
    if not marker:
        return name.startswith(template[:-1])
    index = name.removeprefix(before).split(".")[0]
    return name.startswith(before) and index.isdecimal() and int(index) >= layers


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
                tables=tuple(tuple(table) for table in (module.ROWS, *getattr(module, "OTHER_ROWS", ()))),
                passengers=tuple(module.PASSENGERS),
                gguf=getattr(module, "GGUF", None),
                tiny=module.TINY,
                variants=module.VARIANTS,
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
    if not isinstance(architectures, list) or not all(isinstance(name, str) for name in architectures):
        raise ZooError(f"{where}: architectures: expected a list of names, found {architectures!r}")
    if model_type is None:
        raise ZooError(f"{where}: expected a model_type, found none; {_known('', list(known))}")
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
    nearest = difflib.get_close_matches(name.lower(), [entry.lower() for entry in known], n=1, cutoff=0.6)
    hint = next((entry for entry in known if nearest and entry.lower() == nearest[0]), None)
    return f"known: {', '.join(known)}" + (f"; the nearest is {hint!r}" if hint else "")
