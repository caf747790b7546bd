"""Llama configurations: what transformers makes of the same file, and what must be refused."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from transformers import LlamaConfig

from zoo.converters.families.llama import TINY, config
from zoo.models.config import Attention, DefaultRope, DynamicRope, LinearRope, Llama3Rope, LongRope, YarnRope, rope_of
from zoo.models.errors import ZooError

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LONGROPE = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "original_max_position_embeddings": 32}


def test_absent_fields_have_the_defaults_of_transformers() -> None:
    expected = LlamaConfig()
    found = config({"model_type": "llama"})
    layer = found.layers[0]
    assert found.vocab == expected.vocab_size
    assert found.embed == expected.hidden_size
    assert len(found.layers) == expected.num_hidden_layers
    assert found.max_positions == expected.max_position_embeddings
    assert found.tied_head == expected.tie_word_embeddings
    assert found.final_norm.epsilon == expected.rms_norm_eps
    assert isinstance(layer.attn, Attention)
    assert layer.mlp.ffn == expected.intermediate_size
    assert (layer.attn.heads, layer.attn.kv_heads) == (expected.num_attention_heads, expected.num_key_value_heads)
    assert layer.attn.head_dim == expected.head_dim
    assert (layer.attn.qkv_bias, layer.mlp.bias) == (expected.attention_bias, expected.mlp_bias)
    assert layer.attn.rope == DefaultRope(theta=10000.0, dims=128)


def test_what_transformers_writes_is_read() -> None:
    assert config(LlamaConfig(architectures=["LlamaForCausalLM"]).to_dict()) == config({})


def test_a_published_config_with_its_odd_fields_is_read() -> None:
    extra = {
        "is_llama_config": True,
        "rope_interleaved": False,
        "rope_scaling": None,
        "pretraining_tp": 4,
        "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}},
        "sliding_window": None,
        "quantization_config": None,
        "eos_token_id": [2, 127],
        "pad_token_id": -1,
        "some_field_of_the_future": None,
    }
    assert config({**TINY, **extra}) == config(TINY)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 512),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, 256),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}}, 256),
        ({"rope_scaling": {"rope_type": "llama3", **LLAMA3, "original_max_position_embeddings": 32}}, 128),
        ({"rope_scaling": {"type": "longrope", **LONGROPE}}, 128),
    ],
)
def test_the_longest_sequence(fields: dict[str, Any], expected: int) -> None:
    assert config({**TINY, **fields}).max_positions == expected


@pytest.mark.parametrize("kind", ["type", "rope_type"])
@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("default", {}, DefaultRope),
        ("linear", {"factor": 2}, LinearRope),
        ("dynamic", {"factor": 2.0}, DynamicRope),
        ("yarn", {"factor": 2.0}, YarnRope),
        ("llama3", LLAMA3, Llama3Rope),
        ("longrope", LONGROPE, LongRope),
    ],
)
def test_every_spelling_means_the_same(kind: str, name: str, fields: dict[str, Any], expected: type) -> None:
    bare = {key: value for key, value in TINY.items() if key != "rope_theta"}
    outside = config({**bare, "rope_theta": 777.0, "rope_scaling": {kind: name, **fields}})
    inside = config({**bare, "rope_parameters": {kind: name, "rope_theta": 777.0, **fields}})
    assert outside == inside
    rope = rope_of(inside.layers[0].attn)
    assert isinstance(rope, expected) and rope is not None and rope.theta == 777.0


def test_a_missing_theta_is_mentioned(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config({key: value for key, value in TINY.items() if key != "rope_theta"})
    assert "rope_theta" in caplog.text


# Changes to TINY, and what the error has to say.
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"hidden_act": "quick_gelu"}, "hidden_act: expected one of silu.*found 'quick_gelu'"),
    ({"hidden_act": None}, "hidden_act"),
    ({"rope_scaling": {"rope_type": "su"}}, "rope_scaling.rope_type: expected one of default.*found 'su'"),
    ({"rope_parameters": {"rope_type": "mrope"}}, "rope_parameters.rope_type"),
    ({"rope_scaling": {"type": "linear", "factor": 2.0, "alpha": 3}}, "rope_scaling.alpha: unknown field"),
    ({"rope_scaling": {"type": "linear"}}, "rope_scaling.factor: expected .* found nothing"),
    ({"rope_scaling": {"type": "linear", "factor": "2"}}, "rope_scaling.factor: expected .* found '2'"),
    ({"rope_scaling": {"type": "linear", "factor": -2.0}}, "rope_scaling.factor"),
    ({"rope_scaling": {"type": "linear", "rope_type": "yarn", "factor": 2.0}}, "type is 'linear' but .* 'yarn'"),
    ({"rope_scaling": "linear"}, "rope_scaling: expected an object"),
    ({"rope_parameters": {"rope_theta": 5.0}}, "rope_theta is 10000.0 but rope_parameters.rope_theta is 5.0"),
    (
        {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": {"rope_type": "linear", "factor": 3.0}},
        "disagree",
    ),
    ({"rope_scaling": {"type": "yarn"}}, "rope_scaling.factor"),
    ({"rope_scaling": {"type": "yarn", "factor": 2.0, "truncate": "no"}}, "truncate"),
    ({"rope_scaling": {"type": "longrope", **LONGROPE, "long_factor": [1.0] * 3}}, "long_factor: expected a list of 4"),
    ({"rope_scaling": {"rope_type": "llama3", **LLAMA3, "low_freq_factor": 4.0}}, "low_freq_factor is 4, not below"),
    ({"rope_scaling": {"type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 64}}, "original_max"),
    ({"rope_theta": None}, "rope_theta: expected a number, found null"),
    ({"rope_theta": -1.0}, "rope_theta"),
    ({"rope_theta": True}, "rope_theta"),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor: only 1 is supported, found 0.5"),
    ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
    ({"rope_interleaved": True}, "rope_interleaved"),
    ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config"),
    ({"sliding_window": 4096}, "sliding_window"),
    ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping: unknown field with value 50.0"),
    ({"num_key_value_head": 2}, r"num_key_value_head: unknown field .*did you mean num_key_value_heads\?"),
    ({"num_attention_heads": 0}, "num_attention_heads: expected a whole number of at least 1, found 0"),
    ({"num_attention_heads": 4.0}, "num_attention_heads"),
    ({"num_key_value_heads": 3}, "num_attention_heads 4 is not a multiple of num_key_value_heads 3"),
    ({"num_attention_heads": 6, "head_dim": None}, "hidden_size 32 is not a multiple of num_attention_heads 6"),
    ({"head_dim": 7}, "head_dim 7 is odd"),
    ({"hidden_size": "32"}, "hidden_size"),
    ({"vocab_size": None}, "vocab_size"),
    ({"pad_token_id": 128}, "pad_token_id: expected null or a token id from 0 to 127, found 128"),
    ({"tie_word_embeddings": 1}, "tie_word_embeddings: expected true or false"),
    ({"rms_norm_eps": 0.0}, "rms_norm_eps"),
    ({"is_encoder_decoder": True}, "is_encoder_decoder"),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED)
def test_what_would_be_a_guess_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ZooError, match=message):
        config({**TINY, **fields})


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(ZooError) as error:
        config({**TINY, "hidden_act": "tanh", "vocab_size": -1, "surprise": 1, "rope_scaling": {"type": "su"}})
    for name in ("hidden_act", "vocab_size", "surprise", "rope_scaling.rope_type"):
        assert name in str(error.value)
