"""Ministral 3: Llama with yarn, whose queries grow with the logarithm of their position past the original length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig, QueryGrowth

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, GATED_MLP, PRE_NORMS, ROPE_BUFFERS
from ..gguf_column import PAIRED_ROWS, YARN_MAGNITUDE, GgufColumn, with_yarn_magnitude
from ..hf_config import Fields
from ..hf_decoder import defaults, read_attention, read_decoder, read_gated_mlp, read_norm, read_window
from ..tiny import tiny

ARCHITECTURES = ("Ministral3ForCausalLM",)
ROWS = (*EMBEDDING_AND_HEAD, *PRE_NORMS, *ATTENTION, *GATED_MLP)
PASSENGERS = ROPE_BUFFERS
YARN = {
    **{"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "original_max_position_embeddings": 16384},
    **{"beta_fast": 32.0, "beta_slow": 1.0, "mscale_all_dim": 1.0, "mscale": 1.0, "llama_4_scaling_beta": 0.1},
}
SIZES = {"kv_heads": 8, "head_dim": 128, "positions": 262144}
DEFAULTS = defaults(
    131072, 4096, 14336, layers=34, **SIZES, rms_norm_eps=1e-5, sliding_window=None, rope_parameters=YARN
)


def _with_rope(found: dict[str, Any]) -> dict[str, Any]:
    """All of the rope in its own object, with the growth of queries; without a scaling this begins at the context."""
    found = with_yarn_magnitude(found, other=1.0)
    plain = {"rope_type": "default", "original_max_position_embeddings": found["max_position_embeddings"]}
    growth = {"rope_theta": found["rope_theta"], "llama_4_scaling_beta": found["llama_4_scaling_beta"]}
    return {**found, "rope_parameters": {**(found["rope_scaling"] or plain), **growth}}


GGUF = GgufColumn(
    "mistral3",
    rename={"rope_theta": None, "rope_scaling": None, "llama_4_scaling_beta": None},
    fields={"attention.temperature_scale": "llama_4_scaling_beta", **YARN_MAGNITUDE},
    absent={"llama_4_scaling_beta": 0.0, "mscale_all_dim": None},
    fixed={"sliding_window": None},
    derive=_with_rope,
    patterns=PAIRED_ROWS,
)
SMALL = {**YARN, "factor": 4.0, "original_max_position_embeddings": 16}
TINY = tiny("ministral3", "Ministral3ForCausalLM", rope_theta=..., rope_parameters=SMALL, pad_token_id=0)
VARIANTS = {
    "window, tied": {"sliding_window": 9, "tie_word_embeddings": True},
    "plain": {
        "rope_parameters": {
            **{"rope_type": "default", "rope_theta": 500.0, "original_max_position_embeddings": 64},
            "llama_4_scaling_beta": 0.0,
        }
    },
    "no growth": {"rope_parameters": {**SMALL, "llama_4_scaling_beta": 0.0, "rope_theta": 500.0}},
}
OWN = ("llama_4_scaling_beta", "max_position_embeddings")


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    given = YARN if hf.get("rope_parameters") is None else Fields(hf).object("rope_parameters")
    rope = {name: value for name, value in given.items() if name not in OWN}
    fields = Fields({**hf, "rope_parameters": rope}, DEFAULTS)
    own = Fields(given, prefix="rope_parameters.", problems=fields.problems)
    growth = QueryGrowth(
        beta=own.number("llama_4_scaling_beta", above=None), positions=own.integer("original_max_position_embeddings")
    )
    norm, mlp, window = read_norm(fields), read_gated_mlp(fields), read_window(fields)
    attn = read_attention(fields, qkv_bias=False, output_bias=False, window=window, query_growth=growth)
    layer = Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=mlp)
    return read_decoder(fields, "ministral3", [layer] * fields.integer("num_hidden_layers"), norm)
