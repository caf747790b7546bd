"""The checker itself: faults planted in our side are caught, and the part that they were planted in is named.

Each is one that converters and engines have had. The reference and the files are right; what is loaded from them, the
network's description or the arithmetic is not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from zoo.comparison import check, sides
from zoo.converters.family import families
from zoo.models import context
from zoo.models.config import ModelConfig
from zoo.sources import Source

from .reference import BASE, write_checkpoint

Params = dict[str, Any]
FAMILIES = {family.model_type: family for family in families()}
LLAMA: Mapping[str, Any] = {**BASE, "num_key_value_heads": 2}


def edited(config: ModelConfig, edit: Callable[[dict[str, Any]], None], layers: slice = slice(None)) -> ModelConfig:
    """The description with some layers edited."""
    values = config.model_dump(mode="json")
    for layer in values["layers"][layers]:
        edit(layer)
    return ModelConfig.model_validate_json(json.dumps(values))


def in_layers(edit: Callable[[dict[str, Any]], None]) -> Callable[[ModelConfig], ModelConfig]:
    return lambda config: edited(config, edit)


def setting(*path: str, value: Any) -> Callable[[ModelConfig], ModelConfig]:
    """Every layer's field, by its path, set to a value or to what a function makes of the former one."""

    def edit(layer: dict[str, Any]) -> None:
        for name in path[:-1]:
            layer = layer[name]
        layer[path[-1]] = value(layer[path[-1]]) if callable(value) else value

    return in_layers(edit)


def updating(**fields: Any) -> Callable[[ModelConfig], ModelConfig]:
    return lambda config: config.model_copy(update=fields)


def reversed_windows(config: ModelConfig) -> ModelConfig:
    values = config.model_dump(mode="json")
    windows = [layer["attn"]["window"] for layer in values["layers"]]
    for layer, window in zip(values["layers"], reversed(windows), strict=True):
        layer["attn"]["window"] = window
    return ModelConfig.model_validate_json(json.dumps(values))


def swapping(one: str, other: str) -> Callable[[Params], Params]:
    """Parameters whose names begin so exchanged."""

    def edit(params: Params) -> Params:
        def renamed(path: str) -> str:
            for here, there in ((one, other), (other, one)):
                if path.startswith(here):
                    return there + path.removeprefix(here)
            return path

        return {path: params[renamed(path)] for path in params}

    return edit


def changing(change: Callable[[Any], Any], *paths: str) -> Callable[[Params], Params]:
    return lambda params: {p: change(v) if p.endswith(paths) else v for p, v in params.items()}


def repeated(params: Params) -> Params:
    return {
        p: params[p.replace("layers.1.", "layers.0.", 1)] if p.startswith("layers.1.") else v for p, v in params.items()
    }


def transposed(kernel: Any) -> Any:
    return jnp.asarray(np.asarray(kernel).reshape(64, 64).T.reshape(kernel.shape))


def rolled_heads(params: Params) -> Params:
    """Query heads in another order, and the output with them: only which key head each uses is wrong."""
    rolled = {".attn.q.kernel": 1, ".attn.o.kernel": 0}
    return {
        path: next((jnp.roll(value, 1, axis) for end, axis in rolled.items() if path.endswith(end)), value)
        for path, value in params.items()
    }


def untied(params: Params) -> Params:
    head = params["embed.embedding"].T
    return {**params, "head.kernel": head.at[:, 5].mul(1.01)}


@dataclass(frozen=True)
class Fault:
    """What is wrong with our side, and the stage and the values that may be named."""

    stage: str
    values: tuple[str, ...]
    base: Mapping[str, Any] = field(default_factory=lambda: LLAMA)
    config: Callable[[ModelConfig], ModelConfig] = lambda config: config
    params: Callable[[Params], Params] = lambda params: params
    arithmetic: tuple[str, Callable[[Any], Any]] | None = None


def _of(name: str, variant: str | None = None, **changes: Any) -> dict[str, Any]:
    family = FAMILIES[name]
    return {**family.tiny, **(family.variants[variant] if variant else {}), **changes}


def _rounded(rotation: Any) -> Any:
    def rotate(*arguments: Any) -> Any:
        return jax.tree.map(lambda x: x.astype(jnp.bfloat16).astype(jnp.float32), rotation(*arguments))

    return rotate


def _one_position_unseen(mask: Any) -> Any:
    def masked(*arguments: Any) -> Any:
        found = mask(*arguments)
        return found.at[:, 4, 2].set(False) if found.shape[1] > 4 else found

    return masked


ROTATED, ATTENDED = ("queries", "keys"), ("attended",)
FAULTS: dict[str, Fault] = {
    "theta": Fault("layers.0", ROTATED, config=setting("attn", "rope", "theta", value=lambda x: x * 2)),
    "scaling factor": Fault(
        "layers.0",
        ROTATED,
        base={**LLAMA, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        config=setting("attn", "rope", "factor", value=2.1),
    ),
    "partial fraction": Fault("layers.0", ROTATED, config=setting("attn", "rope", "dims", value=8)),
    "pairing": Fault("layers.0", ROTATED, config=setting("attn", "rope", "interleaved", value=True)),
    "queries and keys swapped": Fault(
        "layers.0",
        ("q",),
        base={**LLAMA, "num_key_value_heads": 4},
        params=swapping("layers.0.attn.q.", "layers.0.attn.k."),
    ),
    "heads permuted under grouped queries": Fault("layers.0", ("q",), params=rolled_heads),
    "a norm's 1 missing": Fault(
        "layers.0", ("attn_norm",), base=_of("gemma"), config=setting("attn_norm", "offset", value=0.0)
    ),
    "norms swapped": Fault("layers.0", ("attn_norm",), params=swapping("layers.0.attn_norm.", "layers.0.mlp_norm.")),
    "epsilon": Fault("layers.0", ("attn_norm",), config=setting("attn_norm", "epsilon", value=1e-6)),
    "attention scale": Fault("layers.0", ("queries",), config=setting("attn", "scale", value=lambda x: x * 1.05)),
    "soft cap": Fault("layers.0", ATTENDED, base=_of("gemma2"), config=setting("attn", "softcap", value=None)),
    "window off by one": Fault(
        "layers.0", ATTENDED, base=_of("mistral", sliding_window=7), config=setting("attn", "window", value=8)
    ),
    "order of layer types": Fault("layers.0", ATTENDED, base=_of("gemma2"), config=reversed_windows),
    "bias dropped": Fault(
        "layers.0", ("q",), base=_of("qwen2"), params=changing(jnp.zeros_like, "layers.0.attn.q.bias")
    ),
    "tied head broken": Fault(
        "head",
        ("logits",),
        base={**LLAMA, "tie_word_embeddings": True},
        config=updating(tied_head=False),
        params=untied,
    ),
    "gate and up swapped": Fault("layers.0", ("gate",), params=swapping("layers.0.mlp.gate.", "layers.0.mlp.up.")),
    "activation variant": Fault(
        "layers.0",
        ("mlp",),
        base={**LLAMA, "hidden_act": "gelu"},
        config=setting("mlp", "activation", value="gelu_tanh"),
    ),
    "order of experts": Fault(
        "layers.0",
        ("mlp",),
        base=_of("mixtral"),
        params=changing(lambda x: jnp.roll(x, 1, 0), "experts.gate.kernel", "experts.up.kernel", "experts.down.kernel"),
    ),
    "router's weights not divided by their sum": Fault(
        "layers.0",
        ("router", "mlp"),
        base=_of("mixtral"),
        config=setting("mlp", "router", "normalise", value=lambda x: not x),
    ),
    "shared expert without its gate": Fault(
        "layers.0", ("mlp",), base=_of("qwen2_moe"), config=setting("mlp", "shared_gate", value=False)
    ),
    "sinks dropped": Fault(
        "layers.0", ATTENDED, base=_of("gpt_oss"), params=changing(lambda x: jnp.full_like(x, -1e4), "attn.sinks")
    ),
    "embedding scale": Fault("embedding", ("output",), base=_of("gemma"), config=updating(embedding_multiplier=1.0)),
    "logit scale": Fault("head", ("logits",), base=_of("cohere"), config=updating(logit_multiplier=1.0)),
    "a layer repeated": Fault("layers.1", ("attn_norm",), params=repeated),
    "layers 2 and 10 swapped": Fault(
        "layers.2",
        ("attn_norm",),
        base={**LLAMA, "num_hidden_layers": 12},
        params=swapping("layers.2.", "layers.10."),
    ),
    "a square tensor transposed": Fault("layers.0", ("q",), params=changing(transposed, "layers.0.attn.q.kernel")),
    "a tensor of zeros": Fault("layers.1", ("mlp",), params=changing(jnp.zeros_like, "layers.1.mlp.down.kernel")),
    "rotation rounded to bfloat16": Fault("layers.0", ROTATED, arithmetic=("rotation", _rounded)),
    "one position's mask": Fault("layers.0", ATTENDED, arithmetic=("_mask", _one_position_unseen)),
    "norms of heads swapped": Fault(
        "layers.0", ("q_norm",), base=_of("qwen3"), params=swapping("layers.0.attn.q_norm.", "layers.0.attn.k_norm.")
    ),
    "residual multiplier": Fault(
        "layers.0", ("mlp_norm",), base=_of("granite"), config=setting("residual_multiplier", value=lambda x: x * 1.1)
    ),
}


@pytest.mark.parametrize("fault", [pytest.param(fault, id=name) for name, fault in FAULTS.items()])
def test_a_planted_fault_is_caught_and_named(
    tmp_path: Path, fault: Fault, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    write_checkpoint(tmp_path, fault.base)
    plant(fault, monkeypatch)
    try:
        report = check.parity(tmp_path, longest=96)
    finally:
        if fault.arithmetic is not None:
            jax.clear_caches()
    culprit = report.culprit
    named = culprit is not None and culprit.stage == fault.stage and culprit.value in fault.values
    record_property("planted fault", (not report.passed, named))
    assert not report.passed
    assert named, culprit


def test_another_list_of_end_tokens_is_caught(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "theirs", LLAMA)
    write_checkpoint(tmp_path / "ours", LLAMA)
    (tmp_path / "ours" / "generation_config.json").write_text('{"eos_token_id": [2, 7]}')
    report = check.parity(tmp_path / "ours", tmp_path / "theirs", longest=40)
    assert [c.name for c in report.checks if not c.passed] == ["end tokens"]


def test_what_is_no_number_is_said_of_the_side_that_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(tmp_path, LLAMA)
    plant(Fault("", (), params=changing(lambda x: x.at[0].set(jnp.nan), "final_norm.scale")), monkeypatch)
    report = check.parity(tmp_path, longest=40)
    wrong = [c for c in report.checks if c.name == "logits are numbers, padding after"]
    assert len(wrong) == 1 and wrong[0].detail.startswith("ours: ")


def plant(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the checker load a model with the fault in it."""
    right = sides.open_source

    @contextmanager
    def wrong(path: Path) -> Generator[Source]:
        with right(path) as source:

            def load(dtype: Any, shardings: Any, paths: Iterable[str] | None = None) -> Params:
                params = fault.params(source.load(dtype, shardings))
                return params if paths is None else {name: params[name] for name in paths}

            config = fault.config(source.config)
            assert config != source.config or fault.params is not Fault.params or fault.arithmetic
            yield replace(source, config=config, load=load)

    monkeypatch.setattr(sides, "open_source", wrong)
    # The engine would refuse parameters that its network lacks, or decode with the fault; blocks are what is looked at.
    monkeypatch.setattr(check, "continue_greedily", lambda *_: [])
    if fault.arithmetic is not None:
        name, change = fault.arithmetic
        # None compiled before is used again.
        jax.clear_caches()
        monkeypatch.setattr(context, name, change(getattr(context, name)))
