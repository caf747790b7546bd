"""EXAONE 4: norms after both halves of a block and of each head; where layers have windows, the others do not turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig, QkNorm

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, GATED_MLP, POST_NORMS, QK_NORMS, ROPE_BUFFERS
from ..gguf_column import GgufColumn
from ..hf_config import Fields
from ..hf_decoder import (
    FULL,
    SLIDING,
    defaults,
    read_attention,
    read_decoder,
    read_gated_mlp,
    read_norm,
    read_window,
    read_windows,
    varied,
)
from ..tiny import tiny

ARCHITECTURES = ("Exaone4ForCausalLM",)
ROWS = (*EMBEDDING_AND_HEAD, *POST_NORMS, *ATTENTION, *QK_NORMS, *GATED_MLP)
PASSENGERS = ROPE_BUFFERS
WINDOWS = {"sliding_window": 4096, "sliding_window_pattern": 4}
DEFAULTS = defaults(102400, 4096, 16384, kv_heads=32, positions=2048, rms_norm_eps=1e-5, **WINDOWS)


def _with_layer_types(found: dict[str, Any]) -> dict[str, Any]:
    """The pattern is a number, or says of each layer whether it slides; without one, every fourth is a full one."""
    pattern, windows = found["layer_types"], found["sliding_window"] is not None
    if isinstance(pattern, list):
        return {**found, "layer_types": [SLIDING if slides else FULL for slides in pattern]}
    every = (4 if pattern is None else pattern) if windows else None
    listed = None if windows else [FULL] * found["num_hidden_layers"]
    return {**found, "layer_types": listed, "sliding_window_pattern": every}


GGUF = GgufColumn(
    "exaone4",
    fields={"attention.sliding_window": "sliding_window", "attention.sliding_window_pattern": "layer_types"},
    absent={"sliding_window": None, "layer_types": None},
    derive=_with_layer_types,
)
TINY = tiny("exaone4", "Exaone4ForCausalLM", sliding_window=9, sliding_window_pattern=2)
ALL = {"layer_types": ["full_attention", "full_attention"]}
VARIANTS = {
    "no windows, tied": {**ALL, "sliding_window": None, "sliding_window_pattern": None, "tie_word_embeddings": True},
    "layer types": {"layer_types": ["full_attention", "sliding_attention"], "sliding_window_pattern": "LLLG"},
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    norm, mlp = read_norm(fields), read_gated_mlp(fields)
    head_norm = QkNorm(norm=norm, kind="shared")
    attn = read_attention(fields, qk_norm=head_norm, qkv_bias=False, output_bias=False)
    layer = Layer(attn_norm=None, attn=attn, attn_post_norm=norm, mlp_norm=None, mlp=mlp, mlp_post_norm=norm)
    window = read_window(fields)
    # The pattern is a number, or a word beside a list of the layers' types that says the same.
    pattern = 0 if fields.has("layer_types") or window is None else fields.integer("sliding_window_pattern")
    windows = read_windows(fields, lambda index: SLIDING if pattern and (index + 1) % pattern else FULL)
    layers = varied(layer, ({"window": w, "rope": attn.rope if w or window is None else None} for w in windows))
    return read_decoder(fields, "exaone4", layers, norm, ignored=["sliding_window_pattern"])
