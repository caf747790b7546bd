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
    """Causal self-attention, over the tokens of the pass or, with a cache, over all that the cache then holds.

    The projections of queries, keys and values are three parameters, or where `fused` a single one; see `fuse.py`.
    """

    def __init__(self, config: configs.Attention, embed: int, *, fused: bool, dtype: DTypeLike, rngs: nnx.Rngs | None):
        self.heads, self.kv_heads, self.fused = config.heads, config.kv_heads, fused
        outer = {"embed": embed}
        queries = {"heads": config.heads, "head_dim": config.head_dim}
        shared = {"kv_heads": config.kv_heads, "head_dim": config.head_dim}
        if fused:
            every = {"heads": config.heads + 2 * config.kv_heads, "head_dim": config.head_dim}
            self.qkv = Projection(outer, every, bias=config.qkv_bias, dtype=dtype, rngs=rngs)
        else:
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
        queries, keys, values = self._project(x)
        queries, keys = rotate(queries, rotation), rotate(keys, rotation)
        if cache is None:
            heads_first = LayerCache(jnp.swapaxes(keys, 1, 2), jnp.swapaxes(values, 1, 2))
        else:
            heads_first = cache = write(cache, keys, values, positions, segment_ids != 0)
        return self.o(attend(queries, heads_first, mask)), cache

    def _project(self, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        if not self.fused:
            return self.q(x), self.k(x), self.v(x)
        queries, keys, values = jnp.split(self.qkv(x), [self.heads, self.heads + self.kv_heads], axis=2)
        return queries, keys, values


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
    scores = _scores_of_one if batch == seq == 1 else _scores
    weighted = _weighted_for_one if seq == 1 else _weighted
    scaled = scores(grouped, stored.keys) * head_dim**-0.5
    weights = jax.nn.softmax(jnp.where(mask[:, None, None], scaled, jnp.finfo(jnp.float32).min), axis=-1)
    return weighted(weights.astype(stored.values.dtype), stored.values).reshape(batch, seq, heads, head_dim)


def _scores(
    queries: Float[Array, "batch seq kv_heads group head_dim"], keys: Float[Array, "batch kv_heads slots head_dim"]
) -> Float[Array, "batch kv_heads group seq slots"]:
    return jnp.einsum("bskgh,bkth->bkgst", queries, keys, preferred_element_type=jnp.float32)


def _weighted(
    weights: Float[Array, "batch kv_heads group seq slots"], values: Float[Array, "batch kv_heads slots head_dim"]
) -> Float[Array, "batch seq kv_heads group head_dim"]:
    return jnp.einsum("bkgst,bkth->bskgh", weights, values)


# Decoding has one query a sequence. XLA on CPU runs its many small products with values one after another; a product
# and a sum it fuses into one loop, several times faster. With keys it is about as fast either way, but for one sequence
# it would copy the whole cache before the product.


def _scores_of_one(
    queries: Float[Array, "batch 1 kv_heads group head_dim"], keys: Float[Array, "batch kv_heads slots head_dim"]
) -> Float[Array, "batch kv_heads group 1 slots"]:
    products = queries[:, 0, :, :, None] * keys[:, :, None]
    return jnp.sum(products, axis=-1, dtype=jnp.float32)[:, :, :, None]


def _weighted_for_one(
    weights: Float[Array, "batch kv_heads group 1 slots"], values: Float[Array, "batch kv_heads slots head_dim"]
) -> Float[Array, "batch 1 kv_heads group head_dim"]:
    return jnp.sum(weights[:, :, :, 0, :, None] * values[:, :, None], axis=3)[:, None]
