"""StableLM: Llama with layer norms, of which a quarter of each head turns.

Optional are biases of queries, keys and values, a norm of its own for each of their heads, and the MLP beside
attention, reading what it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig, Norm, QkNorm

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, GATED_MLP, NORM_BIASES, PRE_NORMS, ROPE_BUFFERS
from ..gguf_column import GgufColumn
from ..hf_config import Fields
from ..hf_decoder import defaults, read_attention, read_decoder, read_gated_mlp
from ..layout import Row
from ..tiny import tiny

ARCHITECTURES = ("StableLmForCausalLM",)
HEAD_NORMS = tuple(
    Row(
        f"model.layers.{{i}}.self_attn.{name}_layernorm.norms.{{head}}.weight",
        f"layers.{{i}}.attn.{name}_norm.scale",
        f"{heads} head_dim -> {heads} head_dim",
    )
    for name, heads in (("q", "heads"), ("k", "kv_heads"))
)
ROWS = (*EMBEDDING_AND_HEAD, *PRE_NORMS, *NORM_BIASES, *ATTENTION, *HEAD_NORMS, *GATED_MLP)
PASSENGERS = ROPE_BUFFERS
DEFAULTS = {
    **defaults(50304, 2560, 6912, kv_heads=32, positions=4096),
    **{"layer_norm_eps": 1e-5, "use_qkv_bias": False, "qk_layernorm": False, "use_parallel_residual": False},
}
GGUF = GgufColumn(
    "stablelm",
    epsilon="layer_norm_eps",
    partial="partial_rotary_factor",
    fields={"use_parallel_residual": "use_parallel_residual"},
    present={"use_qkv_bias": ".attn_q.bias", "qk_layernorm": ".attn_q_norm.weight"},
    tensors={f"{name}_layernorm.norms.{{head}}.weight": f"blk.{{i}}.attn_{name}_norm.weight" for name in "qk"},
)
TINY = {
    **tiny("stablelm", "StableLmForCausalLM", head_dim=..., rms_norm_eps=..., hidden_size=64),
    **{"layer_norm_eps": 1e-5, "partial_rotary_factor": 0.25, "use_qkv_bias": True},
}
VARIANTS = {
    "side by side, norms of heads, tied": {
        **{"use_parallel_residual": True, "qk_layernorm": True, "tie_word_embeddings": True, "use_qkv_bias": False},
        **{"partial_rotary_factor": 0.5, "layer_norm_eps": 0.1},
    },
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    epsilon = fields.number("layer_norm_eps")
    norm = Norm(epsilon=epsilon, kind="layer", bias=True)
    head_norm = QkNorm(norm=Norm(epsilon=epsilon, kind="layer"), kind="own") if fields.boolean("qk_layernorm") else None
    bias = fields.boolean("use_qkv_bias")
    attn = read_attention(fields, fraction=0.25, qkv_bias=bias, output_bias=False, qk_norm=head_norm)
    parallel = fields.boolean("use_parallel_residual")
    mlp_norm = None if parallel else norm
    layer = Layer(attn_norm=norm, attn=attn, mlp_norm=mlp_norm, mlp=read_gated_mlp(fields), parallel=parallel)
    return read_decoder(fields, "stablelm", [layer] * fields.integer("num_hidden_layers"), norm)
