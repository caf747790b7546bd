"""Gemma 2: norms before and after both halves of a block, all with 1 + scale; windows on every other layer; soft caps.

Embedded tokens are multiplied by the root of their width, and scores by that of `query_pre_attn_scalar`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, GATED_MLP, ROPE_BUFFERS, SANDWICH_NORMS
from ..gguf_column import ATTENTION_BIAS, GgufColumn, with_query_scalar
from ..hf_config import Fields
from ..hf_decoder import (
    FULL,
    SLIDING,
    defaults,
    read_attention,
    read_decoder,
    read_gated_mlp,
    read_norm,
    read_windows,
    with_windows,
)
from ..tiny import tiny

ARCHITECTURES = ("Gemma2ForCausalLM",)
ROWS = (*EMBEDDING_AND_HEAD, *SANDWICH_NORMS, *ATTENTION, *GATED_MLP)
PASSENGERS = ROPE_BUFFERS
GELU = {"hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True}
CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
DEFAULTS = {
    **defaults(256000, 2304, 9216, layers=26, heads=8, kv_heads=4, head_dim=256, positions=8192),
    **{**GELU, **CAPS, "query_pre_attn_scalar": 256, "sliding_window": 4096},
}
SMALL_CAPS = {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}
GGUF = GgufColumn(
    "gemma2",
    rename={"hidden_act": "hidden_activation"},
    fields={"attention.sliding_window": "sliding_window", **{name: name for name in CAPS}},
    present=ATTENTION_BIAS,
    fixed={"hidden_act": "gelu_pytorch_tanh"},
    derive=lambda found: with_query_scalar(found, 46),
)
TINY = {
    **tiny("gemma2", "Gemma2ForCausalLM", hidden_act=..., **GELU),
    **{**SMALL_CAPS, "query_pre_attn_scalar": 24, "sliding_window": 9},
}
NO_CAPS = {"attn_logit_softcapping": None, "final_logit_softcapping": None}
VARIANTS = {
    "no caps, untied": {**NO_CAPS, "tie_word_embeddings": False, "hidden_activation": "gelu"},
    "layer types, biases": {"layer_types": ["full_attention", "sliding_attention"], "attention_bias": True},
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    norm, mlp = read_norm(fields, offset=1.0), read_gated_mlp(fields, activation="hidden_activation")
    scale, softcap = fields.number("query_pre_attn_scalar") ** -0.5, fields.optional_number("attn_logit_softcapping")
    attn = read_attention(fields, scale=scale, softcap=softcap)
    layer = Layer(attn_norm=norm, attn=attn, attn_post_norm=norm, mlp_norm=norm, mlp=mlp, mlp_post_norm=norm)
    windows = read_windows(fields, lambda index: FULL if index % 2 else SLIDING)
    fields.neutral({"sliding_window_size": (fields.values["sliding_window"],)})
    options = {
        "embedding_multiplier": fields.integer("hidden_size") ** 0.5,
        "logit_softcap": fields.optional_number("final_logit_softcapping"),
    }
    return read_decoder(fields, "gemma2", with_windows(layer, windows), norm, ignored=["hidden_act"], **options)
