"""What holds for every family, from its file alone; a new one is tested by being there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax import numpy as jnp
from transformers import AutoConfig

from zoo.converters import families as package
from zoo.converters.family import Family, families
from zoo.converters.layout import bind
from zoo.converters.plan import plan_conversion
from zoo.converters.source import TensorHeader
from zoo.models.errors import ZooError
from zoo.models.fuse import fuse
from zoo.models.parameters import abstract_parameters, merge

FAMILIES = [pytest.param(family, id=family.model_type) for family in families()]


def changed(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**config, **changes}.items() if value is not ...}


class Headers:
    """A source of which only headers exist."""

    def __init__(self, family: Family, table: int = 0):
        bindings, problems = bind(family.tables[table], abstract_parameters(family.config(family.tiny)))
        assert problems == []
        self.headers = {n: TensorHeader("F32", b.source_shape) for b in bindings for n in b.sources}

    def read(self, name: str) -> np.ndarray:
        raise AssertionError("a plan reads no tensor")

    def where(self, name: str) -> str:
        return "file"


@pytest.mark.parametrize("family", FAMILIES)
def test_the_file_says_what_the_registry_needs(family: Family) -> None:
    assert family.summary.endswith((".", ":", ";")) or family.summary
    assert family.tiny["model_type"] == family.model_type
    assert set(family.tiny["architectures"]) <= set(family.architectures)
    assert family.variants, "a family whose every field has one value only proves little"


@pytest.mark.parametrize("family", FAMILIES)
def test_an_absent_field_has_the_value_that_transformers_gives_it(family: Family) -> None:
    theirs = AutoConfig.for_model(family.model_type).to_dict()
    bare = {"model_type": family.model_type, "architectures": list(family.architectures[:1])}
    for name in ("head_dim", "num_experts_per_tok"):
        if theirs.get(name) is None and name in family.tiny:
            # Files name it: there is no default, or not every family's default sizes leave whole heads.
            bare[name] = family.tiny[name]
    default = family.config(bare)
    for name in set(family.tiny) | {field for fields in family.variants.values() for field in fields}:
        # What turns positions is told in many spellings, and tested with them.
        if name in bare or name not in theirs or theirs[name] is None or name.startswith("rope"):
            continue
        assert family.config({**bare, name: theirs[name]}) == default, name


@pytest.mark.parametrize("family", FAMILIES)
def test_a_file_as_transformers_writes_it_means_the_same(family: Family) -> None:
    """With every field there is, under the names that it prefers."""
    for changes in ({}, *family.variants.values()):
        fields = changed(family.tiny, changes)
        # A copy, since transformers changes the objects inside.
        written = json.loads(AutoConfig.for_model(**json.loads(json.dumps(fields))).to_json_string())
        assert family.config({"architectures": fields["architectures"], **written}) == family.config(fields)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_an_engine_fuses_is_what_its_model_has(family: Family) -> None:
    for changes in ({}, *family.variants.values()):
        config = family.config(changed(family.tiny, changes))
        parameters = {path: jnp.zeros(p.shape) for path, p in abstract_parameters(config).items()}
        merge(config, fuse(parameters), fused=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tensor_more_less_or_of_another_shape_is_named(family: Family) -> None:
    for table in range(len(family.tables)):
        source = Headers(family, table)
        plan_conversion(family, family.tiny, source, compare_tied=False)
        name = sorted(source.headers)[len(source.headers) // 2]
        header = source.headers.pop(name)
        with pytest.raises(ZooError, match="missing tensor"):
            plan_conversion(family, family.tiny, source, compare_tied=False)
        source.headers[name] = TensorHeader("F32", (*header.shape, 1))
        with pytest.raises(ZooError, match="has shape"):
            plan_conversion(family, family.tiny, source, compare_tied=False)
        source.headers |= {name: header, "surplus.weight": header}
        with pytest.raises(ZooError, match=r"unknown tensor surplus\.weight"):
            plan_conversion(family, family.tiny, source, compare_tied=False)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_row_removed_or_doubled_breaks_a_law(family: Family) -> None:
    parameters = abstract_parameters(family.config(family.tiny))
    for table in family.tables:
        bound = [row for row in table if bind([row], parameters)[0]]
        for row in bound:
            others = tuple(other for other in table if other is not row)
            assert any("no row binds" in problem for problem in bind(others, parameters)[1])
            assert any("is claimed by 2 rows" in problem for problem in bind((*table, row), parameters)[1])
            turned = replace(row, pattern=tuple(_turned(text) for text in row.patterns))
            if len(row.natives) == 1 and turned.patterns != row.patterns:
                turned = replace(turned, pattern=turned.patterns[0])
                assert any("are not those" in problem for problem in bind((*others, turned), parameters)[1])


def _turned(pattern: str) -> str:
    """The same pattern with the last axis of the parameter first."""
    left, right = pattern.split("->")
    axes = right.split()
    return f"{left}-> {' '.join([*axes[-1:], *axes[:-1]])}".rstrip() if "(" not in right else pattern


@pytest.mark.parametrize("family", FAMILIES)
def test_an_unknown_field_and_an_unknown_activation_are_refused(family: Family) -> None:
    with pytest.raises(ZooError, match="surprise: unknown field"):
        family.config({**family.tiny, "surprise": 1})
    # Where a repository holds more than a language model, that is an object in the file.
    place = "text_config" if "text_config" in family.tiny else None
    text = family.tiny if place is None else family.tiny[place]
    name = next(key for key in text if key.startswith(("hidden_act", "activation")))
    for field, value in {"surprise": 1, name: "sine"}.items():
        wrong = {**text, field: value}
        with pytest.raises(ZooError, match=rf"{f'{place}.' if place else ''}{field}: "):
            family.config(wrong if place is None else {**family.tiny, place: wrong})


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        ("cohere", {"model_max_length": 131072, "pretraining_tp": 1}),
        ("cohere2", {"_sliding_window_pattern": 2, "cache_implementation": "hybrid", "layer_switch": 2}),
        ("falcon", {"apply_residual_connection_post_layernorm": False, "auto_map": {"AutoConfig": "its.Own"}}),
        ("gemma2", {"sliding_window_size": 9, "cache_implementation": "hybrid"}),
        ("gemma3_text", {"_sliding_window_pattern": 2, "cache_implementation": "hybrid"}),
        ("gpt_neox", {"attention_probs_dropout_prob": 0, "hidden_dropout_prob": 0}),
        ("nemotron", {"kv_channels": 128}),
        ("phi3", {"attention_bias": False, "auto_map": {"AutoConfig": "its.Own"}, "rope_scaling": None}),
    ],
)
def test_what_published_files_say_beside_the_arithmetic_changes_nothing(family: str, fields: dict[str, Any]) -> None:
    found = next(other for other in families() if other.model_type == family)
    assert found.config({**found.tiny, **fields}) == found.config(found.tiny)


@pytest.mark.parametrize(("family", "name"), [("cohere2", "layer_switch"), ("gemma3_text", "_sliding_window_pattern")])
def test_names_of_a_pattern_that_disagree_are_refused_unless_layers_are_listed(family: str, name: str) -> None:
    found = next(other for other in families() if other.model_type == family)
    with pytest.raises(ZooError, match=f"{name}: only 2 is supported, found 3"):
        found.config({**found.tiny, name: 3})
    listed = {**found.tiny, "layer_types": ["full_attention"] * found.tiny["num_hidden_layers"]}
    assert found.config({**listed, name: 3}) == found.config(listed)


def test_two_names_of_a_field_that_disagree_are_refused() -> None:
    family = next(family for family in families() if family.model_type == "qwen3_moe")
    experts = family.tiny["num_experts"]
    with pytest.raises(ZooError, match=f"num_experts is {experts} but num_local_experts is 7: remove the wrong one"):
        family.config({**family.tiny, "num_local_experts": 7})
    assert family.config({**family.tiny, "num_local_experts": experts}) == family.config(family.tiny)


def test_falcon_with_alibi_is_refused() -> None:
    falcon = next(family for family in families() if family.model_type == "falcon")
    with pytest.raises(ZooError, match="alibi: only False is supported"):
        falcon.config({**falcon.tiny, "alibi": True})


def test_a_family_is_one_short_file() -> None:
    for path in Path(package.__path__[0]).glob("[a-z]*.py"):
        assert len(path.read_text().splitlines()) <= 120, f"{path.name}: move what others share into blocks"


def test_layers_after_the_last_are_passengers_and_others_are_not() -> None:
    family = next(family for family in families() if family.model_type == "glm4_moe")
    assert family.is_passenger("model.layers.2.eh_proj.weight", 2)
    assert family.is_passenger("model.layers.10.mlp.gate.weight", 2)
    assert not family.is_passenger("model.layers.1.eh_proj.weight", 2)
    assert not family.is_passenger("model.layers.x.eh_proj.weight", 2)
