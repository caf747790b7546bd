"""Every variant of a llama that its config.json can describe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Fields that make another network. Heads are 16 wide where nothing else is said.
NETWORKS: Mapping[str, Mapping[str, Any]] = {
    "grouped-query": {},
    "multi-head": {"num_key_value_heads": 4},
    "multi-head by default": {"num_key_value_heads": ...},
    "multi-query": {"num_key_value_heads": 1},
    "wide heads": {"head_dim": 32},
    "narrow heads": {"head_dim": 8},
    "tied head": {"tie_word_embeddings": True},
    "attention bias": {"attention_bias": True},
    "mlp bias": {"mlp_bias": True},
    "all biases, tied": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    "default epsilon": {"rms_norm_eps": ...},
    "large epsilon": {"rms_norm_eps": 0.1},
    **{
        f"activation {name}": {"hidden_act": name}
        for name in (
            "swish",
            "gelu",
            "gelu_python",
            "gelu_new",
            "gelu_fast",
            "gelu_accurate",
            "gelu_pytorch_tanh",
            "gelu_python_tanh",
            "relu",
        )
    },
}

_LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
_YARN = {"factor": 4.0, "original_max_position_embeddings": 16}
_LONGROPE = {
    "short_factor": [1.0, 1.0, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0],
    "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0],
    "original_max_position_embeddings": 32,
}

# Each kind of rotary embedding, with all that may modify it, in its three spellings.
_SCALINGS: Mapping[str, Mapping[str, Any]] = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 2.5},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "llama3": {"rope_type": "llama3", **_LLAMA3},
    "yarn": {"rope_type": "yarn", **_YARN},
    "longrope": {"rope_type": "longrope", **_LONGROPE},
}
_MODIFIED: Mapping[str, Mapping[str, Any]] = {
    "yarn without original length": {"rope_type": "yarn", "factor": 4.0},
    "yarn with null factor": {"rope_type": "yarn", **_YARN, "factor": None},
    "yarn with attention factor": {"rope_type": "yarn", **_YARN, "attention_factor": 1.3},
    "yarn with betas": {"rope_type": "yarn", **_YARN, "beta_fast": 16.0, "beta_slow": 2.0},
    "yarn with mscale": {"rope_type": "yarn", **_YARN, "mscale": 1.2, "mscale_all_dim": 0.8},
    "yarn with mscale alone": {"rope_type": "yarn", **_YARN, "mscale": 1.2},
    "yarn untruncated": {"rope_type": "yarn", **_YARN, "truncate": False},
    "llama3 without original length": {
        "rope_type": "llama3",
        **{name: value for name, value in _LLAMA3.items() if name != "original_max_position_embeddings"},
    },
    "longrope with factor": {"rope_type": "longrope", **_LONGROPE, "factor": 8.0},
    "longrope with attention factor": {"rope_type": "longrope", **_LONGROPE, "attention_factor": 1.5},
}


def _spellings(scaling: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    older = {"type" if name == "rope_type" else name: value for name, value in scaling.items()}
    return {
        "type": {"rope_theta": 5000.0, "rope_scaling": older},
        "rope_type": {"rope_theta": 5000.0, "rope_scaling": dict(scaling)},
        "rope_parameters": {"rope_theta": ..., "rope_parameters": {**scaling, "rope_theta": 5000.0}},
    }


ROPES: Mapping[str, Mapping[str, Any]] = {
    "theta alone": {"rope_theta": 500000.0},
    "null scaling": {"rope_scaling": None},
    "default theta": {"rope_theta": ...},
    **{
        f"{kind} by {spelling}": fields
        for kind, scaling in _SCALINGS.items()
        for spelling, fields in _spellings(scaling).items()
    },
    **{name: {"rope_parameters": {**scaling, "rope_theta": 10000.0}} for name, scaling in _MODIFIED.items()},
    "original length outside": {
        "original_max_position_embeddings": 16,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0},
    },
    "both forms in agreement": {
        "rope_scaling": {"type": "linear", "rope_type": "linear", "factor": 2.0},
        "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0},
    },
}

# One of each kind is enough where the path through the code does not depend on the spelling.
KINDS: Mapping[str, Mapping[str, Any]] = {kind: ROPES[f"{kind} by rope_type"] for kind in _SCALINGS}
