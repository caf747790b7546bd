"""Gemma 3's language model: Gemma 2 with norms of heads in the place of soft caps, and two rotary embeddings.

Five layers of six have a window and turn with a base of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig, QkNorm

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, GATED_MLP, QK_NORMS, ROPE_BUFFERS, SANDWICH_NORMS
from ..gguf_column import ATTENTION_BIAS, GgufColumn, with_query_scalar
from ..hf_config import Fields
from ..hf_decoder import (
    FULL,
    SLIDING,
    defaults,
    read_attention,
    read_decoder,
    read_gated_mlp,
    read_norm,
    read_pattern,
    read_turned_windows,
)
from ..tiny import tiny

ARCHITECTURES = ("Gemma3ForCausalLM",)
ROWS = (*EMBEDDING_AND_HEAD, *SANDWICH_NORMS, *ATTENTION, *QK_NORMS, *GATED_MLP)
PASSENGERS = ROPE_BUFFERS
GELU = {"hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True}
DEFAULTS = {
    **defaults(262208, 2304, 9216, layers=26, heads=8, kv_heads=4, head_dim=256, positions=131072),
    **{**GELU, "query_pre_attn_scalar": 256, "sliding_window": 4096},
    "sliding_window_pattern": 6,
}
BASES: Mapping[str, tuple[str | None, float]] = {FULL: ("rope_theta", 1e6), SLIDING: ("rope_local_base_freq", 1e4)}
GGUF = GgufColumn(
    "gemma3",
    rename={"hidden_act": "hidden_activation"},
    fields={
        **{"attention.sliding_window": "sliding_window", "rope.freq_base_swa": "rope_local_base_freq"},
        "final_logit_softcapping": "final_logit_softcapping",
    },
    absent={"rope_local_base_freq": 10000.0, "final_logit_softcapping": None},
    present=ATTENTION_BIAS,
    fixed={"hidden_act": "gelu_pytorch_tanh", "sliding_window_pattern": 6},
    derive=lambda found: with_query_scalar(found, 62),
)
TINY = {
    **tiny("gemma3_text", "Gemma3ForCausalLM", hidden_act=..., num_hidden_layers=3, rope_theta=1000000.0, **GELU),
    **{"query_pre_attn_scalar": 24, "sliding_window": 9, "sliding_window_pattern": 2, "rope_local_base_freq": 500.0},
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}
VARIANTS = {
    "untied, biases, cap": {
        **{"tie_word_embeddings": False, "attention_bias": True, "hidden_activation": "gelu"},
        **{"final_logit_softcapping": 3.0, "rope_scaling": ...},
    },
    "layer types, new spelling": {
        **{"layer_types": ["full_attention", "sliding_attention", "full_attention"], "rope_scaling": ...},
        **{"rope_theta": ..., "rope_local_base_freq": ..., "sliding_window_pattern": ...},
        # What files say besides: where there is a list of layers, nobody looks at the one, and never at the other.
        **{"_sliding_window_pattern": 6, "cache_implementation": "hybrid"},
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 777.0},
        },
    },
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    return read(fields, "gemma3_text", logit_softcap=fields.optional_number("final_logit_softcapping"))


def read(fields: Fields, what: str, **options: Any) -> ModelConfig:
    """The network that a config.json describes, or a part of one; `what` and `options` as for `read_decoder`."""
    norm, mlp = read_norm(fields, offset=1.0), read_gated_mlp(fields, activation="hidden_activation")
    scale = fields.number("query_pre_attn_scalar") ** -0.5
    head_norm = QkNorm(norm=norm, kind="shared")
    attn = read_attention(fields, rope=None, scale=scale, qk_norm=head_norm)
    layer = Layer(attn_norm=norm, attn=attn, attn_post_norm=norm, mlp_norm=norm, mlp=mlp, mlp_post_norm=norm)
    layers = read_turned_windows(fields, layer, attn.head_dim, BASES, read_pattern(fields, "_sliding_window_pattern"))
    # transformers has a field for a cap of scores, and does not look at it.
    fields.neutral({"use_bidirectional_attention": (False,), "attn_logit_softcapping": (None,)})
    options["embedding_multiplier"] = fields.integer("hidden_size") ** 0.5
    return read_decoder(fields, what, layers, norm, ignored=["hidden_act"], **options)
