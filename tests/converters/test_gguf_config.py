"""The metadata of GGUF files as config.json: complete, exact, and closed to what is not understood."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from zoo.converters.gguf import GgufFile
from zoo.converters.gguf_config import generation_config, hf_config, rope_frequencies
from zoo.models.errors import ZooError

from .gguf_files import LLAMA, write_gguf

EMBEDDING = {"token_embd.weight": np.zeros((50, 32), np.float32)}


def config_of(path: Path, changes: dict[str, Any], tensors: dict[str, np.ndarray] | None = None) -> dict[str, Any]:
    file = GgufFile.open(write_gguf(path / "model.gguf", {**LLAMA, **changes}, {**EMBEDDING, **(tensors or {})}))
    return hf_config(file.metadata, file.tensors)


def test_a_complete_configuration(tmp_path: Path) -> None:
    ids = {"tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.padding_token_id": 3}
    config = config_of(tmp_path, ids)
    loaded = LlamaConfig(**config)
    assert {key: getattr(loaded, key) for key in config if key not in ("rope_theta", "rope_scaling")} == {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 50,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "hidden_act": "silu",
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 3,
        "use_cache": True,
    }
    assert loaded.rope_parameters == {"rope_type": "default", "rope_theta": 10000.0}


def test_what_the_tensors_say(tmp_path: Path) -> None:
    present = {
        "output.weight": np.zeros((50, 32), np.float32),
        "blk.0.attn_q.bias": np.zeros(32, np.float32),
        "blk.1.ffn_up.bias": np.zeros(64, np.float32),
    }
    config = config_of(tmp_path, {}, present)
    assert (config["tie_word_embeddings"], config["attention_bias"], config["mlp_bias"]) == (False, True, True)


def test_defaults_of_the_format(tmp_path: Path) -> None:
    absent = ("attention.head_count_kv", "rope.freq_base", "rope.dimension_count")
    config = config_of(tmp_path, dict.fromkeys((f"llama.{key}" for key in absent), None))
    assert (config["num_key_value_heads"], config["rope_theta"], config["head_dim"]) == (4, 10000.0, 8)
    assert (config["bos_token_id"], config["eos_token_id"], config["pad_token_id"]) == (None, None, None)


def test_a_head_need_not_be_its_share_of_the_embedding(tmp_path: Path) -> None:
    keys = ("attention.key_length", "attention.value_length", "rope.dimension_count")
    assert config_of(tmp_path, {f"llama.{key}": 16 for key in keys})["head_dim"] == 16


@given(digits=st.integers(1, 99999), exponent=st.integers(-12, 3))
def test_numbers_come_back_as_they_were_written(digits: int, exponent: int) -> None:
    written = float(f"{digits}e{exponent}")
    metadata = {**LLAMA, "llama.attention.layer_norm_rms_epsilon": float(np.float32(written))}
    assert hf_config(metadata, _Embedding)["rms_norm_eps"] == written


class _Shape:
    shape = (50, 32)


_Embedding: Any = {"token_embd.weight": _Shape()}


LINEAR = {"rope_type": "linear", "factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0}


@pytest.mark.parametrize(
    ("keys", "scaling"),
    [
        ({}, None),
        ({"scaling.type": "none", "scaling.factor": 4.0}, None),
        ({"scaling.type": "linear", "scaling.factor": 0.0}, None),
        ({"scaling.type": "linear", "scaling.factor": 4.0, "scaling.finetuned": True}, LINEAR),
        ({"scaling.factor": 4.0}, LINEAR),
        ({"scale_linear": 4.0}, LINEAR),
        ({"scaling.type": "yarn", "scaling.factor": 4.0}, {**YARN, "original_max_position_embeddings": 128}),
        (
            {
                "scaling.type": "yarn",
                "scaling.factor": 4.0,
                "scaling.original_context_length": 32,
                "scaling.yarn_beta_fast": 16.0,
                "scaling.yarn_beta_slow": 2.0,
                "scaling.yarn_attn_factor": 1.0,
            },
            {
                **{**YARN, "original_max_position_embeddings": 32, "beta_fast": 16.0, "beta_slow": 2.0},
                "attention_factor": 1.0,
            },
        ),
    ],
)
def test_rope_scaling(keys: dict[str, Any], scaling: dict[str, Any] | None, tmp_path: Path) -> None:
    assert config_of(tmp_path, {f"llama.rope.{key}": value for key, value in keys.items()})["rope_scaling"] == scaling


def llama3(theta: float, head_dim: int, factor: float, original: int) -> tuple[dict[str, Any], np.ndarray]:
    """A `llama3` scaling, and what `transformers` divides the frequencies by under it."""
    scaling = {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": original,
    }
    settings: dict[str, Any] = {
        "hidden_size": 4 * head_dim,
        "num_attention_heads": 4,
        "head_dim": head_dim,
        "max_position_embeddings": int(factor) * original,
        "rope_theta": theta,
        "rope_scaling": dict(scaling),
    }
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](LlamaConfig(**settings), "cpu")
    return scaling, (rope_frequencies(theta, head_dim) / scaled.double().numpy()).astype(np.float32)


@pytest.mark.parametrize(
    ("theta", "head_dim", "factor", "original"),
    [(500000.0, 128, 8.0, 8192), (500000.0, 64, 32.0, 8192), (10000.0, 16, 8.0, 64), (500000.0, 128, 16.0, 4096)],
)
def test_llama3_scaling_is_recovered_from_its_divisors(
    theta: float, head_dim: int, factor: float, original: int, tmp_path: Path
) -> None:
    scaling, divisors = llama3(theta, head_dim, factor, original)
    widths = dict.fromkeys(("attention.key_length", "attention.value_length", "rope.dimension_count"), head_dim)
    changes = {"rope.freq_base": theta, **widths}
    tensors = {"rope_freqs.weight": divisors}
    assert config_of(tmp_path, {f"llama.{k}": v for k, v in changes.items()}, tensors)["rope_scaling"] == scaling


def test_divisors_of_one_scale_nothing(tmp_path: Path) -> None:
    assert config_of(tmp_path, {}, {"rope_freqs.weight": np.ones(4, np.float32)})["rope_scaling"] is None


def test_divisors_with_nothing_in_between(tmp_path: Path) -> None:
    """As in Llama 4, whose two factors are equal."""
    wavelengths = 2 * np.pi / rope_frequencies(500000.0, 128)
    divisors = np.where(wavelengths < 8192, 1, 16).astype(np.float32)
    widths = dict.fromkeys(("attention.key_length", "attention.value_length", "rope.dimension_count"), 128)
    keys = {f"llama.{key}": value for key, value in {"rope.freq_base": 500000.0, **widths}.items()}
    config = config_of(tmp_path, keys, {"rope_freqs.weight": divisors})
    loaded = LlamaConfig(**config)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](loaded, "cpu")
    np.testing.assert_allclose(rope_frequencies(500000.0, 128) / divisors, scaled.double().numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    ("divisors", "message"),
    [
        ([1.0, 2.0, 3.0, 4.5], "rope_freqs.weight: its divisors, 1 to 4.5, are no `llama3` scaling"),
        ([1.0, 2.0], r"rope_freqs.weight has shape \[2\], expected \[4\]"),
    ],
)
def test_other_divisors_are_refused(divisors: list[float], message: str, tmp_path: Path) -> None:
    with pytest.raises(ZooError, match=message):
        config_of(tmp_path, {}, {"rope_freqs.weight": np.array(divisors, np.float32)})


def test_divisors_beside_another_scaling_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ZooError, match="contradict"):
        config_of(tmp_path, {"llama.rope.scale_linear": 2.0}, {"rope_freqs.weight": np.ones(4, np.float32)})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.expert_used_count", 2),
        ("llama.attention.sliding_window", 4096),
        ("llama.logit_scale", 0.5),
        ("llama.rope.scaling.attn_factor", 1.2),
        ("llama.rope.scaling.type", "longrope"),
        ("llama.attention.causal", False),
        ("llama.tensor_data_layout", "another"),
        ("llama.something_new", 1),
        ("llama.rope.dimension_count", 4),
        ("llama.attention.value_length", 4),
        ("llama.vocab_size", 51),
        ("llama.block_count", None),
        ("llama.attention.head_count", [4, 8]),
        ("llama.feed_forward_length", 0),
        ("llama.attention.layer_norm_rms_epsilon", float("nan")),
        ("tokenizer.ggml.tokens", [str(index) for index in range(51)]),
    ],
)
def test_what_is_not_understood_is_named(key: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(ZooError, match=key):
        config_of(tmp_path, {key: value})


def test_neutral_values_change_nothing(tmp_path: Path) -> None:
    neutral = {"llama.expert_count": 0, "llama.logit_scale": 1.0, "llama.tensor_data_layout": "Meta AI original pth"}
    assert config_of(tmp_path, neutral)["hidden_size"] == 32


def test_all_mistakes_together(tmp_path: Path) -> None:
    with pytest.raises(ZooError) as caught:
        config_of(tmp_path, {"llama.block_count": None, "llama.expert_count": 8, "llama.context_length": None})
    assert str(caught.value).count("\n  - ") == 3


def test_another_architecture_is_named_with_the_known() -> None:
    with pytest.raises(ZooError, match=r"a\.gguf: general\.architecture is 'mamba'; known: .*, llama, "):
        hf_config({"general.architecture": "mamba"}, {}, "a.gguf")


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ({}, {}),
        ({"bos": 1, "eos": 2, "padding": 0}, {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}),
        ({"eos": 9, "eot": 9, "eom": 8}, {"eos_token_id": [9, 8]}),
        ({"eot": 9}, {"eos_token_id": 9}),
    ],
)
def test_generation_config_names_every_end(ids: dict[str, int], expected: dict[str, Any]) -> None:
    assert generation_config({f"tokenizer.ggml.{name}_token_id": value for name, value in ids.items()}) == expected


def other(architecture: str, **changes: Any) -> dict[str, Any]:
    """The config.json of another architecture's file, whose metadata is llama's but for these keys."""
    usual = {
        f"{architecture}.{key.removeprefix('llama.')}": value for key, value in LLAMA.items() if "general" not in key
    }
    own = {f"{architecture}.{key.replace('__', '.')}": value for key, value in changes.items()}
    return hf_config({**usual, **own, "general.architecture": architecture}, _Embedding)


CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "attention__sliding_window": 4096}


@pytest.mark.parametrize(
    ("architecture", "layers", "changes", "scalar"),
    [("gemma2", 26, CAPS, 12), ("gemma2", 46, CAPS, 8), ("gemma3", 34, {}, 12), ("gemma3", 62, {}, 8)],
)
def test_the_largest_gemma_divides_by_another_width(
    architecture: str, layers: int, changes: dict[str, Any], scalar: int
) -> None:
    widths = dict.fromkeys(("attention__key_length", "attention__value_length", "rope__dimension_count"), 12)
    window = {"attention__sliding_window": 512}
    config = other(architecture, block_count=layers, **{**window, **changes, **widths})
    assert config["query_pre_attn_scalar"] == scalar


def test_a_required_key_of_an_architecture_is_named() -> None:
    with pytest.raises(ZooError, match=r"gemma2\.attn_logit_softcapping is missing\n.*gemma2\.final"):
        other("gemma2", attention__sliding_window=4096)


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({}, {"sliding_window": None, "layer_types": ["full_attention"] * 2}),
        ({"attention__sliding_window": 9}, {"sliding_window": 9, "layer_types": None, "sliding_window_pattern": 4}),
        (
            {"attention__sliding_window": 9, "attention__sliding_window_pattern": [True, False]},
            {"sliding_window": 9, "layer_types": ["sliding_attention", "full_attention"]},
        ),
    ],
)
def test_the_windows_of_exaone(changes: dict[str, Any], fields: dict[str, Any]) -> None:
    config = other("exaone4", **changes)
    assert {name: config[name] for name in fields} == fields


def test_a_longrope_whose_magnitude_contradicts_its_lengths_is_refused(tmp_path: Path) -> None:
    phi = {key.replace("llama", "phi3"): value for key, value in LLAMA.items()} | {
        **{"general.architecture": "phi3", "phi3.rope.scaling.original_context_length": 32},
        "phi3.rope.scaling.attn_factor": 1.5,
    }
    factors = {f"rope_factors_{kind}.weight": np.full(4, 2, np.float32) for kind in ("long", "short")}
    file = GgufFile.open(write_gguf(tmp_path / "model.gguf", phi, {**EMBEDDING, **factors}))
    with pytest.raises(ZooError, match=r"attn_factor is 1\.5, the lengths make 1\.18"):
        hf_config(file.metadata, file.tensors)


LATENT = {
    **{"expert_count": 8, "expert_used_count": 2, "expert_shared_count": 1, "expert_feed_forward_length": 16},
    **{"leading_dense_block_count": 0, "rope__dimension_count": 4, "attention__kv_lora_rank": 12},
    **{"attention__key_length_mla": 10, "attention__value_length_mla": 6, "attention__key_length": 16},
    **{"attention__value_length": 12, "attention__head_count_kv": 1},
}


def test_the_widths_of_latent_heads() -> None:
    config = other("deepseek2", **LATENT)
    expected = {"kv_lora_rank": 12, "qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "v_head_dim": 6}
    assert {name: config[name] for name in expected} == expected
    assert (config["num_key_value_heads"], config["model_type"]) == (4, "deepseek_v2")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention__key_length": 17}, r"attention\.key_length: expected 16, the widths of the latent and of what"),
        ({"attention__value_length": 13}, r"attention\.value_length: expected 12, the width of the latent"),
        ({"attention__head_count_kv": 2}, r"attention\.head_count_kv: expected 1, the heads of keys"),
        ({"attention__key_length_mla": 4}, r"attention\.key_length_mla: expected more than 4, what turns"),
        ({"expert_gating_func": 3}, "files of deepseek_v2, deepseek_v3 are read"),
        ({"expert_count": 0}, "files of deepseek_v2, deepseek_v3 are read"),
        ({"attention__temperature_scale": 0.1}, r"attention\.temperature_scale is not known"),
    ],
)
def test_latent_heads_that_contradict_themselves_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ZooError, match=message):
        other("deepseek2", **{**LATENT, **changes})


def test_widths_of_gemma_4_that_contradict_themselves_are_refused() -> None:
    widths = {"attention__key_length_swa": 8, "attention__value_length_swa": 8, "rope__dimension_count_swa": 4}
    keys = {"attention__sliding_window": 9, "embedding_length_per_layer_input": 0}
    pattern = {"attention__sliding_window_pattern": [True, False]}
    with pytest.raises(ZooError, match=r"rope\.dimension_count_swa to be equal; found list, 8, 8 and 4"):
        other("gemma4", **widths, **keys, **pattern)


def test_no_scaling_in_a_file_of_gpt_oss_is_none() -> None:
    counts = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 16}
    config = other("gpt-oss", attention__sliding_window=9, **counts)
    assert config["rope_scaling"] == {"rope_type": "default"}
