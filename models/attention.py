"""Grouped-query attention (Ainslie et al. 2023) with rotary positions."""

from __future__ import annotations

import jax
from flax import nnx
from jax import numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from . import config as configs
from .cache import LayerCache, write
from .projection import Projection
from .rope import Rotation, rotate


class Attention(nnx.Module):
    """Causal self-attention, over the tokens of the pass or, with a cache, over all that the cache then holds."""

    def __init__(self, config: configs.Attention, embed: int, *, dtype: DTypeLike, rngs: nnx.Rngs | None):
        outer = {"embed": embed}
        queries = {"heads": config.heads, "head_dim": config.head_dim}
        shared = {"kv_heads": config.kv_heads, "head_dim": config.head_dim}
        self.q = Projection(outer, queries, bias=config.qkv_bias, dtype=dtype, rngs=rngs)
        self.k = Projection(outer, shared, bias=config.qkv_bias, dtype=dtype, rngs=rngs)
        self.v = Projection(outer, shared, bias=config.qkv_bias, dtype=dtype, rngs=rngs)
        self.o = Projection(queries, outer, bias=config.output_bias, dtype=dtype, rngs=rngs)

    def __call__(
        self,
        x: Float[Array, "batch seq embed"],
        rotation: Rotation,
        mask: Bool[Array, "batch seq keys"],
        positions: Int[Array, "batch seq"],
        segment_ids: Int[Array, "batch seq"],
        cache: LayerCache | None,
    ) -> tuple[Float[Array, "batch seq embed"], LayerCache | None]:
        queries, keys, values = rotate(self.q(x), rotation), rotate(self.k(x), rotation), self.v(x)
        if cache is None:
            heads_first = LayerCache(jnp.swapaxes(keys, 1, 2), jnp.swapaxes(values, 1, 2))
        else:
            heads_first = cache = write(cache, keys, values, positions, segment_ids != 0)
        return self.o(attend(queries, heads_first, mask)), cache


def attend(
    queries: Float[Array, "batch seq heads head_dim"],
    stored: LayerCache,
    mask: Bool[Array, "batch seq keys"],
) -> Float[Array, "batch seq heads head_dim"]:
    """Softmax attention in which `heads / kv_heads` neighbouring query heads share a key head, which is not repeated.

    Scores and softmax are float32. This is the plain version that runs anywhere and that others are tested against.
    """
    batch, seq, heads, head_dim = queries.shape
    grouped = queries.reshape(batch, seq, stored.keys.shape[1], -1, head_dim)
    scores = jnp.einsum("bskgh,bkth->bkgst", grouped, stored.keys, preferred_element_type=jnp.float32)
    scores = jnp.where(mask[:, None, None], scores * head_dim**-0.5, jnp.finfo(jnp.float32).min)
    weights = jax.nn.softmax(scores, axis=-1).astype(stored.values.dtype)
    return jnp.einsum("bkgst,bkth->bskgh", weights, stored.values).reshape(batch, seq, heads, head_dim)
