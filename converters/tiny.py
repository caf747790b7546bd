"""Tiny configurations for tests. Sizes differ where confusing them should be an error."""

from __future__ import annotations

from typing import Any

_FIELDS: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "hidden_act": "silu",
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}


def tiny(model_type: str, architecture: str, **changes: Any) -> dict[str, Any]:
    """A config.json of a family; a change to `...` takes a field out that most have."""
    fields = {"architectures": [architecture], "model_type": model_type, **_FIELDS, **changes}
    return {name: value for name, value in fields.items() if value is not ...}
