"""DeepSeek V2: latent attention, and experts chosen from the groups of the best ones, beside shared ones."""

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
    PRE_NORMS,
    ROPE_BUFFERS,
    SHARED_EXPERT_BIASES,
    SHARED_EXPERTS,
)
from ..gguf_column import (
    DEEPSEEK_ABSENT,
    DEEPSEEK_EXPERTS,
    FURTHER_TOKENS,
    LATENT_PARTS,
    SOFTMAX,
    YARN_MAGNITUDE,
    GgufColumn,
    with_yarn_magnitude,
)
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

ARCHITECTURES = ("DeepseekV2ForCausalLM",)
SHARED = (*EMBEDDING_AND_HEAD, *PRE_NORMS, *LATENT_ATTENTION, *GATED_MLP, *SHARED_EXPERTS, *SHARED_EXPERT_BIASES)
ROWS = (*SHARED, *EXPERTS)
OTHER_ROWS = ((*SHARED, *FUSED_EXPERTS),)
PASSENGERS = ROPE_BUFFERS
DEFAULTS = {
    **defaults(102400, 4096, 11008, positions=2048, moe_intermediate_size=1407, norm_topk_prob=False),
    **{"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128},
    **{"n_routed_experts": 64, "n_shared_experts": 2, "first_k_dense_replace": 0, "topk_method": "greedy"},
    "routed_scaling_factor": 1.0,
}


def with_groups(config: dict[str, Any], experts: int, groups: int, kept: int) -> dict[str, Any]:
    """With the groups of experts, which older files do not say: of that many experts they are so many."""
    if config["n_group"] is None:
        count, used = (groups, kept) if config["n_routed_experts"] == experts else (1, 1)
        config = {**config, "n_group": count, "topk_group": used}
    return config


def _without_silence(found: dict[str, Any]) -> dict[str, Any]:
    """The large model chooses from groups, which is another method; a file does not say which."""
    found = with_yarn_magnitude(with_groups(found, 160, 8, 3), unit=0.1)
    return {**found, "topk_method": "group_limited_greedy" if found["n_group"] > 1 else "greedy"}


LATENT_FIELDS = {**DEEPSEEK_EXPERTS, **YARN_MAGNITUDE, "attention.q_lora_rank": "q_lora_rank"}
LATENT_ABSENT = {
    **DEEPSEEK_ABSENT,
    **{"q_lora_rank": None, "mscale_all_dim": None, "n_group": None, "topk_group": None},
}
GGUF = GgufColumn(
    "deepseek2",
    experts=True,
    tells=lambda keys: keys.get("expert_gating_func", SOFTMAX) == SOFTMAX,
    latent=True,
    rename={"head_dim": None},
    fields={key: name for key, name in LATENT_FIELDS.items() if key != FURTHER_TOKENS},
    absent=LATENT_ABSENT,
    present={"attention_bias": ".attn_kv_a_mqa.bias", "mlp_bias": (".ffn_gate.bias", ".ffn_gate_shexp.bias")},
    neutral={"expert_gating_func": SOFTMAX},
    derive=_without_silence,
    divided=LATENT_PARTS,
)
TINY = {
    **tiny("deepseek_v2", "DeepseekV2ForCausalLM", num_key_value_heads=4, head_dim=..., moe_intermediate_size=24),
    **{"q_lora_rank": 20, "kv_lora_rank": 28, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 16},
    **{"n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 3, "first_k_dense_replace": 1},
    **{"n_group": 4, "topk_group": 2, "topk_method": "group_limited_greedy", "routed_scaling_factor": 2.5},
    **{"scoring_func": "softmax", "moe_layer_freq": 1, "aux_loss_alpha": 0.001, "seq_aux": True, "ep_size": 1},
    "rope_scaling": {
        **{"type": "yarn", "factor": 4, "original_max_position_embeddings": 16, "beta_fast": 32, "beta_slow": 1},
        **{"mscale": 0.7, "mscale_all_dim": 0.7},
    },
}
VARIANTS = {
    "no latent queries, no groups, all with experts, tied": {
        **{"q_lora_rank": None, "first_k_dense_replace": 0, "tie_word_embeddings": True, "topk_method": "greedy"},
        **{"n_group": 1, "topk_group": 1, "rope_scaling": ..., "n_shared_experts": 1},
    },
    "biases": {"attention_bias": True, "mlp_bias": True, "n_group": None, "topk_method": "greedy"},
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    attn = read_latent_attention(fields, interleaved=True)
    router = Router(
        top_k=fields.integer("num_experts_per_tok"), score="softmax", scale=fields.number("routed_scaling_factor")
    )
    grouped = fields.choice("topk_method", {"greedy": False, "group_limited_greedy": True})
    layers = read_deepseek_layers(fields, attn, router, bias="mlp_bias", judged_by=1 if grouped else None)
    # transformers does not look at norm_topk_prob, others do.
    fields.neutral({"scoring_func": ("softmax",), "moe_layer_freq": (1,), "norm_topk_prob": (False,)})
    return read_decoder(fields, "deepseek_v2", layers, read_norm(fields), ignored=DEEPSEEK_IGNORED)
