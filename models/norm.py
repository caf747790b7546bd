"""Root-mean-square norm (Zhang and Sennrich 2019)."""

from __future__ import annotations

import jax
from flax import nnx
from jax import numpy as jnp
from jax.nn import initializers
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from . import config as configs
from .parameter import parameter


class Norm(nnx.Module):
    """x / rms(x) * scale, computed in float32 whatever the element type of `x`."""

    def __init__(self, config: configs.Norm, embed: int, *, dtype: DTypeLike, rngs: nnx.Rngs | None):
        self.epsilon = config.epsilon
        self.scale = parameter({"embed": embed}, initializers.ones, dtype, rngs)

    def __call__(self, x: Float[Array, "batch seq embed"]) -> Float[Array, "batch seq embed"]:
        wide = x.astype(jnp.float32)
        variance = jnp.mean(wide * wide, axis=-1, keepdims=True)
        normed = wide * jax.lax.rsqrt(variance + self.epsilon)
        return (normed * self.scale[...].astype(jnp.float32)).astype(x.dtype)
