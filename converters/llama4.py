"""The parts of Llama 4's language model: a reader of its layers."""

from __future__ import annotations

from typing import Any

from zoo.models.config import GatedMlp, Layer, ModelConfig, Norm, QkNorm, QueryGrowth, Router

from .hf_config import ACTIVATIONS, Fields
from .hf_decoder import (
    FULL,
    MOE_IGNORED,
    read_attention,
    read_decoder,
    read_experts,
    read_layer_types,
    read_norm,
)

CHUNKED = "chunked_attention"


def read_llama4(fields: Fields, what: str, **options: Any) -> ModelConfig:
    """The network that a config.json describes, or a part of one; `what` and `options` as for `read_decoder`."""
    norm, activation = read_norm(fields), fields.choice("hidden_act", ACTIVATIONS)
    dense = GatedMlp(ffn=fields.integer("intermediate_size_mlp"), activation=activation)
    shared = GatedMlp(ffn=fields.integer("intermediate_size"), activation=activation)
    router = Router(top_k=fields.integer("num_experts_per_tok"), score="sigmoid")
    experts = read_experts(
        fields, count="num_local_experts", width="intermediate_size", router=router, shared=shared, scaled_input=True
    )
    turning = read_attention(fields, theta=5e5, interleaved=True)
    # It is the same before and after a rotation, which changes no lengths.
    head_norm = QkNorm(norm=Norm(epsilon=norm.epsilon, scale=False), kind="shared")
    turning = turning.model_copy(update={"qk_norm": head_norm if fields.boolean("use_qk_norm") else None})
    growth = QueryGrowth(beta=fields.number("attn_scale"), positions=fields.integer("floor_scale"), offset=1)
    still = turning.model_copy(
        update={
            **{"rope": None, "qk_norm": None},
            "query_growth": growth if fields.boolean("attn_temperature_tuning") else None,
        }
    )
    every, step = fields.integer("no_rope_layer_interval"), fields.integer("interleave_moe_layer_step")
    count = fields.integer("num_hidden_layers")
    turns = fields.indices("no_rope_layers") or [int((index + 1) % every != 0) for index in range(count)]
    sparse = fields.indices("moe_layers")
    if len(turns) < count:
        fields.problem(f"no_rope_layers: expected a number for each of {count} layers, found {len(turns)}")
        turns = [1] * count
    chunk = fields.integer("attention_chunk_size") if fields.has("attention_chunk_size") else None
    fields.skip(["attention_chunk_size"])
    kinds = read_layer_types(fields, lambda index: CHUNKED if turns[index] and chunk else FULL, (CHUNKED, FULL))
    layers = [
        Layer(
            attn_norm=norm,
            attn=(turning if turns[index] else still).model_copy(
                update={"window": chunk, "chunked": True} if kind == CHUNKED else {}
            ),
            mlp_norm=norm,
            mlp=experts if (index in sparse if sparse is not None else (index + 1) % step == 0) else dense,
        )
        for index, kind in enumerate(kinds)
    ]
    return read_decoder(fields, what, layers, norm, ignored=MOE_IGNORED, **options)
