"""LFM2: short convolutions between two gates, and attention on a few layers; names of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig, QkNorm, ShortConvolution

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, GATED_MLP, PRE_NORMS, QK_NORMS, ROPE_BUFFERS, linear, renamed_rows
from ..gguf_column import GgufColumn
from ..hf_config import Fields
from ..hf_decoder import (
    FULL,
    defaults,
    read_attention,
    read_decoder,
    read_gated_mlp,
    read_layer_types,
    read_norm,
    renamed,
)
from ..tiny import tiny

ARCHITECTURES = ("Lfm2ForCausalLM",)
LAYER, NATIVE = "model.layers.{i}", "layers.{i}.attn"
CONVOLUTION = (
    *linear(
        f"{LAYER}.conv.in_proj",
        (f"{NATIVE}.before", f"{NATIVE}.after", f"{NATIVE}.value"),
        ("[channels] embed -> embed channels",) * 3,
        ("[channels] -> channels",) * 3,
    ),
    *linear(f"{LAYER}.conv.conv", f"{NATIVE}.convolution", "channels () taps -> taps channels", "channels -> channels"),
    *linear(f"{LAYER}.conv.out_proj", f"{NATIVE}.out", "embed channels -> channels embed", "embed -> embed"),
)
NAMES = {
    **{"model.norm": "model.embedding_norm", "input_layernorm": "operator_norm"},
    **{"post_attention_layernorm": "ffn_norm", "self_attn.o_proj": "self_attn.out_proj"},
    **{"self_attn.q_norm": "self_attn.q_layernorm", "self_attn.k_norm": "self_attn.k_layernorm"},
    **{"mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2"},
}
USUAL = (*EMBEDDING_AND_HEAD, *PRE_NORMS, *ATTENTION, *QK_NORMS, *GATED_MLP)
ROWS = (*renamed_rows(USUAL, NAMES), *CONVOLUTION)
PASSENGERS = ROPE_BUFFERS
DEFAULTS = {
    **defaults(65536, 2560, 12288, kv_heads=8, positions=128000, rms_norm_eps=1e-5, tie_word_embeddings=True),
    **{"conv_bias": False, "conv_L_cache": 3, "block_auto_adjust_ff_dim": True, "block_multiple_of": 256},
    "block_ffn_dim_multiplier": 1.0,
}


def _with_layer_types(found: dict[str, Any]) -> dict[str, Any]:
    """Layers without heads of keys are convolutions."""
    counts = found["num_key_value_heads"]
    counts = counts if isinstance(counts, list) else [counts] * found["num_hidden_layers"]
    kinds = [FULL if count else "conv" for count in counts]
    return {**found, "num_key_value_heads": max(counts), "layer_types": kinds}


GGUF = GgufColumn(
    "lfm2",
    epsilon="norm_eps",
    rename={"head_dim": None},
    fields={"attention.head_count_kv": "num_key_value_heads", "shortconv.l_cache": "conv_L_cache"},
    present={"conv_bias": ".shortconv.conv.bias"},
    # The width in the file is the one that comes out.
    fixed={"block_auto_adjust_ff_dim": False},
    derive=_with_layer_types,
    patterns={"conv.conv.weight": "channels () taps -> channels taps"},
)
TINY = {
    **tiny("lfm2", "Lfm2ForCausalLM", head_dim=..., rms_norm_eps=..., intermediate_size=..., norm_eps=1e-5),
    **{"block_ff_dim": 72, "block_multiple_of": 16, "num_hidden_layers": 4, "full_attn_idxs": [1, 3]},
    **{"tie_word_embeddings": True, "rope_theta": 1000000.0, "conv_dim": 32, "num_heads": 4, "block_use_swiglu": True},
}
VARIANTS = {
    "untied, biases, layer types": {
        **{"tie_word_embeddings": False, "conv_bias": True, "conv_L_cache": 4, "norm_eps": 0.1, "rope_theta": 500.0},
        **{"full_attn_idxs": ..., "layer_types": ["full_attention", "conv", "conv", "full_attention"]},
        **{"block_ff_dim": ..., "intermediate_size": 40, "block_auto_adjust_ff_dim": False},
    },
    "another width": {"block_ffn_dim_multiplier": 1.3, "block_multiple_of": 8, "tie_embedding": False},
}
# Names that come before those which other families have, where a file has both.
OWN = {"block_ff_dim": "intermediate_size", "tie_embedding": "tie_word_embeddings", "norm_eps": "rms_norm_eps"}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    replaced = {OWN[name] for name in hf if name in OWN}
    fields = Fields(renamed({name: hf[name] for name in hf if name not in replaced}, OWN), DEFAULTS)
    norm, mlp = read_norm(fields), read_gated_mlp(fields)
    if fields.boolean("block_auto_adjust_ff_dim"):
        multiple = fields.integer("block_multiple_of")
        width = int(fields.number("block_ffn_dim_multiplier") * int(2 * mlp.ffn / 3))
        mlp = mlp.model_copy(update={"ffn": -(-width // multiple) * multiple})
    convolution = ShortConvolution(taps=fields.integer("conv_L_cache"), bias=fields.boolean("conv_bias"))
    head_norm = QkNorm(norm=norm, kind="shared")
    attn = read_attention(fields, theta=1e6, qkv_bias=False, output_bias=False, qk_norm=head_norm)
    indices = fields.indices("full_attn_idxs")
    kinds = read_layer_types(
        fields, lambda index: FULL if indices is None or index in indices else "conv", ("conv", FULL)
    )
    layers = [
        Layer(attn_norm=norm, attn=attn if kind == FULL else convolution, mlp_norm=norm, mlp=mlp) for kind in kinds
    ]
    embed = fields.integer("hidden_size")
    fields.neutral({"hidden_act": ("silu",), "block_use_swiglu": (True,), "use_pos_enc": (True,)})
    fields.neutral(dict.fromkeys(("block_dim", "conv_dim", "conv_dim_out"), (embed,)))
    fields.neutral({"num_heads": (attn.heads,), "block_norm_eps": (norm.epsilon,)})
    ignored = ["block_mlp_init_scale", "block_out_init_scale", "block_use_xavier_init", "conv_use_xavier_init"]
    unread = ["block_multiple_of", "block_ffn_dim_multiplier"]
    return read_decoder(fields, "lfm2", layers, norm, ignored=[*ignored, *unread])
