"""Qwen1.5 and 2 with experts: beside those chosen, one that every token shares, times a gate of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import GatedMlp, Layer, ModelConfig, Router

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, EXPERTS, FUSED_EXPERTS, GATED_MLP, PRE_NORMS, ROPE_BUFFERS
from ..gguf_column import EXPERT_COUNTS, GgufColumn
from ..hf_config import ACTIVATIONS, Fields
from ..hf_decoder import (
    FULL,
    MOE_IGNORED,
    SLIDING,
    defaults,
    read_attention,
    read_decoder,
    read_experts,
    read_gated_mlp,
    read_norm,
    read_sparse_layers,
    read_used_windows,
)
from ..layout import Row
from ..tiny import tiny

ARCHITECTURES = ("Qwen2MoeForCausalLM",)
MLP = "model.layers.{i}.mlp"
SHARED_EXPERT = (
    Row(f"{MLP}.shared_expert.gate_proj.weight", "layers.{i}.mlp.shared.gate.kernel", "ffn embed -> embed ffn"),
    Row(f"{MLP}.shared_expert.up_proj.weight", "layers.{i}.mlp.shared.up.kernel", "ffn embed -> embed ffn"),
    Row(f"{MLP}.shared_expert.down_proj.weight", "layers.{i}.mlp.shared.down.kernel", "embed ffn -> ffn embed"),
    Row(f"{MLP}.shared_expert_gate.weight", "layers.{i}.mlp.shared_gate.kernel", "() embed -> embed"),
)
SHARED = (*EMBEDDING_AND_HEAD, *PRE_NORMS, *ATTENTION, *GATED_MLP, *SHARED_EXPERT)
ROWS = (*SHARED, *EXPERTS)
OTHER_ROWS = ((*SHARED, *FUSED_EXPERTS),)
PASSENGERS = ROPE_BUFFERS
DEFAULTS = {
    **defaults(151936, 2048, 5632, layers=24, heads=16, kv_heads=16, positions=32768, use_sliding_window=False),
    **{"decoder_sparse_step": 1, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632},
    **{"num_experts": 60, "num_experts_per_tok": 4, "norm_topk_prob": False, "sliding_window": 4096},
    **{"max_window_layers": 28, "qkv_bias": True, "mlp_only_layers": None},
}
GGUF = GgufColumn(
    "qwen2moe",
    experts=True,
    fields={**EXPERT_COUNTS, "expert_shared_feed_forward_length": "shared_expert_intermediate_size"},
    present={"qkv_bias": ".attn_q.bias"},
    fixed={"norm_topk_prob": False},
    patterns={"shared_expert_gate.weight": "() embed -> embed"},
)
TINY = {
    **tiny("qwen2_moe", "Qwen2MoeForCausalLM", head_dim=..., num_experts=6, num_experts_per_tok=2),
    **{"moe_intermediate_size": 24, "shared_expert_intermediate_size": 40},
}
VARIANTS = {
    "normalised, first layer dense, tied": {
        **{"norm_topk_prob": True, "mlp_only_layers": [0], "tie_word_embeddings": True, "qkv_bias": False},
    },
    "window": {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1, "decoder_sparse_step": 2},
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    norm, activation = read_norm(fields), fields.choice("hidden_act", ACTIVATIONS)
    attn = read_attention(fields, qkv_bias=fields.boolean("qkv_bias"), output_bias=False)
    top_k, normalise = fields.integer("num_experts_per_tok"), fields.boolean("norm_topk_prob")
    router = Router(top_k=top_k, score="softmax", normalise=normalise)
    shared = GatedMlp(ffn=fields.integer("shared_expert_intermediate_size"), activation=activation)
    options = {"shared": shared, "shared_gate": True}
    experts = read_experts(fields, count="num_experts", width="moe_intermediate_size", router=router, **options)
    dense = read_gated_mlp(fields)
    last = fields.integer("max_window_layers", minimum=0)
    windows = read_used_windows(fields, lambda index: SLIDING if index % 2 == 0 and index < last else FULL)
    layers = [
        Layer(attn_norm=norm, attn=attn.model_copy(update={"window": w}), mlp_norm=norm, mlp=experts if s else dense)
        for s, w in zip(read_sparse_layers(fields), windows, strict=True)
    ]
    return read_decoder(fields, "qwen2_moe", layers, norm, ignored=MOE_IGNORED)
