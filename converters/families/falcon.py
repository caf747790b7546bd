"""Falcon: attention and MLP side by side, after one norm or two, with few key heads whose groups lie together.

The first generation has one key head or as many as there are heads, the second (`new_decoder_architecture`) says how
many. ALiBi, which a few old files ask for, is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig, Norm

from ..blocks import GROUPED_QKV, GROUPED_QKV_BIAS, GROUPED_QKV_WEIGHT, layer_norm, linear
from ..gguf_column import STACKED_QKV, GgufColumn
from ..hf_config import Fields
from ..hf_decoder import defaults, read_attention, read_decoder, read_plain_mlp, renamed
from ..layout import Row

ARCHITECTURES = ("FalconForCausalLM",)
LAYER = "transformer.h.{i}"
OUTPUT = ("embed (heads head_dim) -> heads head_dim embed", "embed -> embed")
SHARED = (
    Row("transformer.word_embeddings.weight", "embed.embedding", "vocab embed -> vocab embed"),
    Row("lm_head.weight", "head.kernel", "vocab embed -> embed vocab"),
    *layer_norm("transformer.ln_f", "final_norm"),
    *linear(f"{LAYER}.self_attention.query_key_value", GROUPED_QKV, GROUPED_QKV_WEIGHT, GROUPED_QKV_BIAS),
    *linear(f"{LAYER}.self_attention.dense", "layers.{i}.attn.o", *OUTPUT),
    *linear(f"{LAYER}.mlp.dense_h_to_4h", "layers.{i}.mlp.up", "ffn embed -> embed ffn", "ffn -> ffn"),
    *linear(f"{LAYER}.mlp.dense_4h_to_h", "layers.{i}.mlp.down", "embed ffn -> ffn embed", "embed -> embed"),
)
NORM, MLP_NORM = "layers.{i}.attn_norm", "layers.{i}.mlp_norm"
ROWS = (*SHARED, *layer_norm(f"{LAYER}.ln_attn", NORM), *layer_norm(f"{LAYER}.ln_mlp", MLP_NORM))
LATER = layer_norm(f"{LAYER}.post_attention_layernorm", MLP_NORM)
OTHER_ROWS = ((*SHARED, *layer_norm(f"{LAYER}.input_layernorm", NORM), *LATER),)
PASSENGERS = ()
NAMES = {"ffn_hidden_size": "intermediate_size", "num_kv_heads": "num_key_value_heads", "n_embed": "hidden_size"}
OLD = {"multi_query": True, "parallel_attn": True, "new_decoder_architecture": False, "bias": False, "alibi": False}
DEFAULTS = {
    **defaults(65024, 4544, 4 * 4544, heads=71, positions=2048, activation="gelu", layer_norm_epsilon=1e-5),
    **{**OLD, "tie_word_embeddings": True},
}
GGUF = GgufColumn(
    "falcon",
    epsilon="layer_norm_epsilon",
    rename={
        **{"hidden_act": "activation", "intermediate_size": "ffn_hidden_size", "num_key_value_heads": "num_kv_heads"},
        **{"head_dim": None, "two_norms": None},
    },
    present={"bias": ".attn_qkv.bias", "two_norms": ".attn_norm_2.weight"},
    # The second generation's description fits the first as well.
    fixed={"hidden_act": "gelu", "new_decoder_architecture": True, "parallel_attn": True, "alibi": False},
    neutral={"tensor_data_layout": "jploski"},
    derive=lambda found: {**found, "num_ln_in_parallel_attn": 1 + found["two_norms"]},
    patterns=STACKED_QKV,
)
TINY = {
    **{"architectures": ["FalconForCausalLM"], "model_type": "falcon", "vocab_size": 128, "hidden_size": 64},
    **{"num_hidden_layers": 2, "num_attention_heads": 4, "num_kv_heads": 2, "new_decoder_architecture": True},
    **{"ffn_hidden_size": 96, "activation": "gelu", "layer_norm_epsilon": 1e-5, "bias": True},
}
VARIANTS = {
    "one norm": {"num_ln_in_parallel_attn": 1, "bias": False, "tie_word_embeddings": False, "rope_theta": 500.0},
    "multi-query": {**OLD, "num_kv_heads": ..., "ffn_hidden_size": ...},
    "multi-head, one after another": {**OLD, "multi_query": False, "parallel_attn": False, "num_kv_heads": None},
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    names = renamed(hf, NAMES)
    if names.get("intermediate_size") is None:
        names["intermediate_size"] = 4 * Fields(names, DEFAULTS).integer("hidden_size")
    fields = Fields(names, DEFAULTS)
    new, parallel = fields.boolean("new_decoder_architecture"), fields.boolean("parallel_attn")
    if new and not parallel:
        fields.problem("parallel_attn: only true is supported with new_decoder_architecture, found False")
    bias = fields.boolean("bias")
    attn = read_attention(fields, qkv_bias=bias, output_bias=bias)
    if fields.boolean("multi_query") and not new:
        attn = attn.model_copy(update={"kv_heads": 1})
    norm = Norm(epsilon=fields.number("layer_norm_epsilon"), kind="layer", bias=True)
    norms = fields.integer("num_ln_in_parallel_attn") if fields.has("num_ln_in_parallel_attn") else 1 + new
    if norms > 1 + new:
        fields.problem(f"num_ln_in_parallel_attn: only 1 is supported here, found {norms}")
    mlp = read_plain_mlp(fields, activation="activation", bias=bias)
    alone = norms == 2 or not parallel
    layer = Layer(attn_norm=norm, attn=attn, mlp_norm=norm if alone else None, mlp=mlp, parallel=parallel)
    fields.neutral({"alibi": (False,), "apply_residual_connection_post_layernorm": (False,)})
    layers = [layer] * fields.integer("num_hidden_layers")
    return read_decoder(fields, "falcon", layers, norm, ignored=["num_ln_in_parallel_attn"])
