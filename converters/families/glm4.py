"""GLM-4-0414: norms before and after both halves of a block, neighbours turn in half of a head, gate and up in one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, GATE_UP, GATED_MLP, PRE_NORMS, ROPE_BUFFERS
from ..gguf_column import GgufColumn
from ..hf_config import Fields
from ..hf_decoder import defaults, read_attention, read_decoder, read_gated_mlp, read_norm
from ..layout import Row
from ..tiny import tiny

ARCHITECTURES = ("Glm4ForCausalLM",)
NORMS = (
    Row("model.layers.{i}.post_self_attn_layernorm.weight", "layers.{i}.attn_post_norm.scale", "embed -> embed"),
    Row("model.layers.{i}.post_mlp_layernorm.weight", "layers.{i}.mlp_post_norm.scale", "embed -> embed"),
)
ROWS = (*EMBEDDING_AND_HEAD, *PRE_NORMS, *NORMS, *ATTENTION, GATE_UP, GATED_MLP[2])
PASSENGERS = ROPE_BUFFERS
DEFAULTS = {
    **defaults(151552, 4096, 13696, layers=40, kv_heads=2, head_dim=128, positions=131072),
    **{"rms_norm_eps": 1.5625e-07, "attention_bias": True},
}
GGUF = GgufColumn("glm4", partial="partial_rotary_factor", present={"attention_bias": ".attn_q.bias"})
TINY = tiny("glm4", "Glm4ForCausalLM", pad_token_id=0, attention_bias=True, partial_rotary_factor=0.5)
VARIANTS = {
    "no biases, tied, all of a head": {
        **{"attention_bias": False, "tie_word_embeddings": True, "partial_rotary_factor": 1.0, "rms_norm_eps": 0.1},
    },
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    norm, mlp = read_norm(fields), read_gated_mlp(fields)
    bias = fields.boolean("attention_bias")
    attn = read_attention(fields, fraction=0.5, interleaved=True, qkv_bias=bias, output_bias=False)
    layer = Layer(attn_norm=norm, attn=attn, attn_post_norm=norm, mlp_norm=norm, mlp=mlp, mlp_post_norm=norm)
    return read_decoder(fields, "glm4", [layer] * fields.integer("num_hidden_layers"), norm)
