"""Multilayer perceptrons, plain and gated (Shazeer 2020), and the activations they may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import jax
from flax import nnx
from jax import numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from . import config as configs
from .projection import Projection

ACTIVATIONS: Mapping[configs.Activation, Callable[[jax.Array], jax.Array]] = {
    "silu": jax.nn.silu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
    "relu_squared": lambda x: jnp.square(jax.nn.relu(x)),
}


class GatedMlp(nnx.Module):
    """down(activation(gate(x)) * up(x))."""

    def __init__(self, config: configs.GatedMlp, embed: int, *, dtype: DTypeLike, rngs: nnx.Rngs | None):
        self.activation: configs.Activation = config.activation
        wide, narrow = {"ffn": config.ffn}, {"embed": embed}
        self.gate = Projection(narrow, wide, bias=config.bias, dtype=dtype, rngs=rngs)
        self.up = Projection(narrow, wide, bias=config.bias, dtype=dtype, rngs=rngs)
        self.down = Projection(wide, narrow, bias=config.bias, dtype=dtype, rngs=rngs)

    def __call__(self, x: Float[Array, "batch seq embed"]) -> Float[Array, "batch seq embed"]:
        return self.down(ACTIVATIONS[self.activation](self.gate(x)) * self.up(x))


class PlainMlp(nnx.Module):
    """down(activation(up(x)))."""

    def __init__(self, config: configs.PlainMlp, embed: int, *, dtype: DTypeLike, rngs: nnx.Rngs | None):
        self.activation: configs.Activation = config.activation
        wide, narrow = {"ffn": config.ffn}, {"embed": embed}
        self.up = Projection(narrow, wide, bias=config.bias, dtype=dtype, rngs=rngs)
        self.down = Projection(wide, narrow, bias=config.bias, dtype=dtype, rngs=rngs)

    def __call__(self, x: Float[Array, "batch seq embed"]) -> Float[Array, "batch seq embed"]:
        return self.down(ACTIVATIONS[self.activation](self.up(x)))


def make_mlp(config: configs.Mlp, embed: int, *, dtype: DTypeLike, rngs: nnx.Rngs | None) -> GatedMlp | PlainMlp:
    """The module that a configuration describes."""
    match config:
        case configs.GatedMlp():
            return GatedMlp(config, embed, dtype=dtype, rngs=rngs)
        case configs.PlainMlp():
            return PlainMlp(config, embed, dtype=dtype, rngs=rngs)
