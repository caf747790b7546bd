"""Qwen2 and 2.5: Llama whose queries, keys and values have a bias, and whose later layers may have a window.

The window counts only where `use_sliding_window` is true.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, GATED_MLP, PRE_NORMS, ROPE_BUFFERS
from ..gguf_column import GgufColumn
from ..hf_config import Fields
from ..hf_decoder import (
    defaults,
    read_attention,
    read_decoder,
    read_gated_mlp,
    read_norm,
    read_qwen_windows,
    with_windows,
)
from ..tiny import tiny

ARCHITECTURES = ("Qwen2ForCausalLM",)
ROWS = (*EMBEDDING_AND_HEAD, *PRE_NORMS, *ATTENTION, *GATED_MLP)
PASSENGERS = ROPE_BUFFERS
QWEN_WINDOWS = {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}
DEFAULTS = defaults(151936, 4096, 22016, kv_heads=32, positions=32768, **QWEN_WINDOWS)
WINDOWS = {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}
GGUF = GgufColumn("qwen2")
TINY = tiny("qwen2", "Qwen2ForCausalLM", head_dim=..., **WINDOWS)
VARIANTS = {
    "window not used, tied": {"use_sliding_window": False, "tie_word_embeddings": True},
    "layer types": {"layer_types": ["sliding_attention", "full_attention"]},
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    norm, mlp = read_norm(fields), read_gated_mlp(fields)
    attn = read_attention(fields, qkv_bias=True, output_bias=False)
    layer = Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=mlp)
    return read_decoder(fields, "qwen2", with_windows(layer, read_qwen_windows(fields)), norm)
