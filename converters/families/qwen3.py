"""Qwen3 (dense): Llama with a norm on every head's queries and keys before they turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig, QkNorm

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, GATED_MLP, PRE_NORMS, QK_NORMS, ROPE_BUFFERS
from ..gguf_column import ATTENTION_BIAS, GgufColumn
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

ARCHITECTURES = ("Qwen3ForCausalLM",)
ROWS = (*EMBEDDING_AND_HEAD, *PRE_NORMS, *ATTENTION, *QK_NORMS, *GATED_MLP)
PASSENGERS = ROPE_BUFFERS
QWEN_WINDOWS = {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}
DEFAULTS = defaults(151936, 4096, 22016, kv_heads=32, head_dim=128, positions=32768, **QWEN_WINDOWS)
GGUF = GgufColumn("qwen3", present=ATTENTION_BIAS)
TINY = tiny("qwen3", "Qwen3ForCausalLM")
WINDOWS = {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}
VARIANTS = {"window, tied": {**WINDOWS, "tie_word_embeddings": True}, "biases": {"attention_bias": True}}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    norm, mlp = read_norm(fields), read_gated_mlp(fields)
    attn = read_attention(fields, qk_norm=QkNorm(norm=norm, kind="shared"))
    layer = Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=mlp)
    return read_decoder(fields, "qwen3", with_windows(layer, read_qwen_windows(fields)), norm)
