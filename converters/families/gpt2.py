"""GPT-2: learned positions, layer norms, plain MLPs, biases everywhere, matrices stored [in, out].

Fields have names of their own. Tensors' names come with and without `transformer.`, and masks may be among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig, Norm

from ..blocks import layer_norm, linear, prefixed
from ..gguf_column import GgufColumn
from ..hf_config import Fields
from ..hf_decoder import read_attention, read_decoder, read_plain_mlp, renamed
from ..layout import Row

ARCHITECTURES = ("GPT2LMHeadModel",)
LAYER = "transformer.h.{i}"
QKV = tuple(f"layers.{{i}}.attn.{name}" for name in ("q", "k", "v"))
QKV_WEIGHT = tuple(f"embed [{heads} head_dim] -> embed {heads} head_dim" for heads in ("heads", "kv_heads", "kv_heads"))
QKV_BIAS = tuple(f"[{heads} head_dim] -> {heads} head_dim" for heads in ("heads", "kv_heads", "kv_heads"))
OUTPUT = ("(heads head_dim) embed -> heads head_dim embed", "embed -> embed")
ROWS = (
    Row("transformer.wte.weight", "embed.embedding", "vocab embed -> vocab embed"),
    Row("transformer.wpe.weight", "positions.embedding", "positions embed -> positions embed"),
    Row("lm_head.weight", "head.kernel", "vocab embed -> embed vocab"),
    *layer_norm(f"{LAYER}.ln_1", "layers.{i}.attn_norm"),
    *layer_norm(f"{LAYER}.ln_2", "layers.{i}.mlp_norm"),
    *layer_norm("transformer.ln_f", "final_norm"),
    *linear(f"{LAYER}.attn.c_attn", QKV, QKV_WEIGHT, QKV_BIAS),
    *linear(f"{LAYER}.attn.c_proj", "layers.{i}.attn.o", *OUTPUT),
    *linear(f"{LAYER}.mlp.c_fc", "layers.{i}.mlp.up", "embed ffn -> embed ffn", "ffn -> ffn"),
    *linear(f"{LAYER}.mlp.c_proj", "layers.{i}.mlp.down", "ffn embed -> ffn embed", "embed -> embed"),
)
OTHER_ROWS = (prefixed(ROWS, "transformer.", ""),)
MASKS = ("h.{i}.attn.bias", "h.{i}.attn.masked_bias")
PASSENGERS = (*MASKS, *(f"transformer.{name}" for name in MASKS))
NAMES = {
    **{"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads"},
    **{"n_positions": "max_position_embeddings", "n_inner": "intermediate_size"},
}
GGUF = GgufColumn(
    "gpt2",
    epsilon="layer_norm_epsilon",
    rename={
        **{usual: own for own, usual in NAMES.items()},
        **{"hidden_act": "activation_function", "num_key_value_heads": None, "head_dim": None},
        **{"rope_theta": None, "rope_scaling": None},
    },
    fixed={"hidden_act": "gelu_new"},
    # The matrices lie there as in other families.
    patterns=dict.fromkeys(["c_attn.weight", "c_proj.weight", "c_fc.weight"], "inputs outputs -> outputs inputs"),
)
OTHERS = {"activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True}
SIZES = {"vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024}
DEFAULTS = {**renamed(SIZES, NAMES), **OTHERS, "scale_attn_weights": True}
SMALL = {"vocab_size": 128, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
TINY = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", **SMALL, **OTHERS}
VARIANTS = {
    "untied, exact activation, narrow": {"tie_word_embeddings": False, "activation_function": "gelu", "n_inner": 48},
    "scales": {"scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True, "layer_norm_epsilon": 0.1},
}
IGNORED = ("n_ctx", "reorder_and_upcast_attn", "summary_type", "summary_use_proj", "summary_activation")
SUMMARY = ("summary_proj_to_labels", "summary_first_dropout")


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    names = renamed(hf, NAMES)
    if names.get("intermediate_size") is None:
        names["intermediate_size"] = 4 * Fields(names, DEFAULTS).integer("hidden_size")
    fields = Fields(names, DEFAULTS)
    norm = Norm(epsilon=fields.number("layer_norm_epsilon"), kind="layer", bias=True)
    attn = read_attention(fields, rope=None, qkv_bias=True, output_bias=True)
    mlp = read_plain_mlp(fields, activation="activation_function", bias=True)
    scale = attn.scale if fields.boolean("scale_attn_weights") else 1.0
    by_layer = fields.boolean("scale_attn_by_inverse_layer_idx")
    layer = Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=mlp)
    layers = [
        layer.model_copy(update={"attn": attn.model_copy(update={"scale": scale / (index + 1) if by_layer else scale})})
        for index in range(fields.integer("num_hidden_layers"))
    ]
    table = fields.integer("max_position_embeddings")
    return read_decoder(fields, "gpt2", layers, norm, ignored=[*IGNORED, *SUMMARY], learned_positions=table)
