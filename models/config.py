"""What a network is, never how it is run.

Every class is frozen and refuses unknown fields, and the choices are unions: an absent part is `None`. A field exists
only if a registered family sets it. `ModelConfig` is stored in a checkpoint's `zoo.json` and is all that the decoder
needs; nothing in `models/` looks at a family's name.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt


class Config(BaseModel):
    """Base of all configurations: immutable, closed, strictly typed."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Rope(Config):
    """A rotary embedding (Su et al. 2021, RoFormer): pairs of elements turn by an angle that grows with the position.

    The first `dims` elements of a head turn, an even number; the rest stay. A pair is an element of the first half of
    them and its like in the second, or where `interleaved` two neighbours.
    """

    theta: PositiveFloat
    dims: PositiveInt
    interleaved: bool = False


class DefaultRope(_Rope):
    """The plain geometric series of frequencies."""

    kind: Literal["default"] = "default"


class LinearRope(_Rope):
    """Position interpolation: every frequency is divided by `factor`."""

    kind: Literal["linear"] = "linear"
    factor: PositiveFloat


class DynamicRope(_Rope):
    """NTK-aware base that grows with the length of the sequence beyond `max_positions`."""

    kind: Literal["dynamic"] = "dynamic"
    factor: PositiveFloat
    max_positions: PositiveInt


class YarnRope(_Rope):
    """YaRN (Peng et al. 2023): frequencies blended by wavelength; cos and sin multiplied by `attention_factor`."""

    kind: Literal["yarn"] = "yarn"
    factor: PositiveFloat
    original_max_positions: PositiveInt
    attention_factor: float
    beta_fast: PositiveFloat
    beta_slow: PositiveFloat
    truncate: bool


class Llama3Rope(_Rope):
    """Llama 3.1: long wavelengths divided by `factor`, short ones kept, those between interpolated."""

    kind: Literal["llama3"] = "llama3"
    factor: PositiveFloat
    low_freq_factor: PositiveFloat
    high_freq_factor: PositiveFloat
    original_max_positions: PositiveInt


class LongRope(_Rope):
    """LongRoPE: one divisor per frequency, another set once a sequence is longer than `original_max_positions`."""

    kind: Literal["longrope"] = "longrope"
    short_factor: tuple[PositiveFloat, ...]
    long_factor: tuple[PositiveFloat, ...]
    original_max_positions: PositiveInt
    attention_factor: float


class ProportionalRope(_Rope):
    """The plain series, of which only the first `turning` pairs turn, each divided by `factor`; the others stay."""

    kind: Literal["proportional"] = "proportional"
    turning: PositiveInt
    factor: PositiveFloat = 1.0


Rope = Annotated[
    DefaultRope | LinearRope | DynamicRope | YarnRope | Llama3Rope | LongRope | ProportionalRope,
    Field(discriminator="kind"),
]


Activation = Literal["silu", "gelu", "gelu_tanh", "relu", "relu_squared"]


class Norm(Config):
    """A norm: root mean square (Zhang and Sennrich 2019) or layer norm (Ba et al. 2016).

    The normalised vector is multiplied by `offset` + scale, if there is a scale, and the bias, if there is one, added.
    """

    epsilon: PositiveFloat
    kind: Literal["rms", "layer"] = "rms"
    offset: float = 0.0
    scale: bool = True
    bias: bool = False


class QkNorm(Config):
    """A norm of queries and keys, before they turn.

    `shared`: each head alone, one scale for all of them; `own`: each head alone, each with a scale of its own; `joint`:
    all heads together, as one vector.
    """

    norm: Norm
    kind: Literal["shared", "own", "joint"]


class QueryGrowth(Config):
    """Queries at position p are multiplied by 1 + beta * log(1 + floor((p + offset) / positions))."""

    beta: float
    positions: PositiveInt
    offset: float = 0.0


class Sight(NamedTuple):
    """Which of the keys behind it a token sees; see `Attention`."""

    window: int | None
    chunked: bool


class Attention(Config):
    """Grouped-query attention; `kv_heads` divides `heads`.

    Attributes:
        rope: how positions turn queries and keys; None where they do not.
        scale: what products of queries and keys are multiplied by.
        window: the number of newest keys, its own among them, that a token sees; None for all.
        chunked: the window does not slide: a token sees those since the last multiple of it.
        softcap: scores s become softcap * tanh(s / softcap).
        sinks: each head has a learned logit that takes its share of the softmax and gives nothing.
        gated: what heads attend is multiplied by the sigmoid of a product with x.
        v_norm: a norm of each head's values.
        keys_are_values: values are what keys are before their norm.
        shares: the layer whose keys and values it attends, in the place of its own.
    """

    kind: Literal["attention"] = "attention"
    heads: PositiveInt
    kv_heads: PositiveInt
    head_dim: PositiveInt
    rope: Rope | None
    scale: PositiveFloat
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: QkNorm | None = None
    window: PositiveInt | None = None
    chunked: bool = False
    softcap: PositiveFloat | None = None
    sinks: bool = False
    gated: bool = False
    v_norm: Norm | None = None
    keys_are_values: bool = False
    shares: NonNegativeInt | None = None
    query_growth: QueryGrowth | None = None

    @property
    def sight(self) -> Sight:
        """Which keys a token sees."""
        return Sight(self.window, self.chunked)


class LatentAttention(Config):
    """Multi-head latent attention (DeepSeek-V2, 2024): keys and values of all heads come from one small vector a token.

    A key has a part of `head_dim` that does not turn, a head's own, and one of `rope.dims` that does, the same for all.

    Attributes:
        query_latent: the size of a vector that queries come from as well; None where they come from x itself.
        latent: the size of the vector that keys and values come from.
        norm: of both vectors.
        value_dim: the size of a head's value.
        scale: what products of queries and keys are multiplied by.
        bias: what makes the vectors, and what gathers the heads, has biases.
    """

    kind: Literal["latent_attention"] = "latent_attention"
    heads: PositiveInt
    query_latent: PositiveInt | None
    latent: PositiveInt
    norm: Norm
    head_dim: PositiveInt
    value_dim: PositiveInt
    rope: Rope
    scale: PositiveFloat
    bias: bool = False

    @property
    def sight(self) -> Sight:
        """Which keys a token sees: all."""
        return Sight(None, False)


class ShortConvolution(Config):
    """A convolution over the newest `taps` tokens, each channel by itself, between two gates (LFM2, 2025)."""

    kind: Literal["short_convolution"] = "short_convolution"
    taps: PositiveInt
    bias: bool = False


class GatedDeltaNet(Config):
    """Linear attention by the gated delta rule (Yang et al. 2024): what a head remembers does not grow.

    Attributes:
        group: how many value heads each key head has.
        taps: how many tokens the convolutions over queries, keys and values reach.
        activation: what follows these.
        norm: of a head's output, before its gate.
    """

    kind: Literal["gated_delta_net"] = "gated_delta_net"
    key_heads: PositiveInt
    group: PositiveInt
    key_dim: PositiveInt
    value_dim: PositiveInt
    taps: PositiveInt
    activation: Activation
    norm: Norm


# What brings the tokens of a sequence together.
Mixer = Annotated[Attention | LatentAttention | ShortConvolution | GatedDeltaNet, Field(discriminator="kind")]


def rope_of(mixer: Mixer) -> Rope | None:
    """How positions turn a mixer's queries and keys, if it has any and they do."""
    return mixer.rope if isinstance(mixer, Attention | LatentAttention) else None


def shared_layer(mixer: Mixer) -> int | None:
    """The layer whose keys and values a mixer attends in the place of its own."""
    return mixer.shares if isinstance(mixer, Attention) else None


class GatedMlp(Config):
    """down(activation(gate(x)) * up(x))."""

    kind: Literal["gated"] = "gated"
    ffn: PositiveInt
    activation: Activation
    bias: bool = False


class PlainMlp(Config):
    """down(activation(up(x)))."""

    kind: Literal["plain"] = "plain"
    ffn: PositiveInt
    activation: Activation
    bias: bool = False


class ExpertGroups(Config):
    """A token chooses among the experts of the `kept` best of `count` groups.

    A group is judged by the sum of its `judged_by` best experts.
    """

    count: PositiveInt
    kept: PositiveInt
    judged_by: PositiveInt


class Router(Config):
    """How a token chooses `top_k` experts, and how much of each it takes.

    Attributes:
        score: what an expert's weight is: its share of a softmax over all, or over the chosen, or a sigmoid.
        normalise: weights are divided by their sum.
        scale: what weights are multiplied by in the end.
        bias: logits have a learned bias.
        selection_bias: the choice, not the weights, has a learned bias.
        norm: of what it sees.
        multiplier: what it sees is multiplied by, after that.
        learned_scale: each expert's weight is multiplied by a learned number in the end.
    """

    top_k: PositiveInt
    score: Literal["softmax", "softmax_of_chosen", "sigmoid"]
    normalise: bool = False
    scale: float = 1.0
    bias: bool = False
    selection_bias: bool = False
    norm: Norm | None = None
    multiplier: PositiveFloat = 1.0
    learned_scale: bool = False
    groups: ExpertGroups | None = None


class ClampedUnit(Config):
    """The gate of gpt-oss: g * sigmoid(alpha * g) * (u + 1), with g at most `limit` and u within it."""

    alpha: PositiveFloat
    limit: PositiveFloat


class MixtureOfExperts(Config):
    """Gated MLPs, each `ffn` wide, of which the router chooses a few for each token.

    Attributes:
        activation: of their gates, or the clamped unit in its place.
        scaled_input: what an expert takes in, not what it gives, is multiplied by its weight.
        shared: an MLP that every token goes through as well; where `shared_gate`, times a sigmoid of a product with x.
    """

    kind: Literal["experts"] = "experts"
    experts: PositiveInt
    ffn: PositiveInt
    activation: Activation | ClampedUnit
    bias: bool = False
    router: Router
    scaled_input: bool = False
    shared: GatedMlp | None = None
    shared_gate: bool = False


Mlp = Annotated[GatedMlp | PlainMlp | MixtureOfExperts, Field(discriminator="kind")]


class Beside(Config):
    """Experts beside an MLP: mlp_post_norm(mlp) + post_norm(experts(norm(x))), where the router sees x itself."""

    mlp_post_norm: Norm
    norm: Norm
    experts: MixtureOfExperts
    post_norm: Norm


class LayerInput(Config):
    """What follows a layer: x + norm(out(activation(gate(x)) * input)), by an input of the layer's own for each token.

    Its size is `width`; see `LayerInputs`.
    """

    width: PositiveInt
    activation: Activation
    norm: Norm


class Layer(Config):
    """One block: x + r * attn(x), then x + r * mlp(x), each with a norm before it, after it, or both.

    Where `parallel` both read the same x, and an MLP without a norm of its own reads what attention does.

    Attributes:
        beside: experts that take part in what the MLP does.
        input: what follows.
        learned_scale: what it gives in the end is multiplied by a learned number.
    """

    attn_norm: Norm | None
    attn: Mixer
    attn_post_norm: Norm | None = None
    mlp_norm: Norm | None
    mlp: Mlp
    mlp_post_norm: Norm | None = None
    beside: Beside | None = None
    parallel: bool = False
    residual_multiplier: float = 1.0
    input: LayerInput | None = None
    learned_scale: bool = False


class LayerInputs(Config):
    """A vector of `width` elements for each token and layer, made of the token's own and of its embedding.

    (norm(projection(x) / sqrt(embed)) + sqrt(width) * table(token)) / sqrt(2) (Gemma 4, 2026).
    """

    vocab: PositiveInt
    width: PositiveInt
    norm: Norm


class ModelConfig(Config):
    """A decoder-only language model. Sizes are numbers of elements; layers may differ from one another.

    Attributes:
        embedding_multiplier: what embedded tokens are multiplied by.
        learned_positions: rows of a table of vectors that are added to them; None for no table.
        layer_inputs: what layers are given for each token beside the activations.
        logit_multiplier: what logits are multiplied by.
        logit_softcap: logits l become logit_softcap * tanh(l / logit_softcap).
        max_positions: the longest sequence.
    """

    vocab: PositiveInt
    embed: PositiveInt
    layers: tuple[Layer, ...]
    final_norm: Norm
    tied_head: bool
    max_positions: PositiveInt
    embedding_multiplier: float = 1.0
    learned_positions: PositiveInt | None = None
    layer_inputs: LayerInputs | None = None
    logit_multiplier: float = 1.0
    logit_softcap: PositiveFloat | None = None

    @property
    def ropes(self) -> frozenset[Rope]:
        """Every kind of rotary embedding among the layers."""
        return frozenset(rope for layer in self.layers if (rope := rope_of(layer.attn)) is not None)
