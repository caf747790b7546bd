"""SmolLM3: Llama in which every fourth layer does not turn; those may have a window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, GATED_MLP, PRE_NORMS, ROPE_BUFFERS
from ..gguf_column import BIASES, PAIRED_ROWS, GgufColumn
from ..hf_config import Fields
from ..hf_decoder import (
    FULL,
    SLIDING,
    defaults,
    read_attention,
    read_decoder,
    read_gated_mlp,
    read_norm,
    read_windows,
    varied,
)
from ..tiny import tiny

ARCHITECTURES = ("SmolLM3ForCausalLM",)
ROWS = (*EMBEDDING_AND_HEAD, *PRE_NORMS, *ATTENTION, *GATED_MLP)
PASSENGERS = ROPE_BUFFERS
DEFAULTS = {
    **defaults(128256, 2048, 11008, layers=36, heads=16, kv_heads=4, positions=32768, tie_word_embeddings=True),
    **{"no_rope_layer_interval": 4, "no_rope_layers": None, "use_sliding_window": False, "sliding_window": None},
}
GGUF = GgufColumn("smollm3", present=BIASES, fixed={"no_rope_layer_interval": 4}, patterns=PAIRED_ROWS)
TINY = {
    **tiny("smollm3", "SmolLM3ForCausalLM", head_dim=..., num_hidden_layers=3, tie_word_embeddings=True),
    **{"no_rope_layer_interval": 2, "pad_token_id": 0},
}
VARIANTS = {
    "window, untied": {"use_sliding_window": True, "sliding_window": 9, "tie_word_embeddings": False},
    "layers listed, biases": {"no_rope_layers": [0, 1, 1], "attention_bias": True, "mlp_bias": True},
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    norm, mlp = read_norm(fields), read_gated_mlp(fields, bias="mlp_bias")
    attn = read_attention(fields, theta=2000000.0)
    layer = Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=mlp)
    count, interval = fields.integer("num_hidden_layers"), fields.integer("no_rope_layer_interval")
    turns = fields.values["no_rope_layers"] or [int((index + 1) % interval != 0) for index in range(count)]
    if not isinstance(turns, list) or len(turns) != count or not set(turns) <= {0, 1}:
        fields.problem(f"no_rope_layers: expected a list of {count} zeros and ones, found {turns!r}")
        turns = [1] * count
    used = fields.boolean("use_sliding_window")
    windows = read_windows(fields, lambda index: FULL if turns[index] or not used else SLIDING)
    changes = [
        {"window": window if used else None, "rope": attn.rope if turn else None}
        for window, turn in zip(windows, turns, strict=True)
    ]
    ignored = ["no_rope_layers", "max_window_layers"]
    return read_decoder(fields, "smollm3", varied(layer, changes), norm, ignored=ignored)
