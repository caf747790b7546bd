"""Gemma 1: Llama whose norms multiply by 1 + scale, with embeddings times the root of their width.

`hidden_act` gelu means its tanh form, as transformers reads these files. `hidden_activation`, which some files name
beside it, is not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, GATED_MLP, PRE_NORMS, ROPE_BUFFERS
from ..gguf_column import ATTENTION_BIAS, GgufColumn
from ..hf_config import Fields
from ..hf_decoder import defaults, read_attention, read_decoder, read_gated_mlp, read_norm
from ..tiny import tiny

ARCHITECTURES = ("GemmaForCausalLM",)
ROWS = (*EMBEDDING_AND_HEAD, *PRE_NORMS, *ATTENTION, *GATED_MLP)
PASSENGERS = ROPE_BUFFERS
DEFAULTS = {
    **defaults(256000, 3072, 24576, layers=28, heads=16, kv_heads=16, head_dim=256, positions=8192),
    **{"hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True},
}
GGUF = GgufColumn("gemma", present=ATTENTION_BIAS, fixed={"hidden_act": "gelu_pytorch_tanh"})
TINY = tiny("gemma", "GemmaForCausalLM", hidden_act="gelu", tie_word_embeddings=True, pad_token_id=0)
VARIANTS = {
    "untied, biases": {"tie_word_embeddings": False, "attention_bias": True, "hidden_act": "gelu_pytorch_tanh"},
    "another activation": {"hidden_act": "silu", "rms_norm_eps": 0.1},
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    meant = {"hidden_act": "gelu_pytorch_tanh"} if hf.get("hidden_act") == "gelu" else {}
    fields = Fields({**hf, **meant}, DEFAULTS)
    norm = read_norm(fields, offset=1.0)
    layer = Layer(attn_norm=norm, attn=read_attention(fields), mlp_norm=norm, mlp=read_gated_mlp(fields))
    layers = [layer] * fields.integer("num_hidden_layers")
    fields.neutral({"use_bidirectional_attention": (False,)})
    options = {"embedding_multiplier": fields.integer("hidden_size") ** 0.5, "ignored": ["hidden_activation"]}
    return read_decoder(fields, "gemma", layers, norm, **options)
