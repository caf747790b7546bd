"""Granite 3 with experts: all of a layer's in two tensors, their weights a softmax over those chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig, Router

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, PRE_NORMS, ROPE_BUFFERS, fused_expert_rows
from ..gguf_column import ATTENTION_BIAS, GATES_AND_UPS, PAIRED_ROWS, GgufColumn
from ..hf_config import Fields
from ..hf_decoder import MOE_IGNORED, defaults, read_attention, read_decoder, read_experts, read_norm
from ..layout import Row
from ..tiny import tiny
from .granite import GGUF as GRANITE

ARCHITECTURES = ("GraniteMoeForCausalLM",)
BLOCK = "model.layers.{i}.block_sparse_moe"
ROUTER = ("layers.{i}.mlp.router.kernel", "experts embed -> embed experts")
EXPERTS = fused_expert_rows(f"{BLOCK}.input_linear.weight", f"{BLOCK}.output_linear.weight")
# As transformers holds them in memory, and some tools write them.
OTHER_EXPERTS = fused_expert_rows(f"{BLOCK}.experts.gate_up_proj", f"{BLOCK}.experts.down_proj")
SHARED = (*EMBEDDING_AND_HEAD, *PRE_NORMS, *ATTENTION)
ROWS = (*SHARED, Row(f"{BLOCK}.router.layer.weight", *ROUTER), *EXPERTS)
OTHER_ROWS = ((*SHARED, Row(f"{BLOCK}.router.weight", *ROUTER), *OTHER_EXPERTS),)
PASSENGERS = ROPE_BUFFERS
ONES = {"embedding_multiplier": 1.0, "logits_scaling": 1.0, "residual_multiplier": 1.0, "attention_multiplier": 1.0}
DEFAULTS = {**defaults(32000, 4096, 11008, positions=2048), **ONES, "num_local_experts": 8, "num_experts_per_tok": 2}
GGUF = GgufColumn(
    "granitemoe",
    experts=True,
    fields={
        **GRANITE.fields,
        **{"expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok"},
    },
    present=ATTENTION_BIAS,
    patterns=PAIRED_ROWS,
    divided={"input_linear.weight": GATES_AND_UPS},
)
TINY = {
    **tiny("granitemoe", "GraniteMoeForCausalLM", head_dim=..., num_local_experts=4, num_experts_per_tok=2),
    **{"embedding_multiplier": 12.0, "attention_multiplier": 0.3, "residual_multiplier": 0.22, "logits_scaling": 8.0},
}
VARIANTS = {
    "biases, tied, ones": {**ONES, "attention_bias": True, "tie_word_embeddings": True, "num_experts_per_tok": 3}
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    norm, attn = read_norm(fields), read_attention(fields, scale=fields.number("attention_multiplier"))
    router = Router(top_k=fields.integer("num_experts_per_tok"), score="softmax_of_chosen")
    mlp = read_experts(fields, count="num_local_experts", width="intermediate_size", router=router)
    residual = fields.number("residual_multiplier")
    layer = Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=mlp, residual_multiplier=residual)
    return read_decoder(
        fields,
        "granitemoe",
        [layer] * fields.integer("num_hidden_layers"),
        norm,
        ignored=MOE_IGNORED,
        embedding_multiplier=fields.number("embedding_multiplier"),
        logit_multiplier=1 / fields.number("logits_scaling"),
    )
