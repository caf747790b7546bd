"""Readers of the parts that most families' config.json describe alike, under the names that most of them use.

They ask for fields without defaults: a family lays its own under what the file says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from zoo.models.config import (
    Attention,
    ExpertGroups,
    GatedMlp,
    LatentAttention,
    Layer,
    Mixer,
    MixtureOfExperts,
    ModelConfig,
    Norm,
    PlainMlp,
    Router,
    rope_of,
)

from .hf_config import ACTIVATIONS, FULL, HARMLESS, NEUTRAL, SLIDING, Fields
from .hf_rope import DEFAULT_THETA, context_length, read_rope, read_ropes, read_yarn_growth


def defaults(
    vocab: int,
    embed: int,
    ffn: int,
    *,
    layers: int = 32,
    heads: int = 32,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    positions: int,
    **others: Any,
) -> dict[str, Any]:
    """What a family lays under a file's fields; they are those of transformers, and tests compare them."""
    return {
        "vocab_size": vocab,
        "hidden_size": embed,
        "intermediate_size": ffn,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "max_position_embeddings": positions,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        **others,
    }


def read_norm(fields: Fields, **options: Any) -> Norm:
    """A root-mean-square norm; `options` are fields of `Norm`."""
    return Norm(epsilon=fields.number("rms_norm_eps"), **options)


def read_attention(
    fields: Fields,
    *,
    theta: float = DEFAULT_THETA,
    fraction: float | None = None,
    interleaved: bool = False,
    **options: Any,
) -> Attention:
    """Grouped-query attention.

    Args:
        theta, fraction, interleaved: as for `read_rope`.
        options: fields of `Attention`, which come before what the file says; with `rope` its rotary embedding is not
            read, with both biases `attention_bias` is not.
    """
    embed, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    kv_heads = fields.integer("num_key_value_heads") if fields.has("num_key_value_heads") else heads
    if heads % kv_heads:
        fields.problem(f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}")
    if fields.has("head_dim"):
        head_dim = fields.integer("head_dim")
    else:
        head_dim = max(embed // heads, 1)
        if embed % heads:
            fields.problem(f"hidden_size {embed} is not a multiple of num_attention_heads {heads}")
    fields.skip(["num_key_value_heads", "head_dim"])
    found: dict[str, Any] = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "scale": head_dim**-0.5}
    if not {"qkv_bias", "output_bias"} <= options.keys():
        found["qkv_bias"] = found["output_bias"] = fields.boolean("attention_bias")
    if "rope" not in options:
        positions = fields.integer("max_position_embeddings")
        found["rope"] = read_rope(fields, head_dim, positions, theta=theta, fraction=fraction, interleaved=interleaved)
    return Attention(**{**found, **options})


def read_latent_attention(fields: Fields, *, interleaved: bool) -> LatentAttention:
    """Latent attention as DeepSeek's files describe it; `interleaved` as for `read_rope`."""
    heads, positions = fields.integer("num_attention_heads"), fields.integer("max_position_embeddings")
    own, turned = fields.integer("qk_nope_head_dim"), fields.integer("qk_rope_head_dim")
    fields.skip(["q_lora_rank"])
    # Each is said by others, where it is said at all.
    fields.neutral(
        {"num_key_value_heads": (heads, None), "head_dim": (turned, None), "qk_head_dim": (own + turned, None)}
    )
    rope = read_rope(fields, turned, positions, interleaved=interleaved)
    return LatentAttention(
        heads=heads,
        query_latent=fields.integer("q_lora_rank") if fields.has("q_lora_rank") else None,
        latent=fields.integer("kv_lora_rank"),
        # Whatever rms_norm_eps says.
        norm=Norm(epsilon=1e-6),
        head_dim=own,
        value_dim=fields.integer("v_head_dim"),
        rope=rope,
        scale=(own + turned) ** -0.5 * read_yarn_growth(fields, rope) ** 2,
        bias=fields.boolean("attention_bias"),
    )


def renamed(hf: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """A config.json with the family's own names of fields replaced by those that others use."""
    return {names.get(name, name): value for name, value in hf.items()}


def read_plain_mlp(fields: Fields, *, activation: str = "hidden_act", bias: bool) -> PlainMlp:
    """An MLP without a gate; `activation` names the field of its function."""
    return PlainMlp(
        ffn=fields.integer("intermediate_size"), activation=fields.choice(activation, ACTIVATIONS), bias=bias
    )


def read_gated_mlp(fields: Fields, *, activation: str = "hidden_act", bias: str | None = None) -> GatedMlp:
    """A gated MLP; `activation` names the field of its function, `bias` that which says whether it has any."""
    return GatedMlp(
        ffn=fields.integer("intermediate_size"),
        activation=fields.choice(activation, ACTIVATIONS),
        bias=bias is not None and fields.boolean(bias),
    )


def read_window(fields: Fields) -> int | None:
    """`sliding_window`; absent and null mean none."""
    fields.skip(["sliding_window"])
    return fields.integer("sliding_window") if fields.has("sliding_window") else None


def read_experts(fields: Fields, *, count: str, width: str, router: Router, **options: Any) -> MixtureOfExperts:
    """A mixture of gated experts.

    Args:
        count, width: the names of the fields with the number of experts and the width of each.
        router: how they are chosen; more than there are is a problem.
        options: fields of `MixtureOfExperts`, which come before what the file says.
    """
    experts = fields.integer(count)
    if router.top_k > experts:
        fields.problem(f"num_experts_per_tok is {router.top_k}, {count} only {experts}")
    activation = {} if "activation" in options else {"activation": fields.choice("hidden_act", ACTIVATIONS)}
    return MixtureOfExperts(experts=experts, ffn=fields.integer(width), router=router, **activation, **options)


def read_deepseek_layers(
    fields: Fields, attn: Mixer, router: Router, *, bias: str | None = None, judged_by: int | None
) -> list[Layer]:
    """Layers as DeepSeek's: some dense ones, then experts beside others that every token goes through.

    Args:
        router: how experts are chosen, but for the groups that the file names.
        bias: the field that says whether MLPs that are no experts have biases.
        judged_by: by how many of its experts a group is; None where the file's groups do not count.
    """
    norm, dense = read_norm(fields), read_gated_mlp(fields, bias=bias)
    fields.skip(["n_group", "topk_group"])
    if judged_by is not None:
        count, kept = fields.integer("n_group"), fields.integer("topk_group")
        router = router.model_copy(update={"groups": ExpertGroups(count=count, kept=kept, judged_by=judged_by)})
    width = fields.integer("n_shared_experts") * fields.integer("moe_intermediate_size")
    shared = dense.model_copy(update={"ffn": width})
    experts = read_experts(
        fields, count="n_routed_experts", width="moe_intermediate_size", router=router, shared=shared
    )
    first = fields.integer("first_k_dense_replace", minimum=0)
    return [
        Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=dense if index < first else experts)
        for index in range(fields.integer("num_hidden_layers"))
    ]


def read_sparse_layers(fields: Fields) -> list[bool]:
    """Whether each layer has experts: every `decoder_sparse_step`th, but for those in `mlp_only_layers`."""
    count, step = fields.integer("num_hidden_layers"), fields.integer("decoder_sparse_step")
    dense = fields.indices("mlp_only_layers") or []
    return [index not in dense and (index + 1) % step == 0 for index in range(count)]


# Fields of mixtures that matter to training alone.
MOE_IGNORED = ("output_router_logits", "router_aux_loss_coef", "router_jitter_noise")
DEEPSEEK_IGNORED = (
    *MOE_IGNORED,
    *("aux_loss_alpha", "seq_aux", "ep_size", "pretraining_tp", "num_nextn_predict_layers", "num_mtp_layers"),
)


def read_layer_types(
    fields: Fields, otherwise: Callable[[int], str], known: Sequence[str] = (SLIDING, FULL)
) -> tuple[str, ...]:
    """The kind of each layer: `layer_types`, or what the family makes of a layer's index where there are none."""
    count = fields.integer("num_hidden_layers")
    return fields.words("layer_types", count, known) or tuple(map(otherwise, range(count)))


def read_windows(fields: Fields, otherwise: Callable[[int], str]) -> list[int | None]:
    """Each layer's window; `otherwise` as for `read_layer_types`."""
    window = read_window(fields)
    return [window if kind == SLIDING else None for kind in read_layer_types(fields, otherwise)]


def read_turned_windows(
    fields: Fields,
    layer: Layer,
    head_dim: int,
    bases: Mapping[str, tuple[str | None, float]],
    otherwise: Callable[[int], str],
) -> list[Layer]:
    """Layers with a window and without, each kind with a rotary embedding of its own.

    Args:
        layer: what they are otherwise.
        head_dim, bases: as for `read_ropes`.
        otherwise: as for `read_layer_types`.
    """
    ropes = read_ropes(fields, head_dim, fields.integer("max_position_embeddings"), bases)
    window = read_window(fields)
    kinds = read_layer_types(fields, otherwise)
    return varied(layer, ({"window": window if kind == SLIDING else None, "rope": ropes[kind]} for kind in kinds))


def read_pattern(fields: Fields, *others: str) -> Callable[[int], str]:
    """Every so many-th layer is a full one, as `sliding_window_pattern` says.

    Args:
        others: further names of that number, which transformers does not look at. Unless the file lists its layers, one
            that says something else leaves open what is meant.
    """
    pattern = fields.integer("sliding_window_pattern")
    fields.neutral({} if fields.has("layer_types") else dict.fromkeys(others, (pattern,)))
    fields.skip(others)
    return lambda index: SLIDING if (index + 1) % pattern else FULL


def read_qwen_windows(fields: Fields) -> list[int | None]:
    """Each layer's window: Qwen's layers from `max_window_layers` on have one, if `use_sliding_window` says so."""
    first = fields.integer("max_window_layers", minimum=0)
    return read_used_windows(fields, lambda index: SLIDING if index >= first else FULL)


def read_used_windows(fields: Fields, otherwise: Callable[[int], str]) -> list[int | None]:
    """Each layer's window, if `use_sliding_window` says that there is any; `otherwise` as for `read_layer_types`."""
    if fields.boolean("use_sliding_window"):
        return read_windows(fields, otherwise)
    fields.skip(["sliding_window"])
    return [None] * len(read_layer_types(fields, lambda _: FULL))


def varied(layer: Layer, changes: Iterable[Mapping[str, Any]]) -> list[Layer]:
    """Layers that differ in these fields of their attention alone."""
    return [layer.model_copy(update={"attn": layer.attn.model_copy(update=change)}) for change in changes]


def with_windows(layer: Layer, windows: Iterable[int | None]) -> list[Layer]:
    """Layers that differ in their windows alone."""
    return varied(layer, ({"window": window} for window in windows))


def read_decoder(
    fields: Fields, what: str, layers: Sequence[Layer], final_norm: Norm, *, ignored: Sequence[str] = (), **options: Any
) -> ModelConfig:
    """The whole network, once its layers are read: what is left of the file must be harmless.

    Args:
        what: the family's name, for errors.
        ignored: fields of the family that do not change the logits.
        options: fields of `ModelConfig`, which come before what the file says.

    Raises:
        ZooError: fields are wrong, contradict each other or are unknown; all of them are listed.
    """
    vocab, positions = fields.integer("vocab_size"), fields.integer("max_position_embeddings")
    ropes = [rope for layer in layers if (rope := rope_of(layer.attn)) is not None]
    found: dict[str, Any] = {
        "vocab": vocab,
        "embed": fields.integer("hidden_size"),
        "layers": tuple(layers),
        "final_norm": final_norm,
        "tied_head": fields.boolean("tie_word_embeddings"),
        "max_positions": max((context_length(rope, positions) for rope in ropes), default=positions),
    }
    fields.token_id("pad_token_id", vocab)
    fields.neutral(NEUTRAL)
    fields.skip({*HARMLESS, *ignored})
    fields.refuse_unknown()
    fields.finish(f"config.json does not describe a {what} that can be run exactly:")
    return ModelConfig(**{**found, **options})
