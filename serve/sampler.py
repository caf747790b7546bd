"""Choosing the next token: temperature, then top-k, top-p and min-p in the order of transformers.

The noise of a token depends on the request's seed and on the token's position, and on nothing else, so a request has
the same result whatever runs beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
from jax import numpy as jnp
from jaxtyping import Array, Float, Int, UInt32

from zoo.models.errors import report_all

# The "token" chosen where the logits are not numbers.
NOT_A_NUMBER = -1


@dataclass(frozen=True)
class Sampling:
    """How a request's tokens are chosen. A temperature of 0 takes the likeliest and ignores the rest."""

    temperature: float = 0.0
    top_k: int = 0  # 0: no limit
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        conditions = {
            f"temperature {self.temperature}: expected a finite number of at least 0": 0 <= self.temperature < np.inf,
            f"top_k {self.top_k}: expected 0 for no limit, or the number of tokens to keep": self.top_k >= 0,
            f"top_p {self.top_p}: expected more than 0 and at most 1": 0 < self.top_p <= 1,
            f"min_p {self.min_p}: expected at least 0 and at most 1": 0 <= self.min_p <= 1,
        }
        report_all((text for text, holds in conditions.items() if not holds), "bad sampling settings:")


GREEDY = Sampling()


class SamplingRows(NamedTuple):
    """The settings of every row of a batch, as arrays, so that no value of them is compiled in."""

    temperature: Float[Array, " batch"]
    top_k: Int[Array, " batch"]
    top_p: Float[Array, " batch"]
    min_p: Float[Array, " batch"]
    seed: UInt32[Array, " batch"]


def sampling_rows(settings: list[Sampling]) -> SamplingRows:
    """The settings of requests, one row each."""
    columns = {
        "temperature": np.array([item.temperature for item in settings], np.float32),
        "top_k": np.array([min(item.top_k, np.iinfo(np.int32).max) for item in settings], np.int32),
        "top_p": np.array([item.top_p for item in settings], np.float32),
        "min_p": np.array([item.min_p for item in settings], np.float32),
        "seed": np.array([item.seed % 2**32 for item in settings], np.uint32),
    }
    return SamplingRows(**jax.device_put(columns))


def choose(
    logits: Float[Array, "batch vocab"], settings: SamplingRows, positions: Int[Array, " batch"]
) -> Int[Array, " batch"]:
    """The token for each row's `positions`. A batch without a sampled row pays for an argmax only."""
    greedy = jnp.argmax(logits, axis=-1).astype(jnp.int32)
    sampled = settings.temperature > 0

    def sample() -> jax.Array:
        scaled = logits / jnp.where(sampled, settings.temperature, 1)[:, None]
        noisy = keep_likely(scaled, settings) + _noise(settings.seed, positions, logits.shape[1])
        return jnp.where(sampled, jnp.argmax(noisy, axis=-1).astype(jnp.int32), greedy)

    tokens = jax.lax.cond(jnp.any(sampled), sample, lambda: greedy)
    return jnp.where(jnp.isnan(jnp.max(logits, axis=-1)), NOT_A_NUMBER, tokens)


def keep_likely(scaled: Float[Array, "batch vocab"], settings: SamplingRows) -> Float[Array, "batch vocab"]:
    """Minus infinity for the tokens that top-k, top-p and min-p rule out, each seeing what the one before it left.

    All three keep a row's largest logits, so each is a threshold on its own logits.
    """
    narrowed = (settings.top_k > 0) | (settings.top_p < 1)
    lowest = jnp.full_like(scaled[:, 0], -jnp.inf)
    # Sorting a vocabulary costs more than the rest of the sampler.
    sorted_threshold = jax.lax.cond(jnp.any(narrowed), lambda: _sorted_threshold(scaled, settings), lambda: lowest)
    min_p_threshold = jnp.max(scaled, axis=-1) + jnp.log(settings.min_p)
    threshold = jnp.maximum(sorted_threshold, min_p_threshold)
    return jnp.where(scaled >= threshold[:, None], scaled, -jnp.inf)


def _sorted_threshold(scaled: jax.Array, settings: SamplingRows) -> jax.Array:
    """The smallest logit of each row that top-k and then top-p keep."""
    ordered = jnp.sort(scaled, axis=-1, descending=True)
    rank = jnp.arange(scaled.shape[1])
    last = jnp.where(settings.top_k > 0, jnp.minimum(settings.top_k, scaled.shape[1]), scaled.shape[1]) - 1
    kth = jnp.take_along_axis(ordered, last[:, None], axis=-1)
    kept = jnp.where(ordered >= kth, ordered, -jnp.inf)
    probabilities = jax.nn.softmax(kept, axis=-1)
    before = jnp.cumsum(probabilities, axis=-1) - probabilities
    # The likeliest token stays whatever top_p is.
    nucleus = ((before < settings.top_p[:, None]) | (rank == 0)) & (ordered >= kth)
    return jnp.min(jnp.where(nucleus, ordered, jnp.inf), axis=-1)


def _noise(seeds: jax.Array, positions: jax.Array, vocab: int) -> jax.Array:
    """Gumbel noise: the argmax of logits plus it is a draw from their softmax."""

    def row(seed: jax.Array, position: jax.Array) -> jax.Array:
        return jax.random.gumbel(jax.random.fold_in(jax.random.key(seed), position), (vocab,))

    return jax.vmap(row)(seeds, positions)
