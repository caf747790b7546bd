"""What a network is, never how it is run.

Every class is frozen and refuses unknown fields, and the choices are unions: an absent part is `None`. A field exists
only if a registered family sets it. `ModelConfig` is stored in a checkpoint's `zoo.json` and is all that the decoder
needs; nothing in `models/` looks at a family's name.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt


class Config(BaseModel):
    """Base of all configurations: immutable, closed, strictly typed."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class DefaultRope(Config):
    """Rotary embedding of Su et al. 2021 (RoFormer), pairs formed of the two halves of a head."""

    kind: Literal["default"] = "default"
    theta: PositiveFloat


class LinearRope(Config):
    """Position interpolation: every frequency is divided by `factor`."""

    kind: Literal["linear"] = "linear"
    theta: PositiveFloat
    factor: PositiveFloat


class DynamicRope(Config):
    """NTK-aware base that grows with the length of the sequence beyond `max_positions`."""

    kind: Literal["dynamic"] = "dynamic"
    theta: PositiveFloat
    factor: PositiveFloat
    max_positions: PositiveInt


class YarnRope(Config):
    """YaRN (Peng et al. 2023): frequencies blended by wavelength; cos and sin multiplied by `attention_factor`."""

    kind: Literal["yarn"] = "yarn"
    theta: PositiveFloat
    factor: PositiveFloat
    original_max_positions: PositiveInt
    attention_factor: float
    beta_fast: PositiveFloat
    beta_slow: PositiveFloat
    truncate: bool


class Llama3Rope(Config):
    """Llama 3.1: long wavelengths divided by `factor`, short ones kept, those between interpolated."""

    kind: Literal["llama3"] = "llama3"
    theta: PositiveFloat
    factor: PositiveFloat
    low_freq_factor: PositiveFloat
    high_freq_factor: PositiveFloat
    original_max_positions: PositiveInt


class LongRope(Config):
    """LongRoPE: one divisor per frequency, another set once a sequence is longer than `original_max_positions`."""

    kind: Literal["longrope"] = "longrope"
    theta: PositiveFloat
    short_factor: tuple[PositiveFloat, ...]
    long_factor: tuple[PositiveFloat, ...]
    original_max_positions: PositiveInt
    attention_factor: float


Rope = Annotated[DefaultRope | LinearRope | DynamicRope | YarnRope | Llama3Rope | LongRope, Field(discriminator="kind")]


Activation = Literal["silu", "gelu", "gelu_tanh", "relu"]


class Norm(Config):
    """Root-mean-square norm with a learned scale."""

    epsilon: PositiveFloat


class Attention(Config):
    """Grouped-query attention; `kv_heads` divides `heads`."""

    heads: PositiveInt
    kv_heads: PositiveInt
    head_dim: PositiveInt
    rope: Rope
    qkv_bias: bool
    output_bias: bool


class Mlp(Config):
    """Gated MLP: down(activation(gate(x)) * up(x))."""

    ffn: PositiveInt
    activation: Activation
    bias: bool


class Layer(Config):
    """One pre-norm block: x + attn(attn_norm(x)), then x + mlp(mlp_norm(x))."""

    attn_norm: Norm
    attn: Attention
    mlp_norm: Norm
    mlp: Mlp


class ModelConfig(Config):
    """A decoder-only language model. Sizes are numbers of elements; layers may differ from one another."""

    vocab: PositiveInt
    embed: PositiveInt
    layers: tuple[Layer, ...]
    final_norm: Norm
    tied_head: bool
    max_positions: PositiveInt
