"""Gated multilayer perceptron (Shazeer 2020) and the activations it may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import jax
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from . import config as configs
from .projection import Projection

ACTIVATIONS: Mapping[configs.Activation, Callable[[jax.Array], jax.Array]] = {
    "silu": jax.nn.silu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
}


class Mlp(nnx.Module):
    """down(activation(gate(x)) * up(x))."""

    def __init__(self, config: configs.Mlp, embed: int, *, dtype: DTypeLike, rngs: nnx.Rngs | None):
        self.activation: configs.Activation = config.activation
        wide, narrow = {"ffn": config.ffn}, {"embed": embed}
        self.gate = Projection(narrow, wide, bias=config.bias, dtype=dtype, rngs=rngs)
        self.up = Projection(narrow, wide, bias=config.bias, dtype=dtype, rngs=rngs)
        self.down = Projection(wide, narrow, bias=config.bias, dtype=dtype, rngs=rngs)

    def __call__(self, x: Float[Array, "batch seq embed"]) -> Float[Array, "batch seq embed"]:
        return self.down(ACTIVATIONS[self.activation](self.gate(x)) * self.up(x))
