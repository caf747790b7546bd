"""Grouped-query attention (Ainslie et al. 2023)."""

from __future__ import annotations

import jax
from flax import nnx
from jax import numpy as jnp
from jax.nn import initializers
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

from . import config as configs
from .cache import KeyValues, write
from .context import Context
from .names import named
from .norm import Norm
from .parameter import parameter
from .projection import Projection
from .rope import rotate


class Attention(nnx.Module):
    """Causal self-attention, over the tokens of the pass or, with a cache, over all that the cache then holds.

    The projections of queries, keys and values are three parameters, or where `fused` a single one; see `fuse.py`.
    """

    def __init__(self, config: configs.Attention, embed: int, *, fused: bool, dtype: DTypeLike, rngs: nnx.Rngs | None):
        self.config = config
        self.fused = fused and config.shares is None and not config.keys_are_values
        outer = {"embed": embed}
        queries = {"heads": config.heads, "head_dim": config.head_dim}
        shared = {"kv_heads": config.kv_heads, "head_dim": config.head_dim}

        def projection(outputs: dict[str, int]) -> Projection:
            return Projection(outer, outputs, bias=config.qkv_bias, dtype=dtype, rngs=rngs)

        if self.fused:
            self.qkv = projection({"heads": config.heads + 2 * config.kv_heads, "head_dim": config.head_dim})
        else:
            self.q = projection(queries)
            self.k = projection(shared) if config.shares is None else None
            self.v = projection(shared) if config.shares is None and not config.keys_are_values else None
        self.gate = projection(queries) if config.gated else None
        self.o = Projection(queries, outer, bias=config.output_bias, dtype=dtype, rngs=rngs)
        self.q_norm = _head_norm(config.qk_norm, queries, dtype, rngs)
        self.k_norm = _head_norm(config.qk_norm, shared, dtype, rngs) if config.shares is None else None
        sizes = {"head_dim": config.head_dim}
        self.v_norm = None if config.v_norm is None else Norm(config.v_norm, sizes, dtype=dtype, rngs=rngs)
        self.sinks = parameter({"heads": config.heads}, initializers.zeros, dtype, rngs) if config.sinks else None

    def __call__(
        self, x: Float[Array, "batch seq embed"], context: Context, cache: KeyValues | None
    ) -> tuple[Float[Array, "batch seq embed"], KeyValues]:
        """The output, and all keys and values that were attended.

        Where the layer shares those of another, `cache` is what that one returned.
        """
        queries, keys, values = self._project(x)
        stored = cache if keys is None or values is None else self._store(keys, values, context, cache)
        assert stored is not None, "a layer that shares keys and values is given some"
        sinks = None if self.sinks is None else self.sinks[...]
        if self.q_norm is not None:
            queries = named(self.q_norm(queries), "q_norm")
        attended = attend(
            named(self._grow(self._turn(queries, context), context), "queries"),
            stored,
            context.masks[self.config.sight],
            self.config.scale,
            softcap=self.config.softcap,
            sinks=sinks,
        )
        attended = named(attended, "attended")
        if self.gate is not None:
            attended = attended * jax.nn.sigmoid(self.gate(x))
        return self.o(attended), stored

    def _project(self, x: jax.Array) -> tuple[jax.Array, jax.Array | None, jax.Array | None]:
        """Queries, and keys and values where they are the layer's own."""
        if self.fused:
            heads, kv_heads = self.config.heads, self.config.kv_heads
            queries, keys, values = jnp.split(self.qkv(x), [heads, heads + kv_heads], axis=2)
            return queries, keys, values
        if self.k is None:
            return named(self.q(x), "q"), None, None
        keys = named(self.k(x), "k")
        return named(self.q(x), "q"), keys, keys if self.v is None else named(self.v(x), "v")

    def _store(
        self,
        keys: Float[Array, "batch seq kv_heads head_dim"],
        values: Float[Array, "batch seq kv_heads head_dim"],
        context: Context,
        cache: KeyValues | None,
    ) -> KeyValues:
        """The keys and values to attend: those of the pass, and with a cache those before them."""
        if self.k_norm is not None:
            keys = named(self.k_norm(keys), "k_norm")
        keys = named(self._turn(keys, context), "keys")
        values = named(values if self.v_norm is None else self.v_norm(values), "values")
        if cache is None:
            return KeyValues(jnp.swapaxes(keys, 1, 2), jnp.swapaxes(values, 1, 2))
        return write(cache, keys, values, context.positions, context.segment_ids != 0, self.config.window)

    def _turn(self, x: jax.Array, context: Context) -> jax.Array:
        rope = self.config.rope
        return x if rope is None else rotate(x, context.rotations[rope], interleaved=rope.interleaved)

    def _grow(self, queries: jax.Array, context: Context) -> jax.Array:
        growth = self.config.query_growth
        if growth is None:
            return queries
        factor = 1 + growth.beta * jnp.log(1 + jnp.floor((context.positions + growth.offset) / growth.positions))
        return queries * factor[:, :, None, None].astype(queries.dtype)


def _head_norm(
    config: configs.QkNorm | None, sizes: dict[str, int], dtype: DTypeLike, rngs: nnx.Rngs | None
) -> Norm | None:
    if config is None:
        return None
    if config.kind == "shared":
        sizes = {"head_dim": sizes["head_dim"]}
    return Norm(config.norm, sizes, over=None if config.kind == "joint" else 1, dtype=dtype, rngs=rngs)


def attend(
    queries: Float[Array, "batch seq heads head_dim"],
    stored: KeyValues,
    mask: Bool[Array, "batch seq keys"],
    scale: float,
    *,
    softcap: float | None = None,
    sinks: Float[Array, " heads"] | None = None,
) -> Float[Array, "batch seq heads value_dim"]:
    """Softmax attention in which `heads / kv_heads` neighbouring query heads share a key head, which is not repeated.

    Scores and softmax are float32. This is the plain version that runs anywhere and that others are tested against.
    """
    batch, seq, heads, head_dim = queries.shape
    grouped = queries.reshape(batch, seq, stored.keys.shape[1], -1, head_dim)
    score = _scores_of_one if batch == seq == 1 else _scores
    weigh = _weighted_for_one if seq == 1 else _weighted
    scores = score(grouped, stored.keys) * scale
    if softcap is not None:
        scores = softcap * jnp.tanh(scores / softcap)
    scores = jnp.where(mask[:, None, None], scores, jnp.finfo(jnp.float32).min)
    weights = jax.nn.softmax(scores, axis=-1) if sinks is None else _softmax_with_sinks(scores, sinks)
    return weigh(weights.astype(stored.values.dtype), stored.values).reshape(batch, seq, heads, -1)


def _softmax_with_sinks(
    scores: Float[Array, "batch kv_heads group seq slots"], sinks: Float[Array, " heads"]
) -> Float[Array, "batch kv_heads group seq slots"]:
    """A softmax over the scores and one more logit a head, of which the last weight is thrown away."""
    sink = sinks.astype(jnp.float32).reshape(1, *scores.shape[1:3], 1, 1)
    largest = jnp.maximum(jnp.max(scores, axis=-1, keepdims=True), sink)
    powers = jnp.exp(scores - largest)
    return powers / (jnp.sum(powers, axis=-1, keepdims=True) + jnp.exp(sink - largest))


def _scores(
    queries: Float[Array, "batch seq kv_heads group head_dim"], keys: Float[Array, "batch kv_heads slots head_dim"]
) -> Float[Array, "batch kv_heads group seq slots"]:
    return jnp.einsum("bskgh,bkth->bkgst", queries, keys, preferred_element_type=jnp.float32)


def _weighted(
    weights: Float[Array, "batch kv_heads group seq slots"], values: Float[Array, "batch kv_heads slots value_dim"]
) -> Float[Array, "batch seq kv_heads group value_dim"]:
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
    weights: Float[Array, "batch kv_heads group 1 slots"], values: Float[Array, "batch kv_heads slots value_dim"]
) -> Float[Array, "batch 1 kv_heads group value_dim"]:
    return jnp.sum(weights[:, :, :, 0, :, None] * values[:, :, None], axis=3)[:, None]
