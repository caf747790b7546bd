"""OLMoE: experts in every layer, and one norm over all heads' queries, one over their keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig, QkNorm, Router

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, EXPERTS, FUSED_EXPERTS, JOINT_QK_NORMS, PRE_NORMS, ROPE_BUFFERS
from ..gguf_column import ATTENTION_BIAS, GgufColumn
from ..hf_config import Fields
from ..hf_decoder import MOE_IGNORED, defaults, read_attention, read_decoder, read_experts, read_norm
from ..tiny import tiny

ARCHITECTURES = ("OlmoeForCausalLM",)
SHARED = (*EMBEDDING_AND_HEAD, *PRE_NORMS, *ATTENTION, *JOINT_QK_NORMS)
ROWS = (*SHARED, *EXPERTS)
OTHER_ROWS = ((*SHARED, *FUSED_EXPERTS),)
PASSENGERS = ROPE_BUFFERS
DEFAULTS = {
    **defaults(50304, 2048, 2048, layers=16, heads=16, positions=4096, rms_norm_eps=1e-5),
    **{"num_experts": 64, "num_experts_per_tok": 8, "norm_topk_prob": False},
}
GGUF = GgufColumn(
    "olmoe",
    experts=True,
    fields={"expert_count": "num_experts", "expert_used_count": "num_experts_per_tok"},
    present=ATTENTION_BIAS,
    fixed={"norm_topk_prob": False},
)
TINY = tiny("olmoe", "OlmoeForCausalLM", head_dim=..., pad_token_id=0, num_experts=6, num_experts_per_tok=2)
VARIANTS = {
    "normalised, tied, biases": {
        **{"norm_topk_prob": True, "tie_word_embeddings": True, "attention_bias": True, "num_experts_per_tok": 3},
    },
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    norm = read_norm(fields)
    attn = read_attention(fields, qk_norm=QkNorm(norm=norm, kind="joint"))
    top_k, normalise = fields.integer("num_experts_per_tok"), fields.boolean("norm_topk_prob")
    router = Router(top_k=top_k, score="softmax", normalise=normalise)
    mlp = read_experts(fields, count="num_experts", width="intermediate_size", router=router)
    fields.neutral({"clip_qkv": (None,)})
    layer = Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=mlp)
    return read_decoder(fields, "olmoe", [layer] * fields.integer("num_hidden_layers"), norm, ignored=MOE_IGNORED)
