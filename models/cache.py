"""The keys and values of tokens already seen.

A row of the cache holds one sequence, its token at position p in slot p. Slots past a row's last position may hold
anything finite: a query at position p attends slots 0 to p and no others, and each is written before that.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
from jax import numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from .config import ModelConfig


class LayerCache(NamedTuple):
    """One layer's keys, already rotated, and values. Heads come before slots, as attention reads them."""

    keys: Float[Array, "batch kv_heads slots head_dim"]
    values: Float[Array, "batch kv_heads slots head_dim"]


Cache = tuple[LayerCache, ...]


def empty_cache(config: ModelConfig, batch: int, slots: int, dtype: DTypeLike) -> Cache:
    """A cache for `batch` sequences of at most `slots` tokens."""

    def layer_cache(kv_heads: int, head_dim: int) -> LayerCache:
        # Two arrays, since a donated buffer may be given away only once.
        return LayerCache(*(jnp.zeros((batch, kv_heads, slots, head_dim), dtype) for _ in LayerCache._fields))

    return tuple(layer_cache(layer.attn.kv_heads, layer.attn.head_dim) for layer in config.layers)


def write(
    cache: LayerCache,
    keys: Float[Array, "batch seq kv_heads head_dim"],
    values: Float[Array, "batch seq kv_heads head_dim"],
    positions: Int[Array, "batch seq"],
    real: Bool[Array, "batch seq"],
) -> LayerCache:
    """Stores the `real` tokens of a pass; padding, and a position past the last slot, is dropped and never wraps."""
    slots = jnp.where(real, positions, cache.keys.shape[2])
    rows = jnp.arange(slots.shape[0])[:, None]

    def put(stored: jax.Array, new: jax.Array) -> jax.Array:
        return stored.at[rows, :, slots].set(new.astype(stored.dtype), mode="drop")

    return LayerCache(put(cache.keys, keys), put(cache.values, values))
