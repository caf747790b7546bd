"""Qwen3 with experts: each token takes the best few; some layers may be dense."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig, QkNorm, Router

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, EXPERTS, FUSED_EXPERTS, GATED_MLP, PRE_NORMS, QK_NORMS, ROPE_BUFFERS
from ..gguf_column import ATTENTION_BIAS, EXPERT_COUNTS, GgufColumn
from ..hf_config import Fields
from ..hf_decoder import (
    MOE_IGNORED,
    defaults,
    read_attention,
    read_decoder,
    read_experts,
    read_gated_mlp,
    read_norm,
    read_sparse_layers,
    read_window,
)
from ..tiny import tiny

ARCHITECTURES = ("Qwen3MoeForCausalLM",)
SHARED = (*EMBEDDING_AND_HEAD, *PRE_NORMS, *ATTENTION, *QK_NORMS, *GATED_MLP)
ROWS = (*SHARED, *EXPERTS)
OTHER_ROWS = ((*SHARED, *FUSED_EXPERTS),)
PASSENGERS = ROPE_BUFFERS
DEFAULTS = {
    **defaults(151936, 2048, 6144, layers=24, kv_heads=4, positions=32768, use_sliding_window=False),
    **{"decoder_sparse_step": 1, "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8},
    **{"norm_topk_prob": False, "sliding_window": 4096, "mlp_only_layers": None},
}
GGUF = GgufColumn(
    "qwen3moe", experts=True, fields=EXPERT_COUNTS, present=ATTENTION_BIAS, fixed={"norm_topk_prob": True}
)
TINY = tiny("qwen3_moe", "Qwen3MoeForCausalLM", num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24)
VARIANTS = {
    "normalised, first layer dense, tied": {
        **{"norm_topk_prob": True, "mlp_only_layers": [0], "tie_word_embeddings": True, "num_experts_per_tok": 3},
    },
    "every second layer, window, biases": {
        **{"decoder_sparse_step": 2, "use_sliding_window": True, "sliding_window": 9, "attention_bias": True},
    },
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    # What transformers calls it when it writes a file.
    fields.alias("num_local_experts", "num_experts")
    norm, used = read_norm(fields), fields.boolean("use_sliding_window")
    window = read_window(fields)
    window = window if used else None
    attn = read_attention(fields, qk_norm=QkNorm(norm=norm, kind="shared"), window=window)
    top_k, normalise = fields.integer("num_experts_per_tok"), fields.boolean("norm_topk_prob")
    router = Router(top_k=top_k, score="softmax", normalise=normalise)
    experts = read_experts(fields, count="num_experts", width="moe_intermediate_size", router=router)
    dense = read_gated_mlp(fields)
    layers = [
        Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=experts if sparse else dense)
        for sparse in read_sparse_layers(fields)
    ]
    ignored = [*MOE_IGNORED, "sliding_window", "max_window_layers"]
    return read_decoder(fields, "qwen3_moe", layers, norm, ignored=ignored)
