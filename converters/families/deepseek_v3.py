"""DeepSeek V3 and R1: latent attention, and experts chosen by sigmoids with a bias on the choice, beside shared ones.

The first layers are dense; a layer that predicts further tokens follows the last, and is carried along.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import ModelConfig, Router

from ..blocks import (
    EMBEDDING_AND_HEAD,
    EXPERTS,
    FUSED_EXPERTS,
    GATED_MLP,
    LATENT_ATTENTION,
    LAYERS_AFTER,
    PRE_NORMS,
    ROPE_BUFFERS,
    SELECTION_BIAS,
    SHARED_EXPERTS,
)
from ..gguf_column import LATENT_PARTS, SIGMOID, GgufColumn, with_yarn_magnitude, without_further_tokens
from ..gguf_column import SELECTION_BIAS as GGUF_SELECTION_BIAS
from ..hf_config import Fields
from ..hf_decoder import (
    DEEPSEEK_IGNORED,
    defaults,
    read_decoder,
    read_deepseek_layers,
    read_latent_attention,
    read_norm,
)
from ..tiny import tiny
from .deepseek_v2 import LATENT_ABSENT, LATENT_FIELDS, with_groups

ARCHITECTURES = ("DeepseekV3ForCausalLM",)
SHARED = (*EMBEDDING_AND_HEAD, *PRE_NORMS, *LATENT_ATTENTION, *GATED_MLP, *SHARED_EXPERTS, SELECTION_BIAS)
ROWS = (*SHARED, *EXPERTS)
OTHER_ROWS = ((*SHARED, *FUSED_EXPERTS),)
PASSENGERS = (*ROPE_BUFFERS, *LAYERS_AFTER)
DEFAULTS = {
    **defaults(129280, 7168, 18432, layers=61, heads=128, positions=4096, moe_intermediate_size=2048),
    **{"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128},
    **{"n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3},
    **{"n_group": 8, "topk_group": 4, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "rope_interleave": True},
}
GGUF = GgufColumn(
    "deepseek2",
    experts=True,
    tells=lambda keys: keys.get("expert_gating_func") == SIGMOID,
    latent=True,
    rename={"head_dim": None},
    fields=LATENT_FIELDS,
    absent=LATENT_ABSENT,
    present={"attention_bias": ".attn_kv_a_mqa.bias"},
    fixed={"rope_interleave": True},
    neutral={"expert_gating_func": SIGMOID},
    derive=lambda found: with_yarn_magnitude(without_further_tokens(with_groups(found, 256, 8, 4)), unit=0.1),
    tensors=GGUF_SELECTION_BIAS,
    divided=LATENT_PARTS,
)
TINY = {
    **tiny("deepseek_v3", "DeepseekV3ForCausalLM", num_key_value_heads=4, head_dim=..., moe_intermediate_size=24),
    **{"q_lora_rank": 20, "kv_lora_rank": 28, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 16},
    **{"n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 3, "first_k_dense_replace": 1},
    **{"n_group": 4, "topk_group": 2, "num_nextn_predict_layers": 0, "scoring_func": "sigmoid"},
    **{"topk_method": "noaux_tc", "moe_layer_freq": 1, "ep_size": 1, "pretraining_tp": 1},
    "rope_scaling": {
        **{"type": "yarn", "factor": 4, "original_max_position_embeddings": 16, "beta_fast": 32, "beta_slow": 1},
        **{"mscale": 1.0, "mscale_all_dim": 1.0},
    },
}
VARIANTS = {
    "no latent queries, halves turn, all with experts, tied": {
        **{"q_lora_rank": None, "rope_interleave": False, "first_k_dense_replace": 0, "tie_word_embeddings": True},
        **{"n_group": 1, "topk_group": 1, "norm_topk_prob": False, "routed_scaling_factor": 1.5, "rope_scaling": ...},
    },
    "biases, uneven magnitudes": {
        **{"attention_bias": True, "n_shared_experts": 1, "rms_norm_eps": 0.1},
        "rope_scaling": {
            **{"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16},
            **{"mscale": 0.7, "mscale_all_dim": 1.3},
        },
    },
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    attn = read_latent_attention(fields, interleaved=fields.boolean("rope_interleave"))
    router = Router(
        top_k=fields.integer("num_experts_per_tok"),
        score="sigmoid",
        normalise=fields.boolean("norm_topk_prob"),
        scale=fields.number("routed_scaling_factor"),
        selection_bias=True,
    )
    layers = read_deepseek_layers(fields, attn, router, judged_by=2)
    fields.neutral({"scoring_func": ("sigmoid",), "topk_method": ("noaux_tc",), "moe_layer_freq": (1,)})
    return read_decoder(fields, "deepseek_v3", layers, read_norm(fields), ignored=DEEPSEEK_IGNORED)
