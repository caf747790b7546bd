"""Qwen3-Next: linear attention by the gated delta rule on three layers of four, gated attention on the fourth.

Experts beside a shared one with a gate; layers that predict further tokens are carried along.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import GatedMlp, Layer, ModelConfig, Router

from ..blocks import EMBEDDING_AND_HEAD, EXPERTS, FUSED_EXPERTS, GATED_MLP, PRE_NORMS, ROPE_BUFFERS
from ..gated_delta_net import (
    DELTA_NET,
    GATED_ATTENTION,
    GGUF_ABSENT,
    GGUF_CONVOLUTION,
    GGUF_FIELDS,
    GGUF_TENSORS,
    LINEAR,
    LINEAR_DEFAULTS,
    LINEAR_TINY,
    LINEAR_VARIANT,
    NATIVE,
    read_mixers,
    with_value_width,
)
from ..gguf_column import ATTENTION_BIAS, EXPERT_COUNTS, GgufColumn
from ..hf_config import ACTIVATIONS, Fields
from ..hf_decoder import (
    MOE_IGNORED,
    defaults,
    read_decoder,
    read_experts,
    read_gated_mlp,
    read_norm,
    read_sparse_layers,
)
from ..layout import Row
from ..tiny import tiny
from .qwen2_moe import SHARED_EXPERT

ARCHITECTURES = ("Qwen3NextForCausalLM",)
# What belongs to one key head lies together.
TOGETHER = (
    Row(
        f"{LINEAR}.in_proj_qkvz.weight",
        tuple(f"{NATIVE}.{name}.kernel" for name in ("query", "key", "value", "output_gate")),
        (
            *("(kv_heads [head_dim]) embed -> embed kv_heads head_dim",) * 2,
            *("(kv_heads [group head_dim]) embed -> embed kv_heads group head_dim",) * 2,
        ),
    ),
    Row(
        f"{LINEAR}.in_proj_ba.weight",
        (f"{NATIVE}.beta.kernel", f"{NATIVE}.decay.kernel"),
        ("(kv_heads [group]) embed -> embed kv_heads group",) * 2,
    ),
)
SHARED = (*(*EMBEDDING_AND_HEAD, *PRE_NORMS, *GATED_ATTENTION, *DELTA_NET, *TOGETHER, *GATED_MLP, *SHARED_EXPERT),)
ROWS = (*SHARED, *EXPERTS)
OTHER_ROWS = ((*SHARED, *FUSED_EXPERTS),)
PASSENGERS = (*ROPE_BUFFERS, "mtp.*")
DEFAULTS = {
    **defaults(151936, 2048, 5632, layers=48, heads=16, kv_heads=2, head_dim=256, positions=32768, **LINEAR_DEFAULTS),
    **{"decoder_sparse_step": 1, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512},
    **{"num_experts": 512, "num_experts_per_tok": 10, "norm_topk_prob": True, "mlp_only_layers": None},
}
GGUF = GgufColumn(
    "qwen3next",
    experts=True,
    partial="partial_rotary_factor",
    fields={
        **EXPERT_COUNTS,
        **GGUF_FIELDS,
        "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    },
    absent=GGUF_ABSENT,
    present=ATTENTION_BIAS,
    fixed={"norm_topk_prob": True},
    derive=with_value_width,
    patterns={"shared_expert_gate.weight": "() embed -> embed", "conv1d.weight": GGUF_CONVOLUTION},
    tensors=GGUF_TENSORS,
    divided={
        "in_proj_qkvz.weight": {
            "blk.{i}.attn_qkv.weight": (
                *("[kv_heads head_dim] embed -> embed kv_heads head_dim",) * 2,
                "[kv_heads group head_dim] embed -> embed kv_heads group head_dim",
            ),
            "blk.{i}.attn_gate.weight": "(kv_heads group head_dim) embed -> embed kv_heads group head_dim",
        }
    },
)
TINY = {
    **tiny("qwen3_next", "Qwen3NextForCausalLM", num_experts=6, num_experts_per_tok=2, **LINEAR_TINY),
    **{"moe_intermediate_size": 24, "shared_expert_intermediate_size": 40, "decoder_sparse_step": 1},
}
VARIANTS = {"biases, first layer dense, tied": {**LINEAR_VARIANT, "norm_topk_prob": False, "mlp_only_layers": [0]}}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    activation = fields.choice("hidden_act", ACTIVATIONS)
    router = Router(
        top_k=fields.integer("num_experts_per_tok"), score="softmax", normalise=fields.boolean("norm_topk_prob")
    )
    shared = GatedMlp(ffn=fields.integer("shared_expert_intermediate_size"), activation=activation)
    options = {"shared": shared, "shared_gate": True}
    experts = read_experts(fields, count="num_experts", width="moe_intermediate_size", router=router, **options)
    dense, norm = read_gated_mlp(fields), read_norm(fields, offset=1.0)
    layers = [
        Layer(attn_norm=norm, attn=mixer, mlp_norm=norm, mlp=experts if sparse else dense)
        for mixer, sparse in zip(read_mixers(fields), read_sparse_layers(fields), strict=True)
    ]
    return read_decoder(fields, "qwen3_next", layers, norm, ignored=MOE_IGNORED)
