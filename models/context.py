"""What a pass tells every layer of its tokens: where they stand, what they see, how they turn.

It is computed once a pass and shared by all layers of one kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
from jax import numpy as jnp
from jaxtyping import Array, Bool, Int

from . import config as configs
from .cache import Cache, slots_of
from .rope import Rotation, depends_on_length, rotation


class Context(NamedTuple):
    """One pass's tokens; `masks` are by what layers see, `rotations` by rotary embedding."""

    positions: Int[Array, "batch seq"]
    segment_ids: Int[Array, "batch seq"]
    rotations: Mapping[configs.Rope, Rotation]
    masks: Mapping[configs.Sight, Bool[Array, "batch seq keys"]]


def make_context(
    config: configs.ModelConfig,
    positions: Int[Array, "batch seq"],
    segment_ids: Int[Array, "batch seq"],
    cache: Cache | None,
    lengths: Int[Array, " batch"] | None,
) -> Context:
    """The context of a pass; the arguments are those of `Decoder`."""
    slots: dict[configs.Sight, int] = {}
    for index, layer in enumerate(config.layers):
        held = None if cache is None else cache[index]
        if isinstance(layer.attn, configs.Attention | configs.LatentAttention) and (cache is None or held is not None):
            slots[layer.attn.sight] = 0 if held is None else slots_of(held)
    masks = {
        sight: _mask(positions, segment_ids, sight)
        if cache is None
        else _cached_mask(positions, segment_ids, sight, size)
        for sight, size in slots.items()
    }
    return Context(positions, segment_ids, _rotations(config, positions, segment_ids, lengths), masks)


def positions_in_segments(segment_ids: Int[Array, "batch seq"]) -> Int[Array, "batch seq"]:
    """The index of each token in its run of equal segment ids."""
    index = jnp.broadcast_to(jnp.arange(segment_ids.shape[1], dtype=jnp.int32), segment_ids.shape)
    starts = jnp.diff(segment_ids, axis=1, prepend=segment_ids[:, :1]) != 0
    return index - jax.lax.cummax(jnp.where(starts, index, 0), axis=1)


def segment_lengths(
    positions: Int[Array, "batch seq"], segment_ids: Int[Array, "batch seq"]
) -> Int[Array, "batch seq"]:
    """For each token one more than the largest position in its segment."""
    same = segment_ids[:, :, None] == segment_ids[:, None, :]
    return jnp.max(jnp.where(same, positions[:, None, :], 0), axis=-1) + 1


def _rotations(
    config: configs.ModelConfig, positions: jax.Array, segment_ids: jax.Array, lengths: jax.Array | None
) -> dict[configs.Rope, Rotation]:
    ropes = config.ropes
    if lengths is not None:
        spread = jnp.broadcast_to(lengths[:, None], positions.shape)
    elif any(map(depends_on_length, ropes)):
        spread = segment_lengths(positions, segment_ids)
    else:
        spread = positions
    return {rope: rotation(rope, positions, spread) for rope in ropes}


def _mask(
    positions: Int[Array, "batch seq"], segment_ids: Int[Array, "batch seq"], sight: configs.Sight
) -> Bool[Array, "batch seq keys"]:
    """Which tokens of the pass each token attends to: those of its own segment that are not ahead, nor out of sight.

    Every token, padding too, sees itself, so no softmax is over nothing.
    """
    seen = segment_ids[:, :, None] == segment_ids[:, None, :]
    return seen & _in_sight(positions[:, :, None], positions[:, None, :], sight)


def _cached_mask(
    positions: Int[Array, "batch seq"], segment_ids: Int[Array, "batch seq"], sight: configs.Sight, slots: int
) -> Bool[Array, "batch seq keys"]:
    """Which slots of the cache each token attends to, once the pass's own tokens are in it; see `cache.py`."""
    if sight.window is None:
        return jnp.arange(slots) <= positions[:, :, None]
    newest = jnp.max(jnp.where(segment_ids != 0, positions, -1), axis=1, keepdims=True)
    held = newest - (newest - jnp.arange(slots)) % slots
    return (held >= 0)[:, None, :] & _in_sight(positions[:, :, None], held[:, None, :], sight)


def _in_sight(positions: jax.Array, others: jax.Array, sight: configs.Sight) -> jax.Array:
    """Whether tokens at `positions` see those of their sequence that are at `others`."""
    distance = positions - others
    if sight.window is None:
        return distance >= 0
    return (distance >= 0) & (distance < (positions % sight.window + 1 if sight.chunked else sight.window))
