"""Tables of vectors: one a token, one a position, and one a token and layer."""

from __future__ import annotations

import math

from flax import nnx
from jax import numpy as jnp
from jax.nn import initializers
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from . import config as configs
from .norm import Norm
from .parameter import parameter
from .projection import Projection


class Embedding(nnx.Module):
    """One vector a token; read backwards it is a tied head."""

    def __init__(self, vocab: int, embed: int, *, dtype: DTypeLike, rngs: nnx.Rngs | None):
        self.embedding = parameter({"vocab": vocab, "embed": embed}, initializers.normal(0.02), dtype, rngs)

    def __call__(self, tokens: Int[Array, "batch seq"]) -> Float[Array, "batch seq embed"]:
        return self.embedding[...][tokens]

    def logits(self, x: Float[Array, "batch rows embed"]) -> Float[Array, "batch rows vocab"]:
        return jnp.einsum("bre,ve->brv", x, self.embedding[...], preferred_element_type=jnp.float32)


class PositionTable(nnx.Module):
    """One learned vector a position."""

    def __init__(self, positions: int, embed: int, *, dtype: DTypeLike, rngs: nnx.Rngs | None):
        self.embedding = parameter({"positions": positions, "embed": embed}, initializers.normal(0.02), dtype, rngs)

    def __call__(self, positions: Int[Array, "batch seq"]) -> Float[Array, "batch seq embed"]:
        return self.embedding[...][positions]


class LayerInputs(nnx.Module):
    """One vector a token and layer; see `config.LayerInputs`."""

    def __init__(
        self, config: configs.LayerInputs, embed: int, layers: int, *, dtype: DTypeLike, rngs: nnx.Rngs | None
    ):
        self.config, self.embed = config, embed
        outputs = {"layers": layers, "layer_input": config.width}
        self.embedding = parameter({"vocab": config.vocab, **outputs}, initializers.normal(0.02), dtype, rngs)
        self.projection = Projection({"embed": embed}, outputs, bias=False, dtype=dtype, rngs=rngs)
        self.norm = Norm(config.norm, {"layer_input": config.width}, dtype=dtype, rngs=rngs)

    def __call__(
        self, tokens: Int[Array, "batch seq"], embedded: Float[Array, "batch seq embed"]
    ) -> Float[Array, "batch seq layers layer_input"]:
        own = self.embedding[...][tokens] * jnp.asarray(math.sqrt(self.config.width), embedded.dtype)
        from_embedding = self.norm(self.projection(embedded) * jnp.asarray(self.embed**-0.5, embedded.dtype))
        return (from_embedding + own) * jnp.asarray(2**-0.5, embedded.dtype)
