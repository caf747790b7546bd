"""Gemma 4's language model: heads of two sizes, keys and values shared by the last layers, an input for each layer.

Layers without a window may take keys for values; the large model has experts beside each MLP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import ModelConfig

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, GATED_MLP, QK_NORMS, ROPE_BUFFERS, SANDWICH_NORMS
from ..gemma4 import BESIDE, LAYER, LAYER_INPUTS, ROPES, read_gemma4
from ..hf_config import Fields
from ..hf_decoder import FULL, SLIDING, defaults
from ..tiny import tiny

ARCHITECTURES = ("Gemma4ForCausalLM",)
ROWS = (*EMBEDDING_AND_HEAD, *SANDWICH_NORMS, *ATTENTION, *QK_NORMS, *GATED_MLP, *LAYER_INPUTS, *BESIDE)
# Files have keys and values also for layers that take them from another.
UNUSED = tuple(f"{LAYER}.self_attn.{name}.weight" for name in ("k_proj", "v_proj", "k_norm", "v_norm"))
PASSENGERS = (*ROPE_BUFFERS, *UNUSED)
GELU = {"hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True}
DEFAULTS = {
    **defaults(262144, 2304, 9216, layers=30, heads=8, kv_heads=4, head_dim=256, positions=131072, **GELU),
    **{"sliding_window": 512, "vocab_size_per_layer_input": 262144, "global_head_dim": 512},
    **{"hidden_size_per_layer_input": 256, "num_kv_shared_layers": 0},
}
TINY = {
    **tiny("gemma4_text", "Gemma4ForCausalLM", hidden_act=..., num_hidden_layers=6, rope_theta=..., **GELU),
    **{"layer_types": [SLIDING, FULL, SLIDING, SLIDING, SLIDING, FULL], "global_head_dim": 24, "sliding_window": 9},
    **{"num_kv_shared_layers": 3, "hidden_size_per_layer_input": 12, "vocab_size_per_layer_input": 128},
    **{"use_double_wide_mlp": True, "final_logit_softcapping": 3.0, "rope_parameters": ROPES},
}
VARIANTS = {
    "experts, keys for values, nothing shared, untied": {
        **{"enable_moe_block": True, "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 20},
        **{"attention_k_eq_v": True, "num_global_key_value_heads": 1, "num_kv_shared_layers": 0, "rms_norm_eps": 0.1},
        **{"hidden_size_per_layer_input": 0, "use_double_wide_mlp": False, "tie_word_embeddings": False},
        **{"attention_bias": True, "final_logit_softcapping": None},
    },
    "as transformers writes it": {
        **{"layer_types": [SLIDING, FULL] * 3, "global_head_dim": ..., "hidden_activation": "gelu"},
        **{"per_layer_config": {str(index): {"head_dim": 32, "num_key_value_heads": 4} for index in (1, 3, 5)}},
        "rope_parameters": {
            FULL: {**ROPES[FULL], "partial_rotary_factor": 0.5, "factor": 2.0},
            SLIDING: ROPES[SLIDING],
        },
    },
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    return read_gemma4(Fields(hf, DEFAULTS), "gemma4_text")
