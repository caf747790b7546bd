"""What layers remember of tokens already seen.

A row holds one sequence. Attention keeps keys and values, the token at position p in slot p; slots past a row's last
position may hold anything finite, since a query at position p attends slots 0 to p, and each is written before that.

Attention with a window needs only the newest keys: its slots are a ring, the token at position p in slot p modulo
their number. They are as many as the window and the longest pass together, so that no pass overwrites a key which
one of its own tokens still sees. What a slot holds follows from the row's newest position alone.

Latent attention keeps what keys and values are made from, in slots like those of attention without a window.

Convolutions and linear attention keep what does not grow with the sequence; at position 0 they begin anew, whatever
it is.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
from jax import numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from . import config as configs


class KeyValues(NamedTuple):
    """One layer's keys, already turned, and values. Heads come before slots, as attention reads them."""

    keys: Float[Array, "batch kv_heads slots head_dim"]
    values: Float[Array, "batch kv_heads slots head_dim"]


class Latents(NamedTuple):
    """What one layer's keys and values are made from, and after it the part of keys, turned, that heads share."""

    entries: Float[Array, "batch slots width"]


class Recent(NamedTuple):
    """The last inputs of a convolution."""

    inputs: Float[Array, "batch taps channels"]


class DeltaMemory(NamedTuple):
    """The last inputs of three convolutions, and what linear attention remembers, in float32 whatever the rest is."""

    queries: Float[Array, "batch taps kv_heads key_dim"]
    keys: Float[Array, "batch taps kv_heads key_dim"]
    values: Float[Array, "batch taps kv_heads group value_dim"]
    memory: Float[Array, "batch kv_heads group key_dim value_dim"]


LayerCache = KeyValues | Latents | Recent | DeltaMemory
# Nothing for a layer that attends what another remembers.
Cache = tuple[LayerCache | None, ...]


def empty_cache(
    config: configs.ModelConfig, batch: int, slots: int, dtype: DTypeLike, *, longest_pass: int | None = None
) -> Cache:
    """A cache for `batch` sequences of at most `slots` tokens.

    Args:
        longest_pass: the most tokens that are added at a time; without it windows save nothing.
    """
    return tuple(
        _empty(layer.attn, config.embed, batch, slots, dtype, longest_pass or slots) for layer in config.layers
    )


def slots_of(cache: LayerCache) -> int:
    """The number of slots of a layer with attention."""
    match cache:
        case KeyValues():
            return cache.keys.shape[2]
        case Latents():
            return cache.entries.shape[1]
        case _:
            raise TypeError(f"{type(cache).__name__} has no slots")


def _empty(
    mixer: configs.Mixer, embed: int, batch: int, slots: int, dtype: DTypeLike, longest_pass: int
) -> LayerCache | None:
    match mixer:
        case configs.Attention():
            if mixer.shares is not None:
                return None
            if mixer.window is not None:
                slots = min(slots, _ring(mixer.window, longest_pass))
            # Two arrays, since a donated buffer may be given away only once.
            shape = (batch, mixer.kv_heads, slots, mixer.head_dim)
            return KeyValues(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))
        case configs.LatentAttention():
            return Latents(jnp.zeros((batch, slots, mixer.latent + mixer.rope.dims), dtype))
        case configs.ShortConvolution():
            return Recent(jnp.zeros((batch, mixer.taps - 1, embed), dtype))
        case configs.GatedDeltaNet():
            shared, heads = (mixer.key_heads, mixer.key_dim), (mixer.key_heads, mixer.group)
            return DeltaMemory(
                jnp.zeros((batch, mixer.taps - 1, *shared), dtype),
                jnp.zeros((batch, mixer.taps - 1, *shared), dtype),
                jnp.zeros((batch, mixer.taps - 1, *heads, mixer.value_dim), dtype),
                jnp.zeros((batch, *heads, mixer.key_dim, mixer.value_dim), jnp.float32),
            )


def _ring(window: int, longest_pass: int) -> int:
    """Slots of a ring: a power of two, for which a remainder costs nothing."""
    return 1 << (window + longest_pass - 1).bit_length()


def write(
    cache: KeyValues,
    keys: Float[Array, "batch seq kv_heads head_dim"],
    values: Float[Array, "batch seq kv_heads head_dim"],
    positions: Int[Array, "batch seq"],
    real: Bool[Array, "batch seq"],
    window: int | None,
) -> KeyValues:
    """Stores the `real` tokens of a pass; padding is dropped, and so is a position past the last slot of no ring."""
    slots = cache.keys.shape[2]
    places = jnp.where(real, positions if window is None else positions % slots, slots)
    rows = jnp.arange(places.shape[0])[:, None]

    def put(stored: jax.Array, new: jax.Array) -> jax.Array:
        return stored.at[rows, :, places].set(new.astype(stored.dtype), mode="drop")

    return KeyValues(put(cache.keys, keys), put(cache.values, values))


def write_latents(
    cache: Latents,
    entries: Float[Array, "batch seq width"],
    positions: Int[Array, "batch seq"],
    real: Bool[Array, "batch seq"],
) -> Latents:
    """Stores the `real` tokens of a pass, as `write` does."""
    places = jnp.where(real, positions, cache.entries.shape[1])
    rows = jnp.arange(places.shape[0])[:, None]
    return Latents(cache.entries.at[rows, places].set(entries.astype(cache.entries.dtype), mode="drop"))
