"""GLM-4.5 with experts: chosen by sigmoids with a bias on the choice, beside shared ones; half of a head turns.

The first layers are dense; a layer that predicts further tokens follows the last, and is carried along.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import ModelConfig, QkNorm, Router

from ..blocks import (
    ATTENTION,
    EMBEDDING_AND_HEAD,
    EXPERTS,
    FUSED_EXPERTS,
    GATED_MLP,
    LAYERS_AFTER,
    PRE_NORMS,
    QK_NORMS,
    ROPE_BUFFERS,
    SELECTION_BIAS,
    SHARED_EXPERTS,
)
from ..gguf_column import (
    DEEPSEEK_ABSENT,
    DEEPSEEK_EXPERTS,
    SIGMOID,
    GgufColumn,
    without_further_tokens,
)
from ..gguf_column import SELECTION_BIAS as GGUF_SELECTION_BIAS
from ..hf_config import Fields
from ..hf_decoder import DEEPSEEK_IGNORED, defaults, read_attention, read_decoder, read_deepseek_layers, read_norm
from ..tiny import tiny

ARCHITECTURES = ("Glm4MoeForCausalLM",)
SHARED = (*EMBEDDING_AND_HEAD, *PRE_NORMS, *ATTENTION, *QK_NORMS, *GATED_MLP, *SHARED_EXPERTS, SELECTION_BIAS)
ROWS = (*SHARED, *EXPERTS)
OTHER_ROWS = ((*SHARED, *FUSED_EXPERTS),)
PASSENGERS = (*ROPE_BUFFERS, *LAYERS_AFTER)
DEFAULTS = {
    **defaults(151552, 4096, 10944, layers=46, heads=96, kv_heads=8, positions=131072, rms_norm_eps=1e-5),
    **{"moe_intermediate_size": 1408, "num_experts_per_tok": 8, "n_shared_experts": 1, "n_routed_experts": 128},
    **{"routed_scaling_factor": 1.0, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1},
    **{"norm_topk_prob": True, "use_qk_norm": False},
}
GGUF = GgufColumn(
    "glm4moe",
    experts=True,
    partial="partial_rotary_factor",
    fields=DEEPSEEK_EXPERTS,
    absent=DEEPSEEK_ABSENT,
    present={"attention_bias": ".attn_q.bias", "use_qk_norm": ".attn_q_norm.weight"},
    neutral={"expert_gating_func": SIGMOID},
    derive=without_further_tokens,
    tensors=GGUF_SELECTION_BIAS,
)
TINY = {
    **tiny("glm4_moe", "Glm4MoeForCausalLM", moe_intermediate_size=24, n_routed_experts=8, num_experts_per_tok=3),
    **{"n_shared_experts": 2, "routed_scaling_factor": 2.5, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1},
    **{"partial_rotary_factor": 0.5, "num_nextn_predict_layers": 0},
}
VARIANTS = {
    "norms of heads, all with experts, tied": {
        **{"use_qk_norm": True, "first_k_dense_replace": 0, "tie_word_embeddings": True, "n_shared_experts": 1},
        **{"norm_topk_prob": False, "n_group": 1, "topk_group": 1, "attention_bias": True},
    },
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    head_norm = QkNorm(norm=read_norm(fields), kind="shared") if fields.boolean("use_qk_norm") else None
    bias = fields.boolean("attention_bias")
    attn = read_attention(fields, fraction=0.5, qkv_bias=bias, output_bias=False, qk_norm=head_norm)
    router = Router(
        top_k=fields.integer("num_experts_per_tok"),
        score="sigmoid",
        normalise=fields.boolean("norm_topk_prob"),
        scale=fields.number("routed_scaling_factor"),
        selection_bias=True,
    )
    layers = read_deepseek_layers(fields, attn, router, judged_by=2)
    return read_decoder(fields, "glm4_moe", layers, read_norm(fields), ignored=DEEPSEEK_IGNORED)
