"""What a family says of its GGUF files: the architecture's name there, and in what it differs from the usual.

Tensors' names are not among it: those are the `gguf` library's own table, from the Hugging Face names of the rows. Of
a family's file it is the name `GGUF`; a family has one only if `parity_tests/test_gguf.py` proves it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Patterns = str | tuple[str, ...]


@dataclass(frozen=True)
class GgufColumn:
    """How the files of one architecture become a config.json and Hugging Face tensors.

    Keys are those of the metadata without the architecture's name before them.

    Attributes:
        architecture: `general.architecture`.
        experts: whether these are the files of it with experts, where a family has those without.
        tells: of an architecture that several families have, whether files with these keys are this one's.
        latent: whether attention is latent, whose widths files say in other keys.
        epsilon: what config.json calls the norms' epsilon.
        rename: what config.json calls a field that is usual elsewhere; None leaves it out.
        partial: what config.json calls the part of a head that turns; None where all of it does.
        fields: further keys, and the fields of config.json that hold their values; usual ones also, where a value is
            one for each layer.
        absent: the values of those fields whose key may be absent. Of a field without one the key is required.
        present: fields that are true where some tensor's name ends so.
        fixed: fields that the architecture says without a key.
        neutral: keys that say what is so anyway, with that value.
        derive: the last word on config.json.
        patterns: by the end of a Hugging Face name, the pattern from its layout to GGUF's, where that is another. With
            several, it is the row's patterns there, of a source tensor of several parameters.
        tensors: by the end of a Hugging Face name, GGUF's for what the library does not know.
        divided: by the end of a Hugging Face name, the several tensors that a row's parameters are divided among in
            GGUF, in the row's order, each with its pattern or patterns from GGUF's layout.
    """

    architecture: str
    experts: bool = False
    tells: Callable[[Mapping[str, Any]], bool] = lambda keys: True
    latent: bool = False
    epsilon: str = "rms_norm_eps"
    rename: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    partial: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict[str, str])
    absent: Mapping[str, Any] = field(default_factory=dict[str, Any])
    present: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict[str, str | tuple[str, ...]])
    fixed: Mapping[str, Any] = field(default_factory=dict[str, Any])
    neutral: Mapping[str, Any] = field(default_factory=dict[str, Any])
    derive: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    patterns: Mapping[str, Patterns] = field(default_factory=dict[str, Patterns])
    tensors: Mapping[str, str] = field(default_factory=dict[str, str])
    divided: Mapping[str, Mapping[str, Patterns]] = field(default_factory=dict[str, Mapping[str, Patterns]])


# A head is rotated as two halves here and as neighbouring pairs by llama.cpp's llama, whose files have the rows of
# queries and keys in another order therefore. Most other architectures turn halves there too.
PAIRED_ROWS: Mapping[str, Patterns] = {
    "q_proj.weight": "(heads two pairs) embed -> (heads pairs two) embed",
    "k_proj.weight": "(kv_heads two pairs) embed -> (kv_heads pairs two) embed",
    "q_proj.bias": "(heads two pairs) -> (heads pairs two)",
    "k_proj.bias": "(kv_heads two pairs) -> (kv_heads pairs two)",
}

_PARTS = ("heads", "kv_heads", "kv_heads")
# Queries, keys and values one below the other, where the source has them head by head.
STACKED_QKV: Mapping[str, Patterns] = {
    "query_key_value.weight": tuple(f"[{part} head_dim] embed -> embed {part} head_dim" for part in _PARTS),
    "query_key_value.bias": tuple(f"[{part} head_dim] -> {part} head_dim" for part in _PARTS),
}
# Which biases a file has.
BIASES: Mapping[str, str | tuple[str, ...]] = {
    "attention_bias": (".attn_q.bias", ".attn_k.bias", ".attn_v.bias", ".attn_output.bias"),
    "mlp_bias": (".ffn_gate.bias", ".ffn_up.bias", ".ffn_down.bias"),
}
ATTENTION_BIAS = {"attention_bias": BIASES["attention_bias"]}
# Gates and ups of all experts, which the converter always takes apart.
GATES_AND_UPS: Mapping[str, Patterns] = dict.fromkeys(
    ("blk.{i}.ffn_gate_exps.weight", "blk.{i}.ffn_up_exps.weight"), "experts ffn embed -> experts embed ffn"
)
# How many experts, how many of them a token goes to, and how wide they are.
EXPERT_COUNTS: Mapping[str, str] = {
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
}
# How many of a file's blocks predict further tokens; where a family has the key, they are left out.
FURTHER_TOKENS = "nextn_predict_layers"
# Experts as DeepSeek's: chosen from groups and beside shared ones, after some dense layers.
DEEPSEEK_EXPERTS: Mapping[str, str] = {
    "leading_dense_block_count": "first_k_dense_replace",
    "expert_count": "n_routed_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_shared_count": "n_shared_experts",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_weights_scale": "routed_scaling_factor",
    "expert_weights_norm": "norm_topk_prob",
    "expert_group_count": "n_group",
    "expert_group_used_count": "topk_group",
    FURTHER_TOKENS: "num_nextn_predict_layers",
}
# What llama.cpp takes for granted of them.
DEEPSEEK_ABSENT: Mapping[str, Any] = {
    **{"routed_scaling_factor": 1.0, "norm_topk_prob": False, "n_group": 1, "topk_group": 1},
    "num_nextn_predict_layers": 0,
}
# Keys and values up from the latent: the converter turns keys over, for they are multiplied into queries there.
LATENT_PARTS: Mapping[str, Mapping[str, Patterns]] = {
    "kv_b_proj.weight": {
        "blk.{i}.attn_k_b.weight": "heads latent head_dim -> latent heads head_dim",
        "blk.{i}.attn_v_b.weight": "heads head_dim latent -> latent heads head_dim",
    }
}
# The number by which files say that experts are weighed by a softmax, and by sigmoids.
SOFTMAX, SIGMOID = 1, 2
YARN_MAGNITUDE = {"rope.scaling.yarn_log_multiplier": "mscale_all_dim"}
SELECTION_BIAS = {"e_score_correction_bias": "blk.{i}.exp_probs_b.bias"}


def without_further_tokens(config: dict[str, Any]) -> dict[str, Any]:
    """Without the layers that predict further tokens, which GGUF counts among its blocks."""
    layers = config["num_hidden_layers"] - config["num_nextn_predict_layers"]
    return {**config, "num_hidden_layers": layers, "num_nextn_predict_layers": 0}


def with_yarn_magnitude(config: dict[str, Any], unit: float = 1.0, other: float | None = None) -> dict[str, Any]:
    """With what YaRN multiplies queries and keys by in the rope's own object, where the file says it.

    Args:
        config: a config.json, with `mscale_all_dim` as the file has it.
        unit: what the file multiplies it by.
        other: the other of the two weights, of which GGUF has none; where this is None it is the same.
    """
    result, found = dict(config), config["mscale_all_dim"]
    del result["mscale_all_dim"]
    if found is None or config["rope_scaling"] is None:
        return result
    weight = round(found / unit, 6)
    weights = {"mscale": weight if other is None else other, "mscale_all_dim": weight}
    return {**result, "rope_scaling": {**config["rope_scaling"], **weights}}


def with_query_scalar(config: dict[str, Any], largest: int) -> dict[str, Any]:
    """With Gemma's `query_pre_attn_scalar`, which no key has: it is the width of a head, but for the largest model.

    Args:
        config: a config.json.
        largest: how many layers that one has, by which llama.cpp knows it too.
    """
    heads, is_largest = config["num_attention_heads"], config["num_hidden_layers"] == largest
    return {**config, "query_pre_attn_scalar": config["hidden_size"] // heads if is_largest else config["head_dim"]}
