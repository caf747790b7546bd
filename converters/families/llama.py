"""Llama 1 to 3.3, SmolLM2 and their many kin.

Nothing here is unusual: others are described by how they differ from it. `attention_bias` gives a bias to all four
projections of attention. `pretraining_tp` only ever changed the order of a sum, and transformers ignores it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, GATED_MLP, PRE_NORMS, ROPE_BUFFERS
from ..gguf_column import BIASES, PAIRED_ROWS, GgufColumn
from ..hf_config import Fields
from ..hf_decoder import defaults, read_attention, read_decoder, read_gated_mlp, read_norm
from ..tiny import tiny

ARCHITECTURES = ("LlamaForCausalLM",)
ROWS = (*EMBEDDING_AND_HEAD, *PRE_NORMS, *ATTENTION, *GATED_MLP)
PASSENGERS = ROPE_BUFFERS
GGUF = GgufColumn("llama", present=BIASES, patterns=PAIRED_ROWS)
DEFAULTS = defaults(32000, 4096, 11008, positions=2048)
TINY = tiny("llama", "LlamaForCausalLM", head_dim=8, max_position_embeddings=128, attention_bias=False, mlp_bias=False)
VARIANTS = {
    "tied": {"tie_word_embeddings": True},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "wide heads": {"head_dim": 32, "num_key_value_heads": 4},
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    norm, attn, mlp = read_norm(fields), read_attention(fields), read_gated_mlp(fields, bias="mlp_bias")
    layer = Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=mlp)
    layers = [layer] * fields.integer("num_hidden_layers")
    return read_decoder(fields, "llama", layers, norm, ignored=["pretraining_tp"])
