"""gpt-oss: experts with a clamped gate, sinks, biases everywhere, and a window on every other layer.

Experts lie in one tensor, not transposed, gates and ups row by row. Of files with MXFP4 blocks only GGUF is read yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import ClampedUnit, Layer, ModelConfig, Router

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, PRE_NORMS, ROPE_BUFFERS, linear
from ..gguf_column import ATTENTION_BIAS, GATES_AND_UPS, GgufColumn
from ..hf_config import Fields
from ..hf_decoder import (
    FULL,
    MOE_IGNORED,
    SLIDING,
    defaults,
    read_attention,
    read_decoder,
    read_experts,
    read_norm,
    read_windows,
    with_windows,
)
from ..layout import Row
from ..tiny import tiny

ARCHITECTURES = ("GptOssForCausalLM",)
MLP, NATIVE = "model.layers.{i}.mlp", "layers.{i}.mlp"
ROWS = (
    *EMBEDDING_AND_HEAD,
    *PRE_NORMS,
    *ATTENTION,
    Row("model.layers.{i}.self_attn.sinks", "layers.{i}.attn.sinks", "heads -> heads"),
    *linear(f"{MLP}.router", f"{NATIVE}.router", "experts embed -> embed experts", "experts -> experts"),
    Row(
        f"{MLP}.experts.gate_up_proj",
        (f"{NATIVE}.experts.gate.kernel", f"{NATIVE}.experts.up.kernel"),
        ("experts embed (ffn []) -> experts embed ffn",) * 2,
    ),
    Row(
        f"{MLP}.experts.gate_up_proj_bias",
        (f"{NATIVE}.experts.gate.bias", f"{NATIVE}.experts.up.bias"),
        ("experts (ffn []) -> experts ffn",) * 2,
    ),
    Row(f"{MLP}.experts.down_proj", f"{NATIVE}.experts.down.kernel", "experts ffn embed -> experts ffn embed"),
    Row(f"{MLP}.experts.down_proj_bias", f"{NATIVE}.experts.down.bias", "experts embed -> experts embed"),
)
PASSENGERS = ROPE_BUFFERS
YARN = {
    **{"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False},
    "original_max_position_embeddings": 4096,
}
DEFAULTS = {
    **defaults(201088, 2880, 2880, layers=36, heads=64, kv_heads=8, head_dim=64, positions=131072),
    **{"rms_norm_eps": 1e-5, "num_local_experts": 128, "num_experts_per_tok": 4, "sliding_window": 128},
    **{"attention_bias": True, "swiglu_alpha": 1.702, "swiglu_limit": 7.0},
}


def _with_rope(found: dict[str, Any]) -> dict[str, Any]:
    """The frequencies of the published checkpoints are not rounded, and no scaling must be said to be none."""
    scaling = found["rope_scaling"]
    return {**found, "rope_scaling": {**scaling, "truncate": False} if scaling else {"rope_type": "default"}}


GGUF = GgufColumn(
    "gpt-oss",
    experts=True,
    fields={
        **{"attention.sliding_window": "sliding_window", "expert_feed_forward_length": "intermediate_size"},
        **{"expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok"},
    },
    present=ATTENTION_BIAS,
    fixed={"swiglu_alpha": 1.702, "swiglu_limit": 7.0},
    derive=_with_rope,
    patterns={"experts.down_proj": "experts ffn embed -> experts embed ffn"},
    tensors={
        **{"sinks": "blk.{i}.attn_sinks.weight", "experts.down_proj": "blk.{i}.ffn_down_exps.weight"},
        "experts.down_proj_bias": "blk.{i}.ffn_down_exps.bias",
    },
    divided={
        "gate_up_proj": GATES_AND_UPS,
        "gate_up_proj_bias": {
            f"blk.{{i}}.ffn_{part}_exps.bias": "experts ffn -> experts ffn" for part in ("gate", "up")
        },
    },
)
SMALL = {**YARN, "factor": 4.0, "original_max_position_embeddings": 16}
TINY = {
    **tiny("gpt_oss", "GptOssForCausalLM", sliding_window=9, num_local_experts=4, num_experts_per_tok=2),
    **{"rope_scaling": SMALL, "rope_theta": 150000.0, "swiglu_limit": 1.0},
}
VARIANTS = {
    "layer types, tied, plain": {
        **{"layer_types": ["full_attention", "sliding_attention"], "tie_word_embeddings": True, "swiglu_alpha": 1.0},
        **{"rope_scaling": {**SMALL, "truncate": True}, "num_experts_per_tok": 3, "attention_bias": False},
    },
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    # Where no scaling is named there is one all the same; only an object that names none turns it off.
    unnamed = not hf.get("rope_scaling") and hf.get("rope_parameters") is None
    fields = Fields({**hf, "rope_scaling": YARN} if unnamed else hf, DEFAULTS)
    norm, attn = read_norm(fields), read_attention(fields, theta=150000.0, sinks=True)
    router = Router(top_k=fields.integer("num_experts_per_tok"), score="softmax_of_chosen", bias=True)
    unit = ClampedUnit(alpha=fields.number("swiglu_alpha"), limit=fields.number("swiglu_limit"))
    width = "intermediate_size"
    mlp = read_experts(fields, count="num_local_experts", width=width, router=router, activation=unit, bias=True)
    layer = Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=mlp)
    windows = read_windows(fields, lambda index: FULL if index % 2 else SLIDING)
    # The unit is the model's own; this is what files say of it.
    fields.neutral({"hidden_act": ("silu",)})
    ignored = [*MOE_IGNORED, "initial_context_length", "experts_per_token"]
    return read_decoder(fields, "gpt_oss", with_windows(layer, windows), norm, ignored=ignored)
