"""Cohere Command R: attention and MLP side by side after one layer norm, neighbours turn, logits have a scale.

A norm of its own for each head's queries and keys is optional.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig, Norm, QkNorm

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, GATED_MLP, OWN_QK_NORMS, PRE_NORMS, ROPE_BUFFERS
from ..gguf_column import ATTENTION_BIAS, GgufColumn
from ..hf_config import Fields
from ..hf_decoder import defaults, read_attention, read_decoder, read_gated_mlp
from ..tiny import tiny

ARCHITECTURES = ("CohereForCausalLM",)
ROWS = (*EMBEDDING_AND_HEAD, *PRE_NORMS, *ATTENTION, *OWN_QK_NORMS, *GATED_MLP)
PASSENGERS = ROPE_BUFFERS
DEFAULTS = {
    **defaults(256000, 8192, 22528, layers=40, heads=64, positions=8192, tie_word_embeddings=True),
    **{"layer_norm_eps": 1e-5, "logit_scale": 0.0625, "use_qk_norm": False},
}
GGUF = GgufColumn(
    "command-r",
    epsilon="layer_norm_eps",
    fields={"logit_scale": "logit_scale"},
    present={**ATTENTION_BIAS, "use_qk_norm": ".attn_q_norm.weight"},
)
TINY = {
    **tiny("cohere", "CohereForCausalLM", head_dim=..., rms_norm_eps=..., tie_word_embeddings=True, pad_token_id=0),
    **{"layer_norm_eps": 1e-5, "logit_scale": 0.0625},
}
VARIANTS = {
    "norms of heads, untied, biases": {
        **{"use_qk_norm": True, "tie_word_embeddings": False, "attention_bias": True, "logit_scale": 2.0},
        **{"layer_norm_eps": 0.1, "model_max_length": 131072, "pretraining_tp": 1},
    },
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    norm = Norm(epsilon=fields.number("layer_norm_eps"), kind="layer")
    head_norm = QkNorm(norm=norm, kind="own") if fields.boolean("use_qk_norm") else None
    attn = read_attention(fields, theta=500000.0, interleaved=True, qk_norm=head_norm)
    layer = Layer(attn_norm=norm, attn=attn, mlp_norm=None, mlp=read_gated_mlp(fields), parallel=True)
    layers = [layer] * fields.integer("num_hidden_layers")
    ignored = ["model_max_length", "pretraining_tp"]
    return read_decoder(fields, "cohere", layers, norm, ignored=ignored, logit_multiplier=fields.number("logit_scale"))
