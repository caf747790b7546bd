"""Qwen3-Next: linear attention by the gated delta rule on three layers of four, gated attention on the fourth.

Experts beside a shared one with a gate; layers that predict further tokens are carried along.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Attention, GatedDeltaNet, GatedMlp, Layer, Mixer, ModelConfig, Norm, QkNorm, Router

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, EXPERTS, FUSED_EXPERTS, GATED_MLP, PRE_NORMS, QK_NORMS, ROPE_BUFFERS
from ..hf_config import ACTIVATIONS, Fields
from ..hf_decoder import (
    FULL,
    MOE_IGNORED,
    defaults,
    read_attention,
    read_decoder,
    read_experts,
    read_gated_mlp,
    read_layer_types,
    read_norm,
    read_sparse_layers,
)
from ..hf_rope import read_rope
from ..layout import Row
from ..tiny import tiny
from .qwen2_moe import SHARED_EXPERT

ARCHITECTURES = ("Qwen3NextForCausalLM",)
LINEAR, NATIVE = "model.layers.{i}.linear_attn", "layers.{i}.attn"
# The head of a query and that of its gate lie one after the other.
QUERIES = ("(heads [head_dim]) embed -> embed heads head_dim",) * 2
QUERY_BIASES = ("(heads [head_dim]) -> heads head_dim",) * 2
GATED_ATTENTION = (
    Row("model.layers.{i}.self_attn.q_proj.weight", (f"{NATIVE}.q.kernel", f"{NATIVE}.gate.kernel"), QUERIES),
    Row("model.layers.{i}.self_attn.q_proj.bias", (f"{NATIVE}.q.bias", f"{NATIVE}.gate.bias"), QUERY_BIASES),
    *(row for row in ATTENTION if "q_proj" not in row.source),
    *QK_NORMS,
)
CONVOLVED = tuple(f"{NATIVE}.{name}_convolution.kernel" for name in ("query", "key", "value"))
DELTA_NET = (
    Row(
        f"{LINEAR}.conv1d.weight",
        CONVOLVED,
        (
            *("[kv_heads head_dim] () taps -> taps kv_heads head_dim",) * 2,
            "[kv_heads group head_dim] () taps -> taps kv_heads group head_dim",
        ),
    ),
    Row(f"{LINEAR}.dt_bias", f"{NATIVE}.decay_bias", "(kv_heads group) -> kv_heads group"),
    Row(f"{LINEAR}.A_log", f"{NATIVE}.decay_rate", "(kv_heads group) -> kv_heads group"),
    Row(f"{LINEAR}.norm.weight", f"{NATIVE}.norm.scale", "head_dim -> head_dim"),
    Row(
        f"{LINEAR}.out_proj.weight",
        f"{NATIVE}.out.kernel",
        "embed (kv_heads group head_dim) -> kv_heads group head_dim embed",
    ),
)
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
LINEAR_DEFAULTS = {
    **{"linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128},
    **{"linear_num_key_heads": 16, "linear_num_value_heads": 32, "full_attention_interval": 4},
}
DEFAULTS = {
    **defaults(151936, 2048, 5632, layers=48, heads=16, kv_heads=2, head_dim=256, positions=32768, **LINEAR_DEFAULTS),
    **{"decoder_sparse_step": 1, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512},
    **{"num_experts": 512, "num_experts_per_tok": 10, "norm_topk_prob": True, "mlp_only_layers": None},
}
LINEAR_TINY = {
    **{"linear_conv_kernel_dim": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 12, "linear_num_key_heads": 2},
    **{"linear_num_value_heads": 6, "full_attention_interval": 2, "partial_rotary_factor": 0.5},
}
LINEAR_VARIANT = {
    **{"linear_conv_kernel_dim": 2, "linear_num_value_heads": 2, "partial_rotary_factor": ..., "rms_norm_eps": 0.1},
    **{"layer_types": ["full_attention", "linear_attention"], "full_attention_interval": ..., "attention_bias": True},
    **{"tie_word_embeddings": True},
}
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


def read_mixers(fields: Fields) -> list[Mixer]:
    """What each layer brings tokens together by: linear attention, or on every so many-th layer the other."""
    interval = fields.integer("full_attention_interval")
    kinds = read_layer_types(
        fields, lambda index: FULL if (index + 1) % interval == 0 else "linear_attention", ("linear_attention", FULL)
    )
    full, linear = _attention(fields), _delta_net(fields)
    return [full if kind == FULL else linear for kind in kinds]


def _attention(fields: Fields) -> Attention:
    head_norm = QkNorm(norm=read_norm(fields, offset=1.0), kind="shared")
    # The sections of rotary embeddings for images are one for text.
    sizes = fields.integer("head_dim"), fields.integer("max_position_embeddings")
    rope = read_rope(fields, *sizes, fraction=0.25, ignored=("mrope_section", "mrope_interleaved"))
    return read_attention(fields, rope=rope, qk_norm=head_norm, gated=True)


def _delta_net(fields: Fields) -> GatedDeltaNet:
    heads, values = fields.integer("linear_num_key_heads"), fields.integer("linear_num_value_heads")
    if values % heads:
        fields.problem(f"linear_num_value_heads {values} is not a multiple of linear_num_key_heads {heads}")
    return GatedDeltaNet(
        key_heads=heads,
        group=max(values // heads, 1),
        key_dim=fields.integer("linear_key_head_dim"),
        value_dim=fields.integer("linear_value_head_dim"),
        taps=fields.integer("linear_conv_kernel_dim"),
        activation=fields.choice("hidden_act", ACTIVATIONS),
        norm=Norm(epsilon=fields.number("rms_norm_eps")),
    )
