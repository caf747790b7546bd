"""OLMo 2: norms after both halves of a block and not before, one over all heads' queries, one over their keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig, QkNorm

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, GATED_MLP, JOINT_QK_NORMS, POST_NORMS, ROPE_BUFFERS
from ..gguf_column import ATTENTION_BIAS, GgufColumn
from ..hf_config import Fields
from ..hf_decoder import defaults, read_attention, read_decoder, read_gated_mlp, read_norm
from ..tiny import tiny

ARCHITECTURES = ("Olmo2ForCausalLM",)
ROWS = (*EMBEDDING_AND_HEAD, *POST_NORMS, *ATTENTION, *JOINT_QK_NORMS, *GATED_MLP)
PASSENGERS = ROPE_BUFFERS
DEFAULTS = defaults(50304, 4096, 11008, positions=2048, rms_norm_eps=1e-5)
GGUF = GgufColumn("olmo2", tells=lambda keys: not keys.get("attention.sliding_window"), present=ATTENTION_BIAS)
TINY = tiny("olmo2", "Olmo2ForCausalLM", head_dim=..., pad_token_id=0)
VARIANTS = {"tied, biases": {"tie_word_embeddings": True, "attention_bias": True, "rms_norm_eps": 0.1}}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    norm, mlp = read_norm(fields), read_gated_mlp(fields)
    attn = read_attention(fields, qk_norm=QkNorm(norm=norm, kind="joint"))
    layer = Layer(attn_norm=None, attn=attn, attn_post_norm=norm, mlp_norm=None, mlp=mlp, mlp_post_norm=norm)
    return read_decoder(fields, "olmo2", [layer] * fields.integer("num_hidden_layers"), norm)
