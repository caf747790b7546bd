"""The laws of a conversion, checked from headers alone before a byte of weights is read.

Every native parameter is bound by exactly one row; every source tensor is used, or named by the family as a passenger;
shapes and axes agree; a claim made twice is an error. All mistakes are reported together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zoo.models.config import ModelConfig
from zoo.models.errors import ZooError, report_all
from zoo.models.parameters import abstract_parameters

from .digest import array_digest
from .family import Family
from .layout import Binding, Row, bind
from .passengers import PASSENGER, passenger_binding
from .source import DTYPES, FLOATS, TensorSource

# The parameters that a tied head makes one.
HEAD, EMBEDDING = "head.kernel", "embed.embedding"


@dataclass(frozen=True)
class Plan:
    """What a conversion will do, known before it starts.

    `bindings` cover every parameter and every passenger. `redundant_head` names a tensor that is, byte for byte, the
    tensor it maps to: it has no parameter of its own and is written back on export.
    """

    family: Family
    config: ModelConfig
    bindings: tuple[Binding, ...]
    redundant_head: Mapping[str, str]

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(native for b in self.bindings for native in b.natives if not native.startswith(PASSENGER))


def plan_conversion(
    family: Family, hf_config: Mapping[str, Any], source: TensorSource, *, compare_tied: bool = True
) -> Plan:
    """Checks a source against its configuration and its family's table.

    Args:
        compare_tied: read both copies where a tied head is present too, to see whether they are equal; if not set, they
            are taken as equal, which only a plan that reads no weights may do.

    Raises:
        ZooError: listing every disagreement, with names and shapes.
    """
    config = family.config(hf_config)
    if len(config.layers) > len(source.headers):
        # Said at once: a network of so many layers would take long to lay out.
        raise ZooError(
            f"the configuration has {len(config.layers)} layers, the checkpoint {len(source.headers)} tensors"
        )
    rows = family.rows(source.headers)
    config, redundant = _tied_head(rows, config, source, compare_tied)
    bindings, problems = bind(rows, abstract_parameters(config))
    report_all(problems, f"the layout table of {family.model_type} does not fit the model:")
    count, bound = len(config.layers), {name for binding in bindings for name in binding.sources}
    passengers = [
        passenger_binding(name, header.shape)
        for name, header in source.headers.items()
        if name not in bound and family.is_passenger(name, count)
    ]
    bindings += passengers
    _check_source(family, config, bindings, redundant, source)
    return Plan(family, config, tuple(bindings), redundant)


def _check_source(
    family: Family, config: ModelConfig, bindings: list[Binding], redundant: Mapping[str, str], source: TensorSource
) -> None:
    expected = {name: binding.source_shape for binding in bindings for name in binding.sources}
    problems: list[str] = []
    for name, shape in expected.items():
        header = source.headers.get(name)
        if header is None:
            problems.append(f"missing tensor {name}, expected with shape {list(shape)}" + _untied_hint(bindings, name))
        elif header.shape != shape:
            problems.append(
                f"{source.where(name)}: tensor {name} has shape {list(header.shape)}, "
                f"the configuration asks for {list(shape)}"
            )
        elif (
            header.dtype not in FLOATS and header.dtype in DTYPES and not family.is_passenger(name, len(config.layers))
        ):
            problems.append(
                f"{source.where(name)}: tensor {name} holds {header.dtype}, expected one of {', '.join(FLOATS)}"
            )
    for name, header in source.headers.items():
        if name not in expected and name not in redundant:
            problems.append(
                f"{source.where(name)}: unknown tensor {name} {list(header.shape)}: "
                f"no row of {family.model_type} uses it"
            )
    report_all(problems, f"the tensors do not fit the configuration ({len(problems)} disagreements):")


def _untied_hint(bindings: list[Binding], name: str) -> str:
    natives = {source: binding.natives[0] for binding in bindings for source in binding.sources}
    if natives[name] != HEAD:
        return ""
    embedding = next(source for source, native in natives.items() if native == EMBEDDING)
    return f" (config.json says tie_word_embeddings is false; if the head is {embedding}, it must say true)"


def _tied_head(
    rows: Sequence[Row], config: ModelConfig, source: TensorSource, compare: bool
) -> tuple[ModelConfig, dict[str, str]]:
    """A tied head that is present too: equal bytes tie, different bytes are two parameters."""
    names = {row.natives[0]: row.source for row in rows}
    head, embedding = names.get(HEAD), names[EMBEDDING]
    if not config.tied_head or head is None or head not in source.headers:
        return config, {}
    same_header = source.headers.get(embedding) == source.headers[head]
    if same_header and (not compare or array_digest(source.read(head)) == array_digest(source.read(embedding))):
        return config, {head: embedding}
    return config.model_copy(update={"tied_head": False}), {}
