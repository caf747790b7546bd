"""Granite 3 (dense): Llama with multipliers of embeddings, of scores, of both halves of a block, and of logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, GATED_MLP, PRE_NORMS, ROPE_BUFFERS
from ..gguf_column import BIASES, PAIRED_ROWS, GgufColumn
from ..hf_config import Fields
from ..hf_decoder import defaults, read_attention, read_decoder, read_gated_mlp, read_norm
from ..tiny import tiny

ARCHITECTURES = ("GraniteForCausalLM",)
ROWS = (*EMBEDDING_AND_HEAD, *PRE_NORMS, *ATTENTION, *GATED_MLP)
PASSENGERS = ROPE_BUFFERS
ONES = {"embedding_multiplier": 1.0, "logits_scaling": 1.0, "residual_multiplier": 1.0, "attention_multiplier": 1.0}
DEFAULTS = {**defaults(32000, 4096, 11008, positions=2048), **ONES}
GGUF = GgufColumn(
    "granite",
    fields={
        **{"attention.scale": "attention_multiplier", "embedding_scale": "embedding_multiplier"},
        **{"residual_scale": "residual_multiplier", "logit_scale": "logits_scaling"},
    },
    present=BIASES,
    patterns=PAIRED_ROWS,
)
TINY = {
    **tiny("granite", "GraniteForCausalLM", head_dim=..., tie_word_embeddings=True),
    **{"embedding_multiplier": 12.0, "attention_multiplier": 0.3, "residual_multiplier": 0.22, "logits_scaling": 8.0},
}
VARIANTS = {
    "biases, untied": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False},
    **{f"{name} 1": {name: 1.0} for name in ONES},
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    norm, mlp = read_norm(fields), read_gated_mlp(fields, bias="mlp_bias")
    attn = read_attention(fields, scale=fields.number("attention_multiplier"))
    residual = fields.number("residual_multiplier")
    layer = Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=mlp, residual_multiplier=residual)
    return read_decoder(
        fields,
        "granite",
        [layer] * fields.integer("num_hidden_layers"),
        norm,
        embedding_multiplier=fields.number("embedding_multiplier"),
        logit_multiplier=1 / fields.number("logits_scaling"),
    )
