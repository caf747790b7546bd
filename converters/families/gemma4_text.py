"""Gemma 4's language model: heads of two sizes, keys and values shared by the last layers, an input for each layer.

Layers without a window may take keys for values; the large model has experts beside each MLP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import ModelConfig
from zoo.models.errors import ZooError

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, GATED_MLP, QK_NORMS, ROPE_BUFFERS, SANDWICH_NORMS
from ..gemma4 import BESIDE, LAYER, LAYER_INPUTS, ROPES, read_gemma4
from ..gguf_column import ATTENTION_BIAS, GATES_AND_UPS, GgufColumn
from ..hf_config import Fields
from ..hf_decoder import FULL, SLIDING, defaults
from ..tiny import tiny

ARCHITECTURES = ("Gemma4ForCausalLM",)
ROWS = (*EMBEDDING_AND_HEAD, *SANDWICH_NORMS, *ATTENTION, *QK_NORMS, *GATED_MLP, *LAYER_INPUTS, *BESIDE)
# Files have keys and values also for layers that take them from another.
UNUSED = tuple(f"{LAYER}.self_attn.{name}.weight" for name in ("k_proj", "v_proj", "k_norm", "v_norm"))
PASSENGERS = (*ROPE_BUFFERS, *UNUSED)
GELU = {"hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True}
DEFAULTS = {
    **defaults(262144, 2304, 9216, layers=30, heads=8, kv_heads=4, head_dim=256, positions=131072, **GELU),
    **{"sliding_window": 512, "vocab_size_per_layer_input": 262144, "global_head_dim": 512},
    **{"hidden_size_per_layer_input": 256, "num_kv_shared_layers": 0},
}


def _with_sizes(found: dict[str, Any]) -> dict[str, Any]:
    """Lists say sizes layer by layer, and only where they differ; without windows heads are as wide as GGUF's."""
    windows, counts = found["layer_types"], found["num_key_value_heads"]
    width, turned = found["sliding_width"], found["sliding_turned"]
    if not isinstance(windows, list) or not width == found["sliding_value_width"] == turned:
        raise ZooError(
            "gemma4.attention.sliding_window_pattern is to say of each layer whether it slides, and "
            "attention.key_length_swa, attention.value_length_swa and rope.dimension_count_swa to be equal; found "
            f"{type(windows).__name__}, {width}, {found['sliding_value_width']} and {turned}"
        )
    kinds = [SLIDING if slides else FULL for slides in windows]
    sizes: dict[str, Any] = {"head_dim": width, "global_head_dim": found["head_dim"], "layer_types": kinds}
    # Heads of keys are as many everywhere, but where keys are values too.
    sizes["attention_k_eq_v"] = isinstance(counts, list)
    if isinstance(counts, list):
        # Which is also the kind of the last layer.
        by_kind = {FULL: counts[-1], **dict(zip(kinds, counts, strict=False))}
        sizes |= {"num_key_value_heads": by_kind.get(SLIDING, counts[0]), "num_global_key_value_heads": by_kind[FULL]}
    widths = found["intermediate_size"]
    if isinstance(widths, list):
        sizes |= {"intermediate_size": widths[0], "use_double_wide_mlp": widths[-1] == 2 * widths[0]}
    ropes = {
        FULL: {"rope_type": "default", **(found["rope_scaling"] or {}), "rope_theta": found["rope_theta"]},
        SLIDING: {"rope_type": "default", "rope_theta": found["sliding_theta"]},
    }
    return {**found, **sizes, "rope_parameters": ropes, "vocab_size_per_layer_input": found["vocab_size"]}


_MIDWAY = ("sliding_width", "sliding_value_width", "sliding_turned", "sliding_theta", "rope_theta", "rope_scaling")
GGUF = GgufColumn(
    "gemma4",
    experts=True,
    rename={"hidden_act": "hidden_activation", **dict.fromkeys(_MIDWAY)},
    fields={
        **{"attention.sliding_window": "sliding_window", "attention.sliding_window_pattern": "layer_types"},
        **{"attention.key_length_swa": "sliding_width", "attention.value_length_swa": "sliding_value_width"},
        **{"rope.dimension_count_swa": "sliding_turned", "rope.freq_base_swa": "sliding_theta"},
        **{"attention.head_count_kv": "num_key_value_heads", "feed_forward_length": "intermediate_size"},
        **{"attention.shared_kv_layers": "num_kv_shared_layers", "expert_count": "num_experts"},
        **{"expert_used_count": "top_k_experts", "expert_feed_forward_length": "moe_intermediate_size"},
        **{"embedding_length_per_layer_input": "hidden_size_per_layer_input"},
        **{"final_logit_softcapping": "final_logit_softcapping"},
    },
    absent={
        **{"sliding_theta": 10000.0, "num_kv_shared_layers": 0, "final_logit_softcapping": None},
        **dict.fromkeys(("num_experts", "top_k_experts", "moe_intermediate_size")),
    },
    present={**ATTENTION_BIAS, "enable_moe_block": ".ffn_gate_inp.weight"},
    fixed={"hidden_act": "gelu_pytorch_tanh"},
    derive=_with_sizes,
    tensors={
        "layer_scalar": "blk.{i}.layer_output_scale.weight",
        "router.scale": "blk.{i}.ffn_gate_inp.scale",
        "router.per_expert_scale": "blk.{i}.ffn_down_exps.scale",
        "experts.gate_up_proj": "blk.{i}.ffn_gate_up_exps.weight",
        "experts.down_proj": "blk.{i}.ffn_down_exps.weight",
    },
    divided={"experts.gate_up_proj": GATES_AND_UPS},
)
TINY = {
    **tiny("gemma4_text", "Gemma4ForCausalLM", hidden_act=..., num_hidden_layers=6, rope_theta=..., **GELU),
    **{"layer_types": [SLIDING, FULL, SLIDING, SLIDING, SLIDING, FULL], "global_head_dim": 24, "sliding_window": 9},
    **{"num_kv_shared_layers": 3, "hidden_size_per_layer_input": 12, "vocab_size_per_layer_input": 128},
    **{"use_double_wide_mlp": True, "final_logit_softcapping": 3.0, "rope_parameters": ROPES},
}
VARIANTS = {
    "experts, keys for values, nothing shared, untied": {
        **{"enable_moe_block": True, "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 20},
        **{"attention_k_eq_v": True, "num_global_key_value_heads": 1, "num_kv_shared_layers": 0, "rms_norm_eps": 0.1},
        **{"hidden_size_per_layer_input": 0, "use_double_wide_mlp": False, "tie_word_embeddings": False},
        **{"attention_bias": True, "final_logit_softcapping": None},
    },
    "as transformers writes it": {
        **{"layer_types": [SLIDING, FULL] * 3, "global_head_dim": ..., "hidden_activation": "gelu"},
        **{"per_layer_config": {str(index): {"head_dim": 32, "num_key_value_heads": 4} for index in (1, 3, 5)}},
        "rope_parameters": {
            FULL: {**ROPES[FULL], "partial_rotary_factor": 0.5, "factor": 2.0},
            SLIDING: ROPES[SLIDING],
        },
    },
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    return read_gemma4(Fields(hf, DEFAULTS), "gemma4_text")
