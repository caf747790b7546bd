"""Qwen3.5's language model: Qwen3-Next without experts, its projections tensors of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig

from ..blocks import EMBEDDING_AND_HEAD, GATED_MLP, PRE_NORMS, ROPE_BUFFERS
from ..gated_delta_net import (
    DELTA_NET,
    GATED_ATTENTION,
    GGUF_ABSENT,
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
from ..gguf_column import ATTENTION_BIAS, FURTHER_TOKENS, GgufColumn, without_further_tokens
from ..hf_config import Fields
from ..hf_decoder import defaults, read_decoder, read_gated_mlp, read_norm
from ..layout import Row
from ..tiny import tiny

ARCHITECTURES = ("Qwen3_5ForCausalLM",)
APART = (
    Row(
        f"{LINEAR}.in_proj_qkv.weight",
        tuple(f"{NATIVE}.{name}.kernel" for name in ("query", "key", "value")),
        (
            *("[kv_heads head_dim] embed -> embed kv_heads head_dim",) * 2,
            "[kv_heads group head_dim] embed -> embed kv_heads group head_dim",
        ),
    ),
    Row(
        f"{LINEAR}.in_proj_z.weight",
        f"{NATIVE}.output_gate.kernel",
        "(kv_heads group head_dim) embed -> embed kv_heads group head_dim",
    ),
    Row(f"{LINEAR}.in_proj_b.weight", f"{NATIVE}.beta.kernel", "(kv_heads group) embed -> embed kv_heads group"),
    Row(f"{LINEAR}.in_proj_a.weight", f"{NATIVE}.decay.kernel", "(kv_heads group) embed -> embed kv_heads group"),
)
ROWS = (*EMBEDDING_AND_HEAD, *PRE_NORMS, *GATED_ATTENTION, *DELTA_NET, *APART, *GATED_MLP)
PASSENGERS = (*ROPE_BUFFERS, "mtp.*")
DEFAULTS = defaults(248320, 4096, 12288, heads=16, kv_heads=4, head_dim=256, positions=32768, **LINEAR_DEFAULTS)
# The heads of values that share one of keys lie apart there, each beside those of the other heads of keys.
GGUF = GgufColumn(
    "qwen35",
    partial="partial_rotary_factor",
    rename=dict.fromkeys(("mrope_section", "num_nextn_predict_layers")),
    fields={
        **GGUF_FIELDS,
        **{"rope.dimension_sections": "mrope_section", FURTHER_TOKENS: "num_nextn_predict_layers"},
    },
    absent={**GGUF_ABSENT, "mrope_section": None, "num_nextn_predict_layers": 0},
    present=ATTENTION_BIAS,
    derive=lambda found: with_value_width(without_further_tokens(found)),
    patterns={
        "conv1d.weight": (
            *("[kv_heads head_dim] taps -> taps kv_heads head_dim",) * 2,
            "[group kv_heads head_dim] taps -> taps kv_heads group head_dim",
        ),
        "in_proj_qkv.weight": (
            *("[kv_heads head_dim] embed -> embed kv_heads head_dim",) * 2,
            "[group kv_heads head_dim] embed -> embed kv_heads group head_dim",
        ),
        "in_proj_z.weight": "(kv_heads group head_dim) embed -> (group kv_heads head_dim) embed",
        "in_proj_a.weight": "(kv_heads group) embed -> (group kv_heads) embed",
        "in_proj_b.weight": "(kv_heads group) embed -> (group kv_heads) embed",
        "linear_attn.dt_bias": "(kv_heads group) -> (group kv_heads)",
        "linear_attn.A_log": "(kv_heads group) -> (group kv_heads)",
        "linear_attn.out_proj.weight": "embed (kv_heads group head_dim) -> embed (group kv_heads head_dim)",
    },
    tensors=GGUF_TENSORS,
)
TINY = tiny("qwen3_5_text", "Qwen3_5ForCausalLM", **LINEAR_TINY)
VARIANTS = {
    "biases, layer types, tied": LINEAR_VARIANT,
    "sections of positions": {
        **{"rope_theta": ..., "partial_rotary_factor": ...},
        "rope_parameters": {
            **{"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1]},
            "mrope_interleaved": True,
        },
    },
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    return read(fields, "qwen3_5_text")


def read(fields: Fields, what: str, **options: Any) -> ModelConfig:
    """The network that a config.json describes, or a part of one; `what` and `options` as for `read_decoder`."""
    norm, mlp = read_norm(fields, offset=1.0), read_gated_mlp(fields)
    layers = [Layer(attn_norm=norm, attn=mixer, mlp_norm=norm, mlp=mlp) for mixer in read_mixers(fields)]
    return read_decoder(fields, what, layers, norm, **options)
