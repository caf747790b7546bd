"""A linear map between named groups of axes, such as `embed` to `heads, head_dim`."""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
from flax import nnx
from jax import numpy as jnp
from jax.nn import initializers
from jax.typing import DTypeLike

from .parameter import parameter


class Projection(nnx.Module):
    """x @ kernel + bias, contracting the trailing axes of `x` that `inputs` names.

    The kernel has the input axes first: XLA on CPU reads such a matrix at the full speed of memory, and its transpose
    at a fraction of it.
    """

    def __init__(
        self,
        inputs: Mapping[str, int],
        outputs: Mapping[str, int],
        *,
        bias: bool,
        dtype: DTypeLike,
        rngs: nnx.Rngs | None,
    ):
        self.input_axes = len(inputs)
        # Written for a two-dimensional kernel, so that one rule serves whatever the axes are split into.
        deviation = 1 / math.sqrt(math.prod(inputs.values()))
        self.kernel = parameter({**inputs, **outputs}, initializers.normal(deviation), dtype, rngs)
        self.bias = parameter(outputs, initializers.zeros, dtype, rngs) if bias else None

    def __call__(self, x: jax.Array) -> jax.Array:
        y = jnp.tensordot(x, self.kernel[...], axes=self.input_axes)
        return y if self.bias is None else y + self.bias[...]
