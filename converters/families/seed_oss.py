"""Seed-OSS: Llama with biases of queries, keys and values, and one of the output that has a field of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, GATED_MLP, PRE_NORMS, ROPE_BUFFERS
from ..gguf_column import BIASES, GgufColumn
from ..hf_config import Fields
from ..hf_decoder import defaults, read_attention, read_decoder, read_gated_mlp, read_norm
from ..tiny import tiny

ARCHITECTURES = ("SeedOssForCausalLM",)
ROWS = (*EMBEDDING_AND_HEAD, *PRE_NORMS, *ATTENTION, *GATED_MLP)
PASSENGERS = ROPE_BUFFERS
DEFAULTS = {
    **defaults(155136, 4096, 27648, layers=64, heads=80, kv_heads=8, head_dim=128, positions=524288),
    **{"attention_bias": True, "attention_out_bias": False, "mlp_bias": False},
}
GGUF = GgufColumn(
    "seed_oss",
    present={**BIASES, "attention_bias": ".attn_q.bias", "attention_out_bias": ".attn_output.bias"},
)
TINY = tiny("seed_oss", "SeedOssForCausalLM", attention_bias=True, attention_out_bias=False)
VARIANTS = {
    "all biases, tied": {"attention_out_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    "no biases": {"attention_bias": False},
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    norm, mlp = read_norm(fields), read_gated_mlp(fields, bias="mlp_bias")
    bias, output_bias = fields.boolean("attention_bias"), fields.boolean("attention_out_bias")
    attn = read_attention(fields, qkv_bias=bias, output_bias=output_bias)
    layer = Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=mlp)
    layers = [layer] * fields.integer("num_hidden_layers")
    return read_decoder(fields, "seed_oss", layers, norm, ignored=["pretraining_tp", "residual_dropout"])
