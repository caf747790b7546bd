"""Mixtral: Mistral with eight MLPs in the place of one, of which two are chosen for each token.

Experts name their gate, up and down w1, w3 and w2; where all are in two tensors, these have the usual names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig, Router

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, FUSED_EXPERTS, PRE_NORMS, ROPE_BUFFERS, expert_rows
from ..gguf_column import PAIRED_ROWS, GgufColumn
from ..hf_config import Fields
from ..hf_decoder import MOE_IGNORED, defaults, read_attention, read_decoder, read_experts, read_norm, read_window
from ..tiny import tiny

ARCHITECTURES = ("MixtralForCausalLM",)
EXPERTS = expert_rows("model.layers.{i}.block_sparse_moe", "gate", "w1", "w3", "w2")
SHARED = (*EMBEDDING_AND_HEAD, *PRE_NORMS, *ATTENTION)
ROWS = (*SHARED, *EXPERTS)
OTHER_ROWS = ((*SHARED, *FUSED_EXPERTS),)
PASSENGERS = ROPE_BUFFERS
DEFAULTS = {
    **defaults(32000, 4096, 14336, kv_heads=8, positions=131072, rms_norm_eps=1e-5, sliding_window=None),
    **{"num_local_experts": 8, "num_experts_per_tok": 2},
}
GGUF = GgufColumn(
    "llama",
    experts=True,
    fields={"expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok"},
    patterns=PAIRED_ROWS,
)
TINY = tiny("mixtral", "MixtralForCausalLM", num_local_experts=4, num_experts_per_tok=2)
VARIANTS = {
    "window, one of six, tied": {
        **{"sliding_window": 9, "num_local_experts": 6, "num_experts_per_tok": 1, "tie_word_embeddings": True},
        **{"head_dim": None, "hidden_act": "gelu"},
    },
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    norm, window = read_norm(fields), read_window(fields)
    attn = read_attention(fields, theta=1e6, qkv_bias=False, output_bias=False, window=window)
    router = Router(top_k=fields.integer("num_experts_per_tok"), score="softmax", normalise=True)
    mlp = read_experts(fields, count="num_local_experts", width="intermediate_size", router=router)
    layer = Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=mlp)
    layers = [layer] * fields.integer("num_hidden_layers")
    return read_decoder(fields, "mixtral", layers, norm, ignored=MOE_IGNORED)
