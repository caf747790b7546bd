"""Rotary position embedding: the frequencies of every variant, and the rotation.

Frequencies and angles are float32 whatever the compute dtype. The formulas are those of the papers named in
`config.py`, evaluated in the order in which the reference implementation evaluates them, so that the two agree to the
last bits at large positions.

Two variants, dynamic and longrope, choose their frequencies by the length of the whole sequence: all of its positions
turn differently once it has outgrown a threshold, and with them every key and every deeper activation. So a cache
filled at one length is right at another only where `frequency_period` says so; a decoder that crosses the boundary has
to run the sequence again.
"""

from __future__ import annotations

import math
from typing import NamedTuple, assert_never

import numpy as np
from jax import numpy as jnp
from jaxtyping import Array, Float, Int

from .config import DefaultRope, DynamicRope, LinearRope, Llama3Rope, LongRope, ProportionalRope, Rope, YarnRope


class Rotation(NamedTuple):
    """Cosines and sines of the angles by which each pair of a head turns, one row a token."""

    cos: Float[Array, "batch seq pairs"]
    sin: Float[Array, "batch seq pairs"]


def depends_on_length(rope: Rope) -> bool:
    """Whether the frequencies depend on the length of the whole sequence."""
    return isinstance(rope, DynamicRope | LongRope)


def frequency_period(rope: Rope, length: int) -> int:
    """A number that two lengths of a sequence share exactly if they share their frequencies."""
    if isinstance(rope, DynamicRope):
        return max(length, rope.max_positions)
    if isinstance(rope, LongRope):
        return int(length > rope.original_max_positions)
    return 0


def rotation(rope: Rope, positions: Int[Array, "batch seq"], lengths: Int[Array, "batch seq"]) -> Rotation:
    """The rotation of tokens at `positions` in sequences that are `lengths` tokens long."""
    if isinstance(rope, DynamicRope):
        frequencies = _dynamic(rope, lengths)
    elif isinstance(rope, LongRope):
        long = (lengths > rope.original_max_positions)[..., None]
        frequencies = jnp.where(long, _longrope(rope, True), _longrope(rope, False))
    else:
        frequencies = jnp.asarray(inverse_frequencies(rope))
    angles = positions[..., None].astype(jnp.float32) * frequencies
    scale = np.float32(rope.attention_factor if isinstance(rope, YarnRope | LongRope) else 1.0)
    return Rotation(jnp.cos(angles) * scale, jnp.sin(angles) * scale)


def rotate(
    x: Float[Array, "batch seq heads head_dim"], rotation: Rotation, *, interleaved: bool = False
) -> Float[Array, "batch seq heads head_dim"]:
    """Turns each pair of each head by its angle; see `config.Rope` for what a pair is.

    Elements past those that the rotation has angles for stay as they are.
    """
    cos, sin = rotation.cos[:, :, None], rotation.sin[:, :, None]
    dims = 2 * cos.shape[-1]
    turning, rest = x[..., :dims].astype(jnp.float32), x[..., dims:]
    if interleaved:
        first, second = turning[..., 0::2], turning[..., 1::2]
    else:
        first, second = jnp.split(turning, 2, axis=-1)
    turned = first * cos - second * sin, second * cos + first * sin
    whole = jnp.stack(turned, axis=-1).reshape(turning.shape) if interleaved else jnp.concatenate(turned, axis=-1)
    whole = whole.astype(x.dtype)
    return jnp.concatenate([whole, rest], axis=-1) if rest.shape[-1] else whole


def inverse_frequencies(
    rope: DefaultRope | LinearRope | YarnRope | Llama3Rope | ProportionalRope,
) -> Float[np.ndarray, " pairs"]:
    """Radians a position for each pair, where they do not depend on the length of the sequence."""
    match rope:
        case DefaultRope():
            return _plain(rope)
        case LinearRope():
            return _plain(rope) / np.float32(rope.factor)
        case YarnRope():
            return _yarn(rope)
        case Llama3Rope():
            return _llama3(rope)
        case ProportionalRope():
            turns = np.arange(rope.dims // 2) < rope.turning
            return np.where(turns, _plain(rope), np.float32(0)) / np.float32(rope.factor)
        case _:
            assert_never(rope)


def _exponents(rope: Rope) -> Float[np.ndarray, " pairs"]:
    return np.arange(0, rope.dims, 2, dtype=np.float32) / np.float32(rope.dims)


def _plain(rope: Rope) -> Float[np.ndarray, " pairs"]:
    return np.float32(1) / np.float32(rope.theta) ** _exponents(rope)


def _dynamic(rope: DynamicRope, lengths: Int[Array, "batch seq"]) -> Float[Array, "batch seq pairs"]:
    length = jnp.maximum(lengths, rope.max_positions).astype(jnp.float32)
    growth = rope.factor * length / rope.max_positions - (rope.factor - 1)
    theta = rope.theta * growth ** np.float32(rope.dims / (rope.dims - 2))
    return 1 / theta[..., None] ** _exponents(rope)


def _longrope(rope: LongRope, long: bool) -> Float[np.ndarray, " pairs"]:
    divisors = np.asarray(rope.long_factor if long else rope.short_factor, np.float32)
    return np.float32(1) / (divisors * np.float32(rope.theta) ** _exponents(rope))


def _yarn(rope: YarnRope) -> Float[np.ndarray, " pairs"]:
    """Pairs that turn often within the original length keep their frequency, slow ones are divided by `factor`."""

    def pair_turning(rotations: float) -> float:
        wavelengths = rope.original_max_positions / (rotations * 2 * math.pi)
        return rope.dims * math.log(wavelengths) / (2 * math.log(rope.theta))

    low, high = pair_turning(rope.beta_fast), pair_turning(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.dims - 1)
    if low == high:
        high += 0.001  # a step instead of a ramp, without dividing by zero
    pairs = np.arange(rope.dims // 2, dtype=np.float32)
    interpolated = np.clip((pairs - np.float32(low)) / np.float32(high - low), 0, 1)
    kept = np.float32(1) - interpolated
    powers = np.float32(rope.theta) ** _exponents(rope)
    return (1 / (np.float32(rope.factor) * powers)) * (1 - kept) + (1 / powers) * kept


def _llama3(rope: Llama3Rope) -> Float[np.ndarray, " pairs"]:
    """Long waves are divided by `factor`, short ones kept, and those between blended by how often they turn."""
    plain = _plain(rope)
    divided = plain / np.float32(rope.factor)
    wavelength = np.float32(2 * math.pi) / plain
    turns = np.float32(rope.original_max_positions) / wavelength
    share = (turns - np.float32(rope.low_freq_factor)) / np.float32(rope.high_freq_factor - rope.low_freq_factor)
    blended = (1 - share) * divided + share * plain
    longest = rope.original_max_positions / rope.low_freq_factor
    shortest = rope.original_max_positions / rope.high_freq_factor
    return np.where(wavelength > longest, divided, np.where(wavelength < shortest, plain, blended)).astype(np.float32)
