"""What the families with linear attention by the gated delta rule share: rows, readers, and fields for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Attention, GatedDeltaNet, Mixer, Norm, QkNorm

from .blocks import ATTENTION, QK_NORMS
from .gguf_column import Patterns
from .hf_config import ACTIVATIONS, Fields
from .hf_decoder import FULL, read_attention, read_layer_types, read_norm
from .hf_rope import read_rope
from .layout import Row

LINEAR, NATIVE = "model.layers.{i}.linear_attn", "layers.{i}.attn"
# The head of a query and that of its gate lie one after the other.
QUERIES = ("(heads [head_dim]) embed -> embed heads head_dim",) * 2
QUERY_BIASES = ("(heads [head_dim]) -> heads head_dim",) * 2
GATED_ATTENTION = (
    Row("model.layers.{i}.self_attn.q_proj.weight", (f"{NATIVE}.q.kernel", f"{NATIVE}.gate.kernel"), QUERIES),
    Row("model.layers.{i}.self_attn.q_proj.bias", (f"{NATIVE}.q.bias", f"{NATIVE}.gate.bias"), QUERY_BIASES),
    *(row for row in ATTENTION if "q_proj" not in row.source),
    *QK_NORMS,
)
CONVOLVED = tuple(f"{NATIVE}.{name}_convolution.kernel" for name in ("query", "key", "value"))
DELTA_NET = (
    Row(
        f"{LINEAR}.conv1d.weight",
        CONVOLVED,
        (
            *("[kv_heads head_dim] () taps -> taps kv_heads head_dim",) * 2,
            "[kv_heads group head_dim] () taps -> taps kv_heads group head_dim",
        ),
    ),
    Row(f"{LINEAR}.dt_bias", f"{NATIVE}.decay_bias", "(kv_heads group) -> kv_heads group"),
    Row(f"{LINEAR}.A_log", f"{NATIVE}.decay_rate", "(kv_heads group) -> kv_heads group"),
    Row(f"{LINEAR}.norm.weight", f"{NATIVE}.norm.scale", "head_dim -> head_dim"),
    Row(
        f"{LINEAR}.out_proj.weight",
        f"{NATIVE}.out.kernel",
        "embed (kv_heads group head_dim) -> kv_heads group head_dim embed",
    ),
)
LINEAR_DEFAULTS = {
    **{"linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128},
    **{"linear_num_key_heads": 16, "linear_num_value_heads": 32, "full_attention_interval": 4},
}
LINEAR_TINY = {
    **{"linear_conv_kernel_dim": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 12, "linear_num_key_heads": 2},
    **{"linear_num_value_heads": 6, "full_attention_interval": 2, "partial_rotary_factor": 0.5},
}
LINEAR_VARIANT = {
    **{"linear_conv_kernel_dim": 2, "linear_num_value_heads": 2, "partial_rotary_factor": ..., "rms_norm_eps": 0.1},
    **{"layer_types": ["full_attention", "linear_attention"], "full_attention_interval": ..., "attention_bias": True},
    **{"tie_word_embeddings": True},
}

# GGUF has the taps of the channels without the axis between, and calls its sizes those of a state space.
GGUF_CONVOLUTION: Patterns = (
    *("[kv_heads head_dim] taps -> taps kv_heads head_dim",) * 2,
    "[kv_heads group head_dim] taps -> taps kv_heads group head_dim",
)
GGUF_TENSORS = {"linear_attn.dt_bias": "blk.{i}.ssm_dt.bias"}
GGUF_FIELDS = {
    "ssm.conv_kernel": "linear_conv_kernel_dim",
    "ssm.state_size": "linear_key_head_dim",
    "ssm.group_count": "linear_num_key_heads",
    "ssm.time_step_rank": "linear_num_value_heads",
    "ssm.inner_size": "linear_value_head_dim",
    "full_attention_interval": "full_attention_interval",
}
GGUF_ABSENT: Mapping[str, Any] = {"full_attention_interval": 4}


def with_value_width(config: dict[str, Any]) -> dict[str, Any]:
    """With the width of one head of values, in the place of the width of all of them that GGUF has."""
    return {**config, "linear_value_head_dim": config["linear_value_head_dim"] // config["linear_num_value_heads"]}


def read_mixers(fields: Fields) -> list[Mixer]:
    """What each layer brings tokens together by: linear attention, or on every so many-th layer the other."""
    interval = fields.integer("full_attention_interval")
    kinds = read_layer_types(
        fields, lambda index: FULL if (index + 1) % interval == 0 else "linear_attention", ("linear_attention", FULL)
    )
    full, linear = _attention(fields), _delta_net(fields)
    return [full if kind == FULL else linear for kind in kinds]


def _attention(fields: Fields) -> Attention:
    head_norm = QkNorm(norm=read_norm(fields, offset=1.0), kind="shared")
    # The sections of rotary embeddings for images are one for text.
    sizes = fields.integer("head_dim"), fields.integer("max_position_embeddings")
    rope = read_rope(fields, *sizes, fraction=0.25, ignored=("mrope_section", "mrope_interleaved"))
    return read_attention(fields, rope=rope, qk_norm=head_norm, gated=True)


def _delta_net(fields: Fields) -> GatedDeltaNet:
    heads, values = fields.integer("linear_num_key_heads"), fields.integer("linear_num_value_heads")
    if values % heads:
        fields.problem(f"linear_num_value_heads {values} is not a multiple of linear_num_key_heads {heads}")
    return GatedDeltaNet(
        key_heads=heads,
        group=max(values // heads, 1),
        key_dim=fields.integer("linear_key_head_dim"),
        value_dim=fields.integer("linear_value_head_dim"),
        taps=fields.integer("linear_conv_kernel_dim"),
        activation=fields.choice("hidden_act", ACTIVATIONS),
        norm=Norm(epsilon=fields.number("rms_norm_eps")),
    )
