"""Gated short convolutions (LFM2, 2025)."""

from __future__ import annotations

from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from . import config as configs
from .cache import Recent
from .context import Context
from .convolution import Convolution
from .names import named
from .projection import Projection


class ShortConvolution(nnx.Module):
    """out(after(x) * convolution(before(x) * value(x))): a gate on each side of a convolution over a few tokens."""

    def __init__(self, config: configs.ShortConvolution, embed: int, *, dtype: DTypeLike, rngs: nnx.Rngs | None):
        outer, inner = {"embed": embed}, {"channels": embed}
        self.before = Projection(outer, inner, bias=config.bias, dtype=dtype, rngs=rngs)
        self.after = Projection(outer, inner, bias=config.bias, dtype=dtype, rngs=rngs)
        self.value = Projection(outer, inner, bias=config.bias, dtype=dtype, rngs=rngs)
        self.convolution = Convolution(config.taps, inner, bias=config.bias, dtype=dtype, rngs=rngs)
        self.out = Projection(inner, outer, bias=config.bias, dtype=dtype, rngs=rngs)

    def __call__(
        self, x: Float[Array, "batch seq embed"], context: Context, cache: Recent | None
    ) -> tuple[Float[Array, "batch seq embed"], Recent | None]:
        gated = named(self.before(x) * self.value(x), "mixed_in")
        mixed, recent = self.convolution(gated, context, None if cache is None else cache.inputs)
        return self.out(self.after(x) * named(mixed, "mixed")), None if recent is None else Recent(recent)
