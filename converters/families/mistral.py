"""Mistral: Llama with a window on every layer, or on none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, GATED_MLP, PRE_NORMS, ROPE_BUFFERS
from ..hf_config import Fields
from ..hf_decoder import defaults, read_attention, read_decoder, read_gated_mlp, read_norm, read_window
from ..tiny import tiny

ARCHITECTURES = ("MistralForCausalLM",)
ROWS = (*EMBEDDING_AND_HEAD, *PRE_NORMS, *ATTENTION, *GATED_MLP)
PASSENGERS = ROPE_BUFFERS
DEFAULTS = defaults(32000, 4096, 14336, kv_heads=8, positions=131072, sliding_window=4096)
TINY = tiny("mistral", "MistralForCausalLM", sliding_window=9)
VARIANTS = {
    "no window, tied": {"sliding_window": None, "tie_word_embeddings": True},
    "head_dim by default": {"head_dim": None},
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    norm, mlp = read_norm(fields), read_gated_mlp(fields)
    attn = read_attention(fields, qkv_bias=False, output_bias=False, window=read_window(fields))
    layer = Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=mlp)
    return read_decoder(fields, "mistral", [layer] * fields.integer("num_hidden_layers"), norm)
