"""A causal convolution along a sequence, each channel by itself."""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
from flax import nnx
from jax import numpy as jnp
from jax.nn import initializers
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from .context import Context
from .parameter import parameter


class Convolution(nnx.Module):
    """y at t is the sum of kernel[taps - 1 - d] * x at t - d, over those tokens of the same sequence that there are.

    `channels` are the sizes of the channels' axes by name.
    """

    def __init__(self, taps: int, channels: Mapping[str, int], *, bias: bool, dtype: DTypeLike, rngs: nnx.Rngs | None):
        start = initializers.normal(1 / math.sqrt(taps))
        self.kernel = parameter({"taps": taps, **channels}, start, dtype, rngs)
        self.bias = parameter(channels, initializers.zeros, dtype, rngs) if bias else None

    def __call__(
        self,
        x: Float[Array, "batch seq *channels"],
        context: Context,
        recent: Float[Array, "batch taps *channels"] | None,
    ) -> tuple[Float[Array, "batch seq *channels"], Float[Array, "batch taps *channels"] | None]:
        """The output, and where there is `recent`, the last inputs of each row's sequence, what it is there next."""
        kernel = self.kernel[...].astype(jnp.float32)
        seq, back = x.shape[1], kernel.shape[0] - 1
        earlier = jnp.zeros((x.shape[0], back, *x.shape[2:]), x.dtype) if recent is None else recent.astype(x.dtype)
        known = jnp.concatenate([earlier, x], axis=1)
        result = x.astype(jnp.float32) * kernel[back]
        for distance in range(1, back + 1):
            there = _same_sequence(context, distance, alone=recent is None)
            there = there.reshape(*there.shape, *(1,) * (x.ndim - 2))
            result += jnp.where(there, known[:, back - distance :][:, :seq], 0) * kernel[back - distance]
        if self.bias is not None:
            result += self.bias[...].astype(jnp.float32)
        return result.astype(x.dtype), None if recent is None else _newest(known, back, context).astype(recent.dtype)


def _same_sequence(context: Context, distance: int, *, alone: bool) -> jax.Array:
    """Whether the token so far before each is one of its sequence: in the pass, or where not `alone`, ever."""
    if not alone:
        return context.positions >= distance
    ids = context.segment_ids
    return jnp.pad(ids, ((0, 0), (distance, 0)), constant_values=-1)[:, : ids.shape[1]] == ids


def _newest(known: jax.Array, count: int, context: Context) -> jax.Array:
    """The last inputs of each row, after which there is only padding."""
    end = jnp.sum(context.segment_ids != 0, axis=1, keepdims=True)
    places = end + jnp.arange(count)
    return jnp.take_along_axis(known, places.reshape(*places.shape, *(1,) * (known.ndim - 2)), axis=1)
