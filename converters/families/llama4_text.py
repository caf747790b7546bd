"""Llama 4's language model: attention within chunks, but for layers without positions whose queries grow.

Experts take in what their weight is multiplied with, beside a shared one; norms of heads have no scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import ModelConfig

from ..blocks import (
    ATTENTION,
    EMBEDDING_AND_HEAD,
    GATED_MLP,
    PRE_NORMS,
    ROPE_BUFFERS,
    SHARED_EXPERTS,
    renamed_rows,
    transposed_expert_rows,
)
from ..gguf_column import ATTENTION_BIAS, GATES_AND_UPS, GgufColumn
from ..hf_config import Fields
from ..hf_decoder import defaults
from ..llama4 import read_llama4
from ..tiny import tiny

ARCHITECTURES = ("Llama4ForCausalLM",)
MLPS = (*renamed_rows((*GATED_MLP, *SHARED_EXPERTS), {"mlp": "feed_forward", "shared_experts": "shared_expert"}),)
ROWS = (
    *(*EMBEDDING_AND_HEAD, *PRE_NORMS, *ATTENTION, *MLPS),
    *transposed_expert_rows("model.layers.{i}.feed_forward"),
)
PASSENGERS = ROPE_BUFFERS
DEFAULTS = {
    **defaults(202048, 5120, 8192, layers=48, heads=40, kv_heads=8, head_dim=128, positions=131072, rms_norm_eps=1e-5),
    **{"intermediate_size_mlp": 16384, "num_local_experts": 16, "num_experts_per_tok": 1, "moe_layers": None},
    **{"interleave_moe_layer_step": 1, "use_qk_norm": True, "no_rope_layers": None, "no_rope_layer_interval": 4},
    **{"attention_chunk_size": 8192, "attn_temperature_tuning": True, "floor_scale": 8192, "attn_scale": 0.1},
}
# GGUF has no key for what is the same in both published models; of norms of heads the number of experts tells.
GGUF = GgufColumn(
    "llama4",
    experts=True,
    fields={
        **{"feed_forward_length": "intermediate_size_mlp", "expert_feed_forward_length": "intermediate_size"},
        **{"expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok"},
        "interleave_moe_layer_step": "interleave_moe_layer_step",
    },
    present=ATTENTION_BIAS,
    fixed={"attention_chunk_size": 8192, "floor_scale": 8192, "attn_scale": 0.1, "no_rope_layer_interval": 4},
    # A chunk is meant, and 0 would be none.
    neutral={"attention.sliding_window": 8192},
    derive=lambda found: {**found, "use_qk_norm": found["num_local_experts"] != 128},
    patterns={"experts.down_proj": "experts ffn embed -> experts embed ffn"},
    tensors={"experts.down_proj": "blk.{i}.ffn_down_exps.weight"},
    divided={"gate_up_proj": GATES_AND_UPS},
)
TINY = {
    **tiny("llama4_text", "Llama4ForCausalLM", num_hidden_layers=3, intermediate_size_mlp=56, num_local_experts=6),
    **{"num_experts_per_tok": 2, "interleave_moe_layer_step": 2, "no_rope_layer_interval": 3, "rope_theta": 500000.0},
    **{"attention_chunk_size": 9, "floor_scale": 7, "attn_scale": 0.4, "rms_norm_eps": 0.1},
    "rope_scaling": {
        **{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        "original_max_position_embeddings": 32,
    },
}
VARIANTS = {
    "no norms of heads, queries that do not grow, tied, biases": {
        **{"use_qk_norm": False, "attn_temperature_tuning": False, "tie_word_embeddings": True, "rope_scaling": ...},
        **{"attention_bias": True, "moe_layers": [0, 2], "no_rope_layers": [1, 0, 1], "num_experts_per_tok": 1},
    },
    "layer types, without chunks": {
        **{"layer_types": ["full_attention", "chunked_attention", "full_attention"], "interleave_moe_layer_step": 1},
    },
    "all full": {"attention_chunk_size": None, "no_rope_layers": []},
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    return read_llama4(fields, "llama4_text")
