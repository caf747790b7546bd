"""Phi-3, 3.5 and 4: Llama with queries, keys and values in one tensor, gate and up in another, and LongRoPE.

Older files call LongRoPE `su`, or wrongly `yarn`. A part of each head may not turn (Phi-4-mini).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, GATE_UP, GATED_MLP, PRE_NORMS, ROPE_BUFFERS
from ..gguf_column import GgufColumn
from ..hf_config import Fields
from ..hf_decoder import defaults, read_attention, read_decoder, read_gated_mlp, read_norm, read_window
from ..layout import Row
from ..tiny import tiny

ARCHITECTURES = ("Phi3ForCausalLM",)
QKV = Row(
    "model.layers.{i}.self_attn.qkv_proj.weight",
    tuple(f"layers.{{i}}.attn.{name}.kernel" for name in ("q", "k", "v")),
    ("[heads head_dim] embed -> embed heads head_dim", *("[kv_heads head_dim] embed -> embed kv_heads head_dim",) * 2),
)
ROWS = (*EMBEDDING_AND_HEAD, *PRE_NORMS, QKV, ATTENTION[3], GATE_UP, GATED_MLP[2])
PASSENGERS = ROPE_BUFFERS
DEFAULTS = {**defaults(32064, 3072, 8192, positions=4096), "rms_norm_eps": 1e-5, "sliding_window": None}
GGUF = GgufColumn(
    "phi3",
    partial="partial_rotary_factor",
    fields={"attention.sliding_window": "sliding_window"},
    absent={"sliding_window": None},
)
TINY = tiny("phi3", "Phi3ForCausalLM", head_dim=..., sliding_window=None, pad_token_id=0)
ORIGINAL = "original_max_position_embeddings"
LONGROPE = {"type": "longrope", "short_factor": [1.0, 1.1], "long_factor": [2.0, 3.0]}
VARIANTS = {
    "longrope, part of a head, tied": {
        **{"rope_scaling": LONGROPE, "partial_rotary_factor": 0.5, ORIGINAL: 32},
        "tie_word_embeddings": True,
    },
    "window": {"sliding_window": 9},
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(_spelled(hf), DEFAULTS)
    if ORIGINAL not in hf and _rope(hf).get(ORIGINAL) not in (None, 4096):
        fields.problem(
            f"{ORIGINAL}: transformers takes it from outside of the rope's object, where it is 4096: say it there"
        )
    norm, mlp = read_norm(fields), read_gated_mlp(fields)
    attn = read_attention(fields, fraction=1.0, qkv_bias=False, output_bias=False, window=read_window(fields))
    layer = Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=mlp)
    return read_decoder(fields, "phi3", [layer] * fields.integer("num_hidden_layers"), norm)


def _spelled(hf: Mapping[str, Any]) -> dict[str, Any]:
    """With LongRoPE under its present name; the original length says something only beside it."""
    result = dict(hf)
    rope = _rope(hf)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        result.pop(ORIGINAL, None)
    elif ORIGINAL not in rope:
        result.setdefault(ORIGINAL, 4096)
    for name in ("rope_parameters", "rope_scaling"):
        if isinstance(result.get(name), dict) and kind in ("su", "yarn"):
            result[name] = {**result[name], "rope_type": "longrope", **({"type": "longrope"} if "type" in rope else {})}
    return result


def _rope(hf: Mapping[str, Any]) -> Mapping[str, Any]:
    """The rope's own object."""
    found = hf.get("rope_parameters") or hf.get("rope_scaling")
    return found if isinstance(found, dict) else {}
