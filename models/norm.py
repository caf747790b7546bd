"""Root-mean-square norm (Zhang and Sennrich 2019) and layer norm (Ba et al. 2016)."""

from __future__ import annotations

from collections.abc import Mapping

import jax
from flax import nnx
from jax import numpy as jnp
from jax.nn import initializers
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from . import config as configs
from .parameter import parameter


class Norm(nnx.Module):
    """normalised(x) * (offset + scale) + bias, computed in float32 whatever the element type of `x`.

    The parameters have the axes of `sizes`; what is normalised is a vector along the last `over` of them, or all.
    """

    def __init__(
        self,
        config: configs.Norm,
        sizes: Mapping[str, int],
        *,
        over: int | None = None,
        dtype: DTypeLike,
        rngs: nnx.Rngs | None,
    ):
        self.config = config
        self.axes = tuple(range(-(over or len(sizes)), 0))
        start = initializers.constant(1 - config.offset)
        self.scale = parameter(sizes, start, dtype, rngs) if config.scale else None
        self.bias = parameter(sizes, initializers.zeros, dtype, rngs) if config.bias else None

    def __call__(self, x: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        wide = x.astype(jnp.float32)
        if self.config.kind == "layer":
            wide = wide - jnp.mean(wide, axis=self.axes, keepdims=True)
        variance = jnp.mean(wide * wide, axis=self.axes, keepdims=True)
        scaled = wide * jax.lax.rsqrt(variance + self.config.epsilon)
        if self.scale is not None:
            scale = self.scale[...].astype(jnp.float32)
            scaled = scaled * (self.config.offset + scale if self.config.offset else scale)
        return (scaled if self.bias is None else scaled + self.bias[...].astype(jnp.float32)).astype(x.dtype)
