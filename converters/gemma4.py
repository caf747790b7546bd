"""The parts of Gemma 4's language model: rows of what only it has, and readers of its layers."""

from __future__ import annotations

from typing import Any

from zoo.models.config import Attention, Beside, Layer, LayerInput, LayerInputs, ModelConfig, Norm, QkNorm, Router

from .blocks import fused_expert_rows, layer_norm
from .hf_config import ACTIVATIONS, Fields
from .hf_decoder import (
    FULL,
    SLIDING,
    read_attention,
    read_decoder,
    read_experts,
    read_gated_mlp,
    read_layer_types,
    read_norm,
)
from .hf_rope import read_ropes
from .layout import Row

LAYER, NATIVE = "model.layers.{i}", "layers.{i}"
LAYER_INPUTS = (
    Row(
        "model.embed_tokens_per_layer.weight",
        "layer_inputs.embedding",
        "vocab (layers layer_input) -> vocab layers layer_input",
    ),
    Row(
        "model.per_layer_model_projection.weight",
        "layer_inputs.projection.kernel",
        "(layers layer_input) embed -> embed layers layer_input",
    ),
    Row("model.per_layer_projection_norm.weight", "layer_inputs.norm.scale", "layer_input -> layer_input"),
    Row(
        f"{LAYER}.per_layer_input_gate.weight", f"{NATIVE}.input.gate.kernel", "layer_input embed -> embed layer_input"
    ),
    Row(f"{LAYER}.per_layer_projection.weight", f"{NATIVE}.input.out.kernel", "embed layer_input -> layer_input embed"),
    layer_norm(f"{LAYER}.post_per_layer_input_norm", f"{NATIVE}.input.norm")[0],
    Row(f"{LAYER}.layer_scalar", f"{NATIVE}.scale", "() ->"),
)
BESIDE = (
    layer_norm(f"{LAYER}.post_feedforward_layernorm_1", f"{NATIVE}.beside.mlp_post_norm")[0],
    layer_norm(f"{LAYER}.pre_feedforward_layernorm_2", f"{NATIVE}.beside.norm")[0],
    layer_norm(f"{LAYER}.post_feedforward_layernorm_2", f"{NATIVE}.beside.post_norm")[0],
    Row(f"{LAYER}.router.scale", f"{NATIVE}.beside.mlp.router.norm.scale", "embed -> embed"),
    Row(f"{LAYER}.router.proj.weight", f"{NATIVE}.beside.mlp.router.kernel", "experts embed -> embed experts"),
    Row(f"{LAYER}.router.per_expert_scale", f"{NATIVE}.beside.mlp.router.expert_scale", "experts -> experts"),
    *fused_expert_rows(f"{LAYER}.experts.gate_up_proj", f"{LAYER}.experts.down_proj", f"{NATIVE}.beside.mlp"),
)
ROPES = {
    FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
    SLIDING: {"rope_type": "default", "rope_theta": 10000.0},
}


def read_gemma4(fields: Fields, what: str, **options: Any) -> ModelConfig:
    """The network that a config.json describes, or a part of one; `what` and `options` as for `read_decoder`."""
    norm, mlp = read_norm(fields), read_gated_mlp(fields, activation="hidden_activation")
    kinds = [*read_layer_types(fields, lambda index: SLIDING if (index + 1) % 6 else FULL)[:-1], FULL]
    width = fields.integer("hidden_size_per_layer_input", minimum=0)
    embed, vocab = fields.integer("hidden_size"), fields.integer("vocab_size")
    attn = _attentions(fields, norm, kinds)
    base = Layer(
        attn_norm=norm,
        attn=attn[FULL],
        attn_post_norm=norm,
        mlp_norm=norm,
        mlp=mlp,
        mlp_post_norm=norm,
        beside=_beside(fields, norm, embed) if fields.boolean("enable_moe_block") else None,
        input=LayerInput(width=width, activation=mlp.activation, norm=norm) if width else None,
        learned_scale=True,
    )
    own = len(kinds) - fields.integer("num_kv_shared_layers", minimum=0)
    if not set(kinds[own:]) <= set(kinds[: max(own, 0)]):
        fields.problem("num_kv_shared_layers: no layer of each kind is left whose keys and values others could share")
        own = len(kinds)
    wide = {"mlp": mlp.model_copy(update={"ffn": 2 * mlp.ffn})} if fields.boolean("use_double_wide_mlp") else {}
    layers = [base.model_copy(update={"attn": attn[kind]}) for kind in kinds[:own]]
    for kind in kinds[own:]:
        source = own - 1 - kinds[:own][::-1].index(kind)
        shared = attn[kind].model_copy(update={"shares": source, "v_norm": None, "keys_are_values": False})
        layers.append(base.model_copy(update={"attn": shared, **wide}))
    inputs = LayerInputs(vocab=fields.integer("vocab_size_per_layer_input"), width=width, norm=norm) if width else None
    if inputs and inputs.vocab < vocab:
        fields.problem(f"vocab_size_per_layer_input {inputs.vocab} is less than vocab_size {vocab}")
    options["logit_softcap"] = fields.optional_number("final_logit_softcapping")
    fields.neutral({"use_bidirectional_attention": ("vision",)})
    ignored = ["hidden_act", "vocab_size_per_layer_input", "num_experts", "top_k_experts", "moe_intermediate_size"]
    return read_decoder(
        fields, what, layers, norm, ignored=ignored, embedding_multiplier=embed**0.5, layer_inputs=inputs, **options
    )


def _attentions(fields: Fields, norm: Norm, kinds: list[str]) -> dict[str, Attention]:
    """The attention of layers of each kind."""
    positions, window = fields.integer("max_position_embeddings"), fields.integer("sliding_window")
    head_dim, kv_heads = _sizes_without_window(fields, kinds)
    dims = {FULL: head_dim, SLIDING: fields.integer("head_dim")}
    fields.neutral({"rope_scaling": ()})
    fields.lay_under("rope_parameters", ROPES)
    for kind in sorted(set(kinds)):
        own = fields.object("rope_parameters").get(kind)
        if not isinstance(own, dict) or own.get("rope_theta") is None:
            fields.problem(
                f"{fields.prefix}rope_parameters.{kind}: expected an object with a rope_theta, found {own!r}"
            )
    ropes = read_ropes(fields, dims, positions, {FULL: (None, 1e6), SLIDING: (None, 1e4)})
    sliding = read_attention(
        fields,
        rope=ropes[SLIDING],
        window=window,
        scale=1.0,
        qk_norm=QkNorm(norm=norm, kind="shared"),
        v_norm=norm.model_copy(update={"scale": False}),
    )
    sizes = {"head_dim": head_dim, "kv_heads": kv_heads, "keys_are_values": fields.boolean("attention_k_eq_v")}
    return {SLIDING: sliding, FULL: sliding.model_copy(update={"rope": ropes[FULL], "window": None, **sizes})}


def _sizes_without_window(fields: Fields, kinds: list[str]) -> tuple[int, int]:
    """The size of heads and the number of key heads of layers that see everything."""
    heads, kv_heads = fields.integer("num_attention_heads"), fields.integer("num_key_value_heads")
    given = fields.object("per_layer_config")
    fields.skip(["global_head_dim", "num_global_key_value_heads"])
    if given:
        # As transformers writes it: what differs, by the layer's index.
        expected = [index for index, kind in enumerate(kinds) if kind == FULL]
        found = [int(index) for index in given if str(index).isdecimal()]
        sizes = next(iter(given.values()))
        if sorted(found) != expected or any(its != sizes or not isinstance(its, dict) for its in given.values()):
            layers = ", ".join(map(str, expected))
            fields.problem(f"per_layer_config: expected the same sizes for each of the layers {layers}, and no others")
            sizes = {}
        inner = Fields(sizes, prefix=f"{fields.prefix}per_layer_config.", problems=fields.problems)
        head_dim = inner.integer("head_dim", fields.integer("head_dim"))
        kv_heads = inner.integer("num_key_value_heads", kv_heads)
        inner.refuse_unknown()
    else:
        head_dim = fields.integer("global_head_dim")
        if fields.boolean("attention_k_eq_v") and fields.has("num_global_key_value_heads"):
            kv_heads = fields.integer("num_global_key_value_heads")
    if heads % kv_heads:
        fields.problem(f"num_attention_heads {heads} is not a multiple of num_global_key_value_heads {kv_heads}")
    return head_dim, kv_heads


def _beside(fields: Fields, norm: Norm, embed: int) -> Beside:
    """The experts beside each MLP."""
    router = Router(
        top_k=fields.integer("top_k_experts"),
        score="softmax",
        normalise=True,
        norm=norm,
        multiplier=embed**-0.5,
        learned_scale=True,
    )
    activation = fields.choice("hidden_activation", ACTIVATIONS)
    experts = read_experts(
        fields, count="num_experts", width="moe_intermediate_size", router=router, activation=activation
    )
    return Beside(mlp_post_norm=norm, norm=norm, experts=experts, post_norm=norm)
