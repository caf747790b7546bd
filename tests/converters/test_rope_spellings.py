"""What turns positions, in every spelling that a config.json has had for it: ours beside transformers' own model.

Each layer's cosines and sines are taken from where that model applies them, so frequencies, their scale and layers that
do not turn are compared at once. We refuse what transformers fails on, and what it overlooks a part of.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from jax import numpy as jnp
from transformers import AutoConfig, AutoModelForCausalLM

from zoo.converters.family import Family, families
from zoo.models.config import ModelConfig, rope_of
from zoo.models.errors import ZooError
from zoo.models.rope import depends_on_length, rotation

Fields = dict[str, Any]
# The cosines and sines of each layer, [seq, pairs]; None where it does not turn.
Turns = list[tuple[np.ndarray, np.ndarray] | None]

# Short of any length that the spellings name, and beyond all.
SHORT, LONG = 5, 80
ROPE_FIELDS = (
    *("rope_theta", "rope_scaling", "rope_parameters", "rope_local_base_freq", "rotary_pct", "rotary_emb_base"),
    *("partial_rotary_factor", "original_max_position_embeddings"),
)
# Families that call fields outside of the rope's object by another name.
OTHER_NAMES = {"gpt_neox": {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"}}
PLAIN: Fields = {"rope_type": "default"}
LINEAR: Fields = {"rope_type": "linear", "factor": 2.5}
# Corrections that are no whole numbers, so that it matters whether they are truncated.
YARN: Fields = {"rope_type": "yarn", "factor": 4.0, "beta_fast": 2.0, "beta_slow": 0.2}
ORIGINAL: Fields = {"original_max_position_embeddings": 16}


def _has_own_ropes(family: Family) -> bool:
    config: Any = AutoConfig.for_model(family.model_type)
    return "full_attention" in (getattr(config.get_text_config(), "rope_parameters", None) or {})


# What may be refused though transformers reads it, by where rope_parameters has an object for each kind of layer, and
# by family: it overlooks a part of most of these, and where all of a head turns we read no other part.
REFUSED_NESTED = re.compile(
    "parameters.*|.*, inside|.*, outside by type|.*untruncated.*|nested and more beside|nested in scaling"
    "|length outside.*|local base, nested differently|1.0 of a head (inside|outside, parameters).*|0.5 of a head.*"
)
REFUSED_FLAT = re.compile("nested|local base|0.5 of a head (outside|inside|outside, parameters)")
REFUSED = {
    # It has no older files, so nothing outside of the rope's object counts.
    **dict.fromkeys(
        ("gemma4", "gemma4_text"),
        re.compile("theta.*|null part of a head|1.0 of a head outside|nested, theta (out|tw).*|local base.*"),
    ),
    "glm4": re.compile("null part of a head"),
    "glm4_moe": re.compile("null part of a head"),
    "qwen3_5": re.compile("null part of a head"),
    "qwen3_5_text": re.compile("null part of a head"),
    "qwen3_next": re.compile("null part of a head"),
    "gpt_neox": re.compile("usual name of (theta|a part)"),
    # Its defaults come in one piece, with a base.
    "ministral3": re.compile("theta.*|null .*|1.0 of a head outside"),
    "olmo3": re.compile("local base.*"),
    # It looks for the original length outside of the rope's object alone.
    "phi3": re.compile("longrope, (in|out)side.*"),
}
# Phi-3's first files, which transformers fails on since its version 5.
LAYERS = ("full layers", "layers with a window", "all layers")
GEMMA4_ALONE = (
    *(f"{kind}, for {which}" for kind in ("yarn without length", "longrope") for which in LAYERS),
    "null rope_scaling",
)
READ_BY_US_ALONE = {
    *(("phi3", "su, no length"), ("phi3", "su, length outside")),
    # It looks for an original length, and for a scaling where there is none; heads have two sizes.
    *((name, what) for name in ("gemma4", "gemma4_text") for what in GEMMA4_ALONE),
}
NESTED = {family.model_type: _has_own_ropes(family) for family in families()}


def scalings(pairs: int) -> dict[str, Fields]:
    return {
        "linear": LINEAR,
        "dynamic": {"rope_type": "dynamic", "factor": 2.0},
        "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **ORIGINAL},
        "yarn": {**YARN, **ORIGINAL},
        "yarn without length": YARN,
        "yarn untruncated": {**YARN, **ORIGINAL, "truncate": False},
        "yarn with mscale": {**YARN, **ORIGINAL, "mscale": 1.2, "mscale_all_dim": 0.8},
        "longrope": {
            **{"rope_type": "longrope", "original_max_position_embeddings": 32},
            "short_factor": [1 + 0.1 * index for index in range(pairs)],
            "long_factor": [2 + 0.2 * index for index in range(pairs)],
        },
    }


def older(scaling: Fields) -> Fields:
    return {"type" if name == "rope_type" else name: value for name, value in scaling.items()}


def nested(full: Any, sliding: Any) -> Fields:
    return {"rope_parameters": {"full_attention": full, "sliding_attention": sliding}}


def flat_spellings(pairs: int) -> Iterator[tuple[str, Fields]]:
    """Of one rotary embedding for all layers, or one for those without a window."""
    theta: Fields = {"rope_theta": 5000.0}
    yield "nothing", {}
    yield "theta", theta
    yield "null theta", {"rope_theta": None}
    for name in ("rope_scaling", "rope_parameters"):
        yield f"null {name}", {name: None}
        yield f"theta, null {name}", {**theta, name: None}
        yield f"theta, empty {name}", {**theta, name: {}}
    for kind, scaling in {"default": PLAIN, **scalings(pairs)}.items():
        yield f"{kind}, outside by type", {**theta, "rope_scaling": older(scaling)}
        yield f"{kind}, outside by rope_type", {**theta, "rope_scaling": scaling}
        yield f"{kind}, inside", {"rope_parameters": {**scaling, **theta}}
    yield "both names of the kind", {**theta, "rope_scaling": {**LINEAR, "type": "linear"}}
    yield "scaling, no theta", {"rope_scaling": LINEAR}
    yield "scaling with theta", {"rope_scaling": {**LINEAR, **theta}}
    yield "parameters, no kind", {"rope_parameters": theta}
    yield "parameters by type", {"rope_parameters": {**older(LINEAR), **theta}}
    yield "parameters, no theta", {"rope_parameters": LINEAR}
    yield "parameters, theta outside", {**theta, "rope_parameters": LINEAR}
    yield "parameters, theta twice", {**theta, "rope_parameters": {**LINEAR, **theta}}
    yield "parameters and scaling", {**theta, "rope_parameters": {**LINEAR, **theta}, "rope_scaling": LINEAR}
    yield "null part of a head", {**theta, "partial_rotary_factor": None}
    for part in (0.5, 1.0):
        partial: Fields = {"partial_rotary_factor": part}
        yield f"{part} of a head outside", {**theta, **partial}
        yield f"{part} of a head outside, parameters", {**partial, "rope_parameters": {**PLAIN, **theta}}
        yield f"{part} of a head outside, scaling", {**theta, **partial, "rope_scaling": LINEAR}
        yield f"{part} of a head inside", {"rope_parameters": {**PLAIN, **theta, **partial}}
        yield f"{part} of a head inside, linear", {"rope_parameters": {**LINEAR, **theta, **partial}}
    yield "length outside", {**theta, **ORIGINAL, "rope_scaling": YARN}
    yield "length outside and inside", {**theta, **ORIGINAL, "rope_scaling": {**YARN, **ORIGINAL}}
    yield "length outside, parameters", {**ORIGINAL, "rope_parameters": {**YARN, **theta}}


def nested_spellings(pairs: int) -> Iterator[tuple[str, Fields]]:
    """Of one for each kind of layer."""
    theta: Fields = {"rope_theta": 5000.0}
    local: Fields = {"rope_theta": 777.0}
    for kind, scaling in {"default": PLAIN, **scalings(pairs)}.items():
        yield f"{kind}, for full layers", nested({**scaling, **theta}, {**PLAIN, **local})
        yield f"{kind}, for layers with a window", nested({**PLAIN, **theta}, {**scaling, **local})
        yield f"{kind}, for all layers", nested({**scaling, **theta}, {**scaling, **local})
    yield "nested by type", nested({**older(LINEAR), **theta}, {**older(PLAIN), **local})
    yield "nested, no kind", nested(theta, local)
    yield "nested, no theta", nested(LINEAR, PLAIN)
    yield "nested, theta of full layers", nested({**LINEAR, **theta}, PLAIN)
    yield "nested, theta of layers with a window", nested(LINEAR, {**PLAIN, **local})
    yield "nested, theta outside", {**theta, **nested(LINEAR, {**PLAIN, **local})}
    yield "nested, theta twice", {**theta, **nested({**LINEAR, **theta}, {**PLAIN, **local})}
    yield "nested for full layers alone", {"rope_parameters": {"full_attention": {**LINEAR, **theta}}}
    yield "nested for layers with a window alone", {"rope_parameters": {"sliding_attention": {**LINEAR, **local}}}
    yield "nested, null for layers with a window", nested({**LINEAR, **theta}, None)
    yield "nested, null for full layers", {**theta, **nested(None, {**LINEAR, **local})}
    both = nested({**LINEAR, **theta}, {**PLAIN, **local})
    yield "nested and more beside", {"rope_parameters": {**both["rope_parameters"], **PLAIN}}
    yield "nested and scaling", {**both, "rope_scaling": LINEAR}
    yield "nested in scaling", {"rope_scaling": both["rope_parameters"]}
    yield "local base", {**theta, "rope_local_base_freq": 777.0}
    yield "local base alone", {"rope_local_base_freq": 777.0}
    yield "local base, scaling", {**theta, "rope_local_base_freq": 777.0, "rope_scaling": LINEAR}
    yield "local base, nested", {"rope_local_base_freq": 777.0, **nested({**LINEAR, **theta}, PLAIN)}
    yield "local base, nested twice", {"rope_local_base_freq": 777.0, **both}
    yield "local base, nested differently", {"rope_local_base_freq": 55.0, **both}
    yield "length outside, nested", {**ORIGINAL, **nested({**YARN, **theta}, {**PLAIN, **local})}


def own_spellings(family: Family, pairs: int) -> Iterator[tuple[str, Fields]]:
    """What other families do not have."""
    if family.model_type == "gpt_neox":
        yield "usual name of theta", {"rope_theta": 5000.0}
        yield "usual name of theta, beside the other", {"rotary_emb_base": 5000, "rope_theta": 5000.0}
        yield "usual name of theta, inside too", {"rope_theta": 5.0, "rope_parameters": {**PLAIN, "rope_theta": 5.0}}
        yield "usual name of a part", {"partial_rotary_factor": 0.5}
        yield "usual name of a part, beside the other", {"rotary_pct": 0.5, "partial_rotary_factor": 0.5}
    if family.model_type == "phi3":
        longrope = scalings(pairs)["longrope"]
        length = {"original_max_position_embeddings": longrope.pop("original_max_position_embeddings")}
        for kind in ("su", "yarn", "longrope"):
            yield f"{kind}, no length", {"rope_scaling": {**older(longrope), "type": kind}}
            yield f"{kind}, length outside", {**length, "rope_scaling": {**older(longrope), "type": kind}}
            yield f"{kind}, length twice", {**length, "rope_parameters": {**longrope, **length, "rope_type": kind}}


def spellings(family: Family, pairs: int) -> Iterator[tuple[str, Fields]]:
    names = OTHER_NAMES.get(family.model_type, {})
    for name, fields in flat_spellings(pairs):
        yield name, {names.get(field, field): value for field, value in fields.items()}
    if NESTED[family.model_type]:
        yield from nested_spellings(pairs)
    else:
        yield "nested", nested({**LINEAR, "rope_theta": 5000.0}, {**PLAIN, "rope_theta": 777.0})
        yield "local base", {"rope_theta": 5000.0, "rope_local_base_freq": 777.0}
    yield from own_spellings(family, pairs)


def ours(config: ModelConfig, length: int) -> Turns:
    positions = jnp.arange(length)[None]
    rotations = {rope: rotation(rope, positions, jnp.full_like(positions, length)) for rope in config.ropes}
    tables = {rope: (np.asarray(found.cos[0]), np.asarray(found.sin[0])) for rope, found in rotations.items()}
    return [None if (rope := rope_of(layer.attn)) is None else tables[rope] for layer in config.layers]


class Theirs:
    """transformers' model of a config.json, which says what its layers turn by."""

    def __init__(self, fields: Fields):
        # It changes the objects inside.
        config = AutoConfig.for_model(**json.loads(json.dumps(fields)))
        self._model: Any = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
        self._module = sys.modules[type(self._model).__module__]
        self._at = -1
        self._found: Turns = []
        layers = next(
            module
            for name, module in self._model.named_modules()
            if isinstance(module, torch.nn.ModuleList) and name.endswith(("layers", "h")) and "vision" not in name
        )
        self._count = len(layers)
        for index, layer in enumerate(layers):
            layer.register_forward_pre_hook(lambda *_, index=index: setattr(self, "_at", index))

    def turns(self, length: int) -> Turns:
        self._found = [None] * self._count
        with pytest.MonkeyPatch.context() as patch, torch.inference_mode():
            for name, function in list(vars(self._module).items()):
                if name.startswith("apply_rotary"):
                    patch.setattr(self._module, name, self._recording(function))
            self._model(torch.full((1, length), 5), use_cache=False)
        return self._found

    def _recording(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def record(*values: Any, **options: Any) -> Any:
            # Some are given queries and keys at once, some one of them; what turns them comes last.
            cos, sin = [value for value in (*values, *options.values()) if isinstance(value, torch.Tensor)][-2:]
            both = (sin.real, sin.imag) if sin.is_complex() else (cos, sin)
            self._found[self._at] = (_pairs(both[0]), _pairs(both[1]))
            return function(*values, **options)

        return record


def _pairs(table: torch.Tensor) -> np.ndarray:
    """One element a pair, where the table has both."""
    rows = table.reshape(-1, table.shape[-1]).numpy()
    half = rows.shape[-1] // 2
    if np.array_equal(rows[:, :half], rows[:, half:]):
        return rows[:, :half]
    return rows[:, ::2] if np.array_equal(rows[:, ::2], rows[:, 1::2]) else rows


def _difference(left: Turns, right: Turns) -> str | None:
    for index, (one, other) in enumerate(zip(left, right, strict=True)):
        if one is None or other is None:
            if one is not other:
                return f"layer {index} turns {'there' if one is None else 'here'} alone"
            continue
        for name, here, there in zip(("cosines", "sines"), one, other, strict=True):
            if here.shape != there.shape:
                return f"layer {index} turns {here.shape[1]} pairs, not {there.shape[1]}"
            if not np.allclose(here, there, atol=2e-5):
                return f"layer {index}: {name} {here[1, :3]}, not {there[1, :3]}"
    return None


def configs(family: Family) -> Iterator[tuple[str, Fields]]:
    """Whole files by the names of their spellings, the family's own files among them."""
    for name, changes in {"tiny": {}, **family.variants}.items():
        yield name, {field: value for field, value in {**family.tiny, **changes}.items() if value is not ...}
    place = "text_config" if "text_config" in family.tiny else None
    text = family.tiny if place is None else family.tiny[place]
    bare = {field: value for field, value in text.items() if field not in ROPE_FIELDS}
    for rope in sorted(family.config(family.tiny).ropes, key=lambda rope: rope.dims):
        for name, changes in spellings(family, rope.dims // 2):
            fields = {**bare, **changes}
            yield name, fields if place is None else {**family.tiny, place: fields}
        return


def judge(family: Family, fields: Fields) -> str | None:
    """What is wrong with our reading, or None."""
    try:
        reference = Theirs(fields)
        short = reference.turns(SHORT)
    except Exception:
        reference = short = None
    try:
        config = family.config(fields)
    except ZooError:
        return "refused" if reference else None
    if reference is None or short is None:
        return "read by us alone"
    found = _difference(ours(config, SHORT), short)
    if found or not any(map(depends_on_length, config.ropes)):
        return found
    return _difference(ours(config, LONG), reference.turns(LONG))


@pytest.mark.parametrize("family", [pytest.param(family, id=family.model_type) for family in families()])
def test_every_spelling_means_what_transformers_makes_of_it(family: Family) -> None:
    torch.set_num_threads(1)
    by_layout = REFUSED_NESTED if NESTED[family.model_type] else REFUSED_FLAT
    by_family = REFUSED.get(family.model_type)
    verdicts = {name: verdict for name, fields in configs(family) if (verdict := judge(family, fields)) is not None}
    assert {
        name: verdict
        for name, verdict in verdicts.items()
        if not (verdict == "refused" and (by_layout.fullmatch(name) or (by_family and by_family.fullmatch(name))))
        and not (verdict == "read by us alone" and (family.model_type, name) in READ_BY_US_ALONE)
    } == {}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"rope_parameters": {"rope_type": "linear", "factor": 2.0}},
            "rope_parameters: expected nothing but an object for full_attention and for sliding_attention, "
            "found rope_type, factor",
        ),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling.type is 'linear', but transformers looks"),
        (
            nested({"factor": 2.0, "rope_type": "su"}, None),
            r"rope_parameters\.full_attention\.rope_type: expected one of",
        ),
        (nested(None, {"factr": 2.0}), r"rope_parameters\.sliding_attention\.factr: unknown field"),
        (nested(None, "linear"), r"rope_parameters\.sliding_attention: expected an object or null, found 'linear'"),
        ({"rope_scaling": {"rope_type": "yarn", **YARN, "truncate": False}}, r"rope_scaling\.truncate: transformers"),
        (
            {"rope_theta": 5.0, **nested({"rope_theta": 7.0}, None)},
            r"rope_theta is 7.0 in rope_parameters.full_attention but 5.0 in rope_theta: remove the wrong one",
        ),
        ({"original_max_position_embeddings": 16}, "original_max_position_embeddings: only 64 is supported, found 16"),
    ],
)
@pytest.mark.parametrize("name", ["olmo3", "gemma3_text"])
def test_what_transformers_overlooks_where_kinds_of_layers_turn_differently_is_refused(
    name: str, fields: Fields, message: str
) -> None:
    family = next(family for family in families() if family.model_type == name)
    bare = {field: value for field, value in family.tiny.items() if field not in ROPE_FIELDS}
    with pytest.raises(ZooError, match=message):
        family.config({**bare, **fields})
