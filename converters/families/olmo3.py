"""OLMo 3: OLMo 2 with a window on three layers of four, which turn plainly whatever the others do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig, QkNorm

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, GATED_MLP, JOINT_QK_NORMS, POST_NORMS, ROPE_BUFFERS
from ..gguf_column import ATTENTION_BIAS, GgufColumn
from ..hf_config import Fields
from ..hf_decoder import (
    FULL,
    SLIDING,
    defaults,
    read_attention,
    read_decoder,
    read_gated_mlp,
    read_norm,
    read_turned_windows,
)
from ..tiny import tiny

ARCHITECTURES = ("Olmo3ForCausalLM",)
ROWS = (*EMBEDDING_AND_HEAD, *POST_NORMS, *ATTENTION, *JOINT_QK_NORMS, *GATED_MLP)
PASSENGERS = ROPE_BUFFERS
DEFAULTS = defaults(50304, 4096, 11008, positions=2048, rms_norm_eps=1e-5, sliding_window=4096)


def _with_layer_types(found: dict[str, Any]) -> dict[str, Any]:
    """The pattern says of each layer whether it slides; those that do turn plainly, with the same base if no other."""
    plain = {"rope_type": "default", "rope_theta": found["rope_theta"]}
    sliding = {**plain, "rope_theta": found["sliding_theta"] or plain["rope_theta"]}
    ropes = {FULL: {**plain, **(found["rope_scaling"] or {})}, SLIDING: sliding}
    pattern = found["layer_types"]
    kinds = pattern and [SLIDING if slides else FULL for slides in pattern]
    return {**found, "layer_types": kinds, "rope_parameters": ropes}


GGUF = GgufColumn(
    "olmo2",
    tells=lambda keys: bool(keys.get("attention.sliding_window")),
    rename=dict.fromkeys(("rope_theta", "rope_scaling", "sliding_theta")),
    fields={
        **{"attention.sliding_window": "sliding_window", "attention.sliding_window_pattern": "layer_types"},
        "rope.freq_base_swa": "sliding_theta",
    },
    absent={"layer_types": None, "sliding_theta": None},
    present=ATTENTION_BIAS,
    derive=_with_layer_types,
)
TINY = {
    **tiny("olmo3", "Olmo3ForCausalLM", head_dim=..., pad_token_id=0, num_hidden_layers=4, sliding_window=9),
    **{"rope_theta": 500000.0, "max_position_embeddings": 64},
    "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
}
VARIANTS = {
    "tied, biases": {"tie_word_embeddings": True, "attention_bias": True, "rms_norm_eps": 0.1, "rope_scaling": ...},
    "layer types, new spelling": {
        **{"layer_types": ["full_attention", *["sliding_attention"] * 3], "rope_scaling": ..., "rope_theta": ...},
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
        },
    },
}
# Older files' rope_theta is that of full layers alone; transformers gives the others its default.
BASES: Mapping[str, tuple[str | None, float]] = {FULL: ("rope_theta", 500000.0), SLIDING: (None, 500000.0)}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    norm, mlp = read_norm(fields), read_gated_mlp(fields)
    attn = read_attention(fields, rope=None, qk_norm=QkNorm(norm=norm, kind="joint"))
    layer = Layer(attn_norm=None, attn=attn, attn_post_norm=norm, mlp_norm=None, mlp=mlp, mlp_post_norm=norm)
    layers = read_turned_windows(
        fields, layer, attn.head_dim, BASES, lambda index: SLIDING if (index + 1) % 4 else FULL
    )
    return read_decoder(fields, "olmo3", layers, norm)
