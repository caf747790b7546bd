"""Cohere Command A: Command R with a window on three layers of four; the others do not turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig, Norm

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, GATED_MLP, PRE_NORMS, ROPE_BUFFERS
from ..gguf_column import ATTENTION_BIAS, GgufColumn
from ..hf_config import Fields
from ..hf_decoder import defaults, read_attention, read_decoder, read_gated_mlp, read_pattern, read_windows, varied
from ..tiny import tiny

ARCHITECTURES = ("Cohere2ForCausalLM",)
ROWS = (*EMBEDDING_AND_HEAD, *PRE_NORMS, *ATTENTION, *GATED_MLP)
PASSENGERS = ROPE_BUFFERS
DEFAULTS = {
    **defaults(256000, 8192, 22528, layers=40, heads=64, positions=8192, tie_word_embeddings=True),
    **{"layer_norm_eps": 1e-5, "logit_scale": 0.0625, "sliding_window": 4096, "sliding_window_pattern": 4},
}
GGUF = GgufColumn(
    "cohere2",
    epsilon="layer_norm_eps",
    fields={"logit_scale": "logit_scale", "attention.sliding_window": "sliding_window"},
    present=ATTENTION_BIAS,
    fixed={"sliding_window_pattern": 4},
)
TINY = {
    **tiny("cohere2", "Cohere2ForCausalLM", head_dim=..., rms_norm_eps=..., tie_word_embeddings=True, pad_token_id=0),
    **{"layer_norm_eps": 1e-5, "logit_scale": 0.25, "sliding_window": 9, "sliding_window_pattern": 2},
}
VARIANTS = {
    "layer types, untied, biases": {
        **{"layer_types": ["full_attention", "sliding_attention"], "sliding_window_pattern": ...},
        **{"_sliding_window_pattern": 4, "layer_switch": 4, "cache_implementation": "hybrid"},
        **{"tie_word_embeddings": False, "attention_bias": True, "layer_norm_eps": 0.1, "rope_theta": 50000.0},
    },
}
# What other implementations read of these files, in words that say the same.
SAME = {"rotary_pct": (1,), "position_embedding_type": ("rope_gptj",), "use_embedding_sharing": (True,)}
TRUE = dict.fromkeys(["use_gated_activation", "use_parallel_block", "use_parallel_embedding"], (True,))


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    norm = Norm(epsilon=fields.number("layer_norm_eps"), kind="layer")
    attn = read_attention(fields, interleaved=True)
    layer = Layer(attn_norm=norm, attn=attn, mlp_norm=None, mlp=read_gated_mlp(fields), parallel=True)
    windows = read_windows(fields, read_pattern(fields, "_sliding_window_pattern", "layer_switch"))
    layers = varied(layer, ({"window": w, "rope": attn.rope if w else None} for w in windows))
    fields.neutral({**SAME, **TRUE, "use_qk_norm": (False,)})
    fields.skip(["order_of_interleaved_layers"])
    return read_decoder(fields, "cohere2", layers, norm, logit_multiplier=fields.number("logit_scale"))
