"""Every family that reads GGUF files: logits of a file of llama.cpp's conventions are those of its Hugging Face model.

The files are written by `gguf_writer.py`, which knows nothing of the columns that read them. A family that gets a
column is tested by having one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM
from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES, load_gguf_checkpoint

from zoo.converters.family import Family, families
from zoo.converters.gguf_source import open_gguf
from zoo.converters.gguf_to_hf import gguf_to_hf
from zoo.models.errors import ZooError

from .gguf_writer import write_gguf
from .reference import assert_close, load, random_tokens, reference_logits, write_checkpoint

LENGTH = 60
YARN = {
    **{"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16},
    **{"mscale": 0.7, "mscale_all_dim": 0.7},
}
# What llama.cpp's converter does not write and llama.cpp takes to be so, by family or by a variant of one.
TAKEN_FOR_GRANTED: Mapping[str, Mapping[str, Any]] = {
    "qwen2": {"use_sliding_window": False, "layer_types": ...},
    "qwen3": {"use_sliding_window": False},
    "gemma": {"hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True},
    "gemma2": {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 16,
        "layer_types": ...,
        "tie_word_embeddings": True,
    },
    "gemma3_text": {
        **{"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 16, "sliding_window_pattern": 6},
        **{"rope_local_base_freq": 10000.0, "num_hidden_layers": 7, "layer_types": ..., "rope_parameters": ...},
        **{"rope_theta": 1000000.0, "_sliding_window_pattern": 6},
    },
    "starcoder2": {"hidden_act": "gelu_pytorch_tanh", "sliding_window": None},
    "smollm3": {
        **{"no_rope_layer_interval": 4, "no_rope_layers": ..., "use_sliding_window": False},
        "num_hidden_layers": 5,
    },
    "gpt2": {"activation_function": "gelu_new", "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False},
    "gpt_neox": {"hidden_act": "gelu"},
    "nemotron": {"hidden_act": "relu2"},
    "falcon": {"parallel_attn": True},
    "cohere": {"tie_word_embeddings": True},
    "cohere2": {
        **{
            "tie_word_embeddings": True,
            "sliding_window_pattern": 4,
            "num_hidden_layers": 5,
            "layer_types": ...,
            "layer_switch": ...,
        },
    },
    "mixtral": {"sliding_window": None, "hidden_act": "silu"},
    "qwen2_moe": {
        **{"norm_topk_prob": False, "mlp_only_layers": ..., "decoder_sparse_step": 1, "use_sliding_window": False},
    },
    "qwen3_moe": {
        **{"norm_topk_prob": True, "mlp_only_layers": ..., "decoder_sparse_step": 1, "use_sliding_window": False},
    },
    "gpt_oss": {"swiglu_alpha": 1.702, "swiglu_limit": 7.0, "layer_types": ...},
    "deepseek_v3": {"rope_interleave": True},
    "deepseek_v3-biases, uneven magnitudes": {"rope_scaling": YARN},
    # As the published checkpoints say it.
    "olmo3-tied, biases": {
        "rope_scaling": {
            **{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
            "attention_factor": 1.3,
        },
    },
    "ministral3": {"sliding_window": None},
    "qwen3_next": {
        **{"norm_topk_prob": True, "mlp_only_layers": ..., "layer_types": ..., "full_attention_interval": 2},
    },
    "qwen3_5_text": {"layer_types": ..., "full_attention_interval": 2},
    "llama4_text": {
        **{"attention_chunk_size": 8192, "floor_scale": 8192, "attn_scale": 0.1, "attn_temperature_tuning": True},
        **{"num_hidden_layers": 5, "no_rope_layer_interval": 4, "no_rope_layers": ..., "layer_types": ...},
        **{"use_qk_norm": True, "moe_layers": ...},
    },
    "gemma4_text": {"hidden_activation": "gelu_pytorch_tanh"},
    "gemma4_text-as transformers writes it": {
        **{"per_layer_config": ..., "global_head_dim": 32},
        "rope_parameters": {
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 1000000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    },
    "olmoe": {"norm_topk_prob": False},
}
CASES = [
    pytest.param(
        family,
        {
            **changes,
            **TAKEN_FOR_GRANTED.get(family.model_type, {}),
            **TAKEN_FOR_GRANTED.get(f"{family.model_type}-{name}", {}),
        },
        id=f"{family.model_type}-{name}",
    )
    for family in families()
    if family.gguf is not None
    for name, changes in {"tiny": {}, **family.variants}.items()
    # A cap is not optional there.
    if not (family.model_type == "gemma2" and "caps" in name)
]


def write(folder: Path, family: Family, changes: Mapping[str, Any]) -> tuple[Any, Path]:
    """A random Hugging Face model, and the GGUF file of it."""
    only_written = ("older", "mxfp4")
    in_file = {name: value for name, value in changes.items() if name not in only_written}
    reference = write_checkpoint(folder / "hf", family.tiny, **in_file)
    config = json.loads((folder / "hf" / "config.json").read_text(encoding="utf-8"))
    tensors = load_file(folder / "hf" / "model.safetensors")
    return reference, write_gguf(
        folder / "model.gguf", {**config, **{name: changes.get(name) for name in only_written}}, tensors
    )


@pytest.mark.proves("gguf")
@pytest.mark.parametrize(("family", "changes"), CASES)
def test_logits_are_those_of_the_hugging_face_model(tmp_path: Path, family: Family, changes: dict[str, Any]) -> None:
    """Read by us, and by transformers from the directory that we make of the file."""
    reference, path = write(tmp_path, family, changes)
    tokens = random_tokens(2, LENGTH)
    expected = reference_logits(reference, tokens)
    assert_close(load(path).logits(tokens), expected)
    gguf_to_hf(path, tmp_path / "back", dtype="float32")
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        tmp_path / "back", attn_implementation="eager", dtype=torch.float32, output_loading_info=True
    )
    converted, loading = loaded
    assert not any(loading[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), loading
    assert_close(reference_logits(converted.eval(), tokens), expected)
    assert_close(load(tmp_path / "back").logits(tokens), expected)


def family_of(model_type: str) -> Family:
    return next(family for family in families() if family.model_type == model_type)


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [
        ("deepseek_v2", {"n_group": 1, "topk_group": 1, "topk_method": "greedy"}),
        ("deepseek_v3", {"n_group": 1, "topk_group": 1}),
        ("qwen3_next", {"norm_topk_prob": True}),
    ],
)
def test_older_files_have_in_one_tensor_what_is_two_now(
    tmp_path: Path, model_type: str, changes: dict[str, Any]
) -> None:
    reference, path = write(tmp_path, family_of(model_type), {**changes, "older": True})
    tokens = random_tokens(2, LENGTH)
    assert_close(load(path).logits(tokens), reference_logits(reference, tokens))


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [
        # Norms of heads are told by the number of experts, groups of experts in older files too.
        ("llama4_text", {"num_local_experts": 128, "use_qk_norm": False}),
        ("deepseek_v2", {"n_routed_experts": 160, "n_group": 8, "topk_group": 3, "older": True}),
        ("deepseek_v3", {"n_routed_experts": 256, "n_group": 8, "topk_group": 4, "older": True}),
    ],
)
def test_what_the_number_of_experts_tells(tmp_path: Path, model_type: str, changes: dict[str, Any]) -> None:
    taken = {**TAKEN_FOR_GRANTED.get(model_type, {}), **changes}
    reference, path = write(tmp_path, family_of(model_type), taken)
    tokens = random_tokens(2, LENGTH)
    assert_close(load(path).logits(tokens), reference_logits(reference, tokens))


def test_layers_that_predict_further_tokens_are_left_out(tmp_path: Path) -> None:
    reference = write_checkpoint(tmp_path / "hf", family_of("glm4_moe").tiny)
    config = json.loads((tmp_path / "hf" / "config.json").read_text(encoding="utf-8"))
    tensors = load_file(tmp_path / "hf" / "model.safetensors")
    last, after = (f"model.layers.{config['num_hidden_layers'] - back}." for back in (1, 0))
    tensors |= {name.replace(last, after): value for name, value in tensors.items()}
    tensors[f"{after}eh_proj.weight"] = np.zeros((32, 64), np.float32)
    path = write_gguf(tmp_path / "model.gguf", {**config, "num_nextn_predict_layers": 1}, tensors)
    tokens = random_tokens(2, LENGTH)
    assert_close(load(path).logits(tokens), reference_logits(reference, tokens))


def test_experts_in_blocks_of_four_bits(tmp_path: Path) -> None:
    """As the files of gpt-oss have them, in the converter's own order of tensors."""
    _, path = write(tmp_path, family_of("gpt_oss"), {"intermediate_size": 64, "mxfp4": True})
    [gate, up] = (
        dequantize(quantize(part, GGMLQuantizationType.MXFP4), GGMLQuantizationType.MXFP4)
        for part in (
            load_file(tmp_path / "hf" / "model.safetensors")["model.layers.1.mlp.experts.gate_up_proj"]
            .swapaxes(1, 2)
            .reshape(4, 64, 2, 32)
            .transpose(2, 0, 1, 3)
        )
    )
    read = open_gguf(path).read("model.layers.1.mlp.experts.gate_up_proj")
    np.testing.assert_array_equal(read[..., ::2], gate.swapaxes(1, 2))
    np.testing.assert_array_equal(read[..., 1::2], up.swapaxes(1, 2))


def test_rates_that_do_not_decay_are_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "hf", family_of("qwen3_next").tiny)
    config = json.loads((tmp_path / "hf" / "config.json").read_text(encoding="utf-8"))
    tensors = load_file(tmp_path / "hf" / "model.safetensors")
    tensors["model.layers.0.linear_attn.A_log"][:] = -np.inf
    path = write_gguf(tmp_path / "model.gguf", config, tensors)
    with pytest.raises(ZooError, match=r"model\.gguf: tensor blk\.0\.ssm_a holds rates of decay"):
        load(path)


# transformers leaves Falcon's queries, keys and values one below the other, which is right for one key head alone; it
# has no names for StableLM's norms of heads, and none of Mixtral's at all. YaRN in a file of gpt-oss makes it fail, and
# it has no names for Gemma 4's scales of layers and of experts.
NOT_THERE = (
    "gpt_oss",
    "gemma4",
    "falcon-tiny",
    "falcon-one norm",
    "falcon-multi-head",
    "stablelm-side by side",
    "mixtral",
)


def is_read_by_transformers(case: Any) -> bool:
    family: Family = case.values[0]
    names = {family.model_type, family.gguf.architecture if family.gguf else ""}
    return not names.isdisjoint(GGUF_SUPPORTED_ARCHITECTURES) and not str(case.id).startswith(NOT_THERE)


ALSO_READ = [case for case in CASES if is_read_by_transformers(case)]


@pytest.mark.parametrize(("family", "changes"), ALSO_READ)
def test_tensors_are_those_that_transformers_reads(tmp_path: Path, family: Family, changes: dict[str, Any]) -> None:
    """A second reader of the same file, where there is one; it holds experts otherwise than checkpoints do."""
    reference, path = write(tmp_path, family, changes)
    theirs = load_gguf_checkpoint(path, return_tensors=True, model_to_load=reference)["tensors"]
    ours = open_gguf(path)
    shared = theirs.keys() & ours.headers.keys()
    assert {name for name in ours.headers if ".experts." not in name} == shared
    for name in sorted(shared):
        np.testing.assert_array_equal(ours.read(name), theirs[name].numpy(), name)
