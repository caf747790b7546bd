"""Cross-entropy of the next token, by chunks of the sequence: logits of all tokens are never there together.

The gradient is computed on the way forward, chunk by chunk, so the logits of a chunk are computed once and not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
from jax import numpy as jnp
from jaxtyping import Array, Float, Int

Params = Mapping[str, jax.Array]
LogitsOf = Callable[[Params, jax.Array], jax.Array]


class Totals(NamedTuple):
    """Sums over tokens, each times its weight.

    Attributes:
        loss: minus the log-likelihood, in nats.
        log_z: the squared logarithm of the softmax's denominator.
        correct: whether the target is the likeliest.
        weight: the weights.
    """

    loss: jax.Array
    log_z: jax.Array
    correct: jax.Array
    weight: jax.Array


def cross_entropy(
    logits_of: LogitsOf,
    params: Params,
    x: Float[Array, "batch seq embed"],
    targets: Int[Array, "batch seq"],
    weights: Float[Array, "batch seq"],
    *,
    z_loss: float = 0.0,
    tokens_at_a_time: int = 512,
    trains_head: bool = True,
) -> tuple[Float[Array, ""], Totals]:
    """The summed loss with z_loss * log_z (Chowdhery et al. 2022, section 5), and its parts, which have no gradient.

    Args:
        logits_of: float32 logits [batch, some, vocab] of the head's parameters and of a part of `x`.
        params: the head's parameters.
        targets: the token that follows each; any where the weight is 0.
        tokens_at_a_time: how many tokens' logits are there together, about.
        trains_head: whether the head's parameters are given a gradient, which costs a third of the work.
    """

    def of_chunk(params: Params, x: jax.Array, targets: jax.Array, weights: jax.Array) -> tuple[jax.Array, Totals]:
        logits = logits_of(params, x)
        log_z = jax.nn.logsumexp(logits, axis=-1)
        chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
        totals = Totals(
            jnp.sum(weights * (log_z - chosen)),
            jnp.sum(weights * jnp.square(log_z)),
            jnp.sum(weights * (chosen >= jnp.max(logits, axis=-1))),
            jnp.sum(weights),
        )
        return totals.loss + z_loss * totals.log_z, totals

    @jax.custom_vjp
    def total(params: Params, x: jax.Array, targets: jax.Array, weights: jax.Array) -> tuple[jax.Array, Totals]:
        def step(sums: Any, chunk: Any) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, sums, of_chunk(params, *chunk)), None

        return jax.lax.scan(step, _zeros(), _chunks((x, targets, weights), tokens_at_a_time))[0]

    def forward(params: Params, x: jax.Array, targets: jax.Array, weights: jax.Array) -> Any:
        differentiated = (0, 1) if trains_head else 1

        def step(sums: Any, chunk: Any) -> tuple[Any, jax.Array]:
            result, gradients = jax.value_and_grad(of_chunk, differentiated, has_aux=True)(params, *chunk)
            of_params, of_x = gradients if trains_head else (sums[1], gradients)
            of_params = jax.tree.map(jnp.add, sums[1], of_params) if trains_head else of_params
            return (jax.tree.map(jnp.add, sums[0], result), of_params), of_x

        start = _zeros(), {path: jnp.zeros_like(array) for path, array in params.items()}
        (result, of_params), of_chunks = jax.lax.scan(step, start, _chunks((x, targets, weights), tokens_at_a_time))
        return result, (of_params, _joined(of_chunks, x.shape[1]))

    def backward(kept: Any, cotangents: Any) -> Any:
        of_params, of_x = kept
        factor = cotangents[0]
        scaled = {path: (gradient * factor).astype(gradient.dtype) for path, gradient in of_params.items()}
        return scaled, (of_x * factor).astype(of_x.dtype), None, None

    total.defvjp(forward, backward)
    return total(params, x, targets, weights)


def _zeros() -> tuple[jax.Array, Totals]:
    zero = jnp.zeros((), jnp.float32)
    return zero, Totals(zero, zero, zero, zero)


def _chunks(arrays: Any, tokens_at_a_time: int) -> Any:
    """Parts of the sequence, first axis first; what the last lacks is padding of weight 0."""
    batch, seq = arrays[1].shape
    count = min(seq, max(1, -(-batch * seq // tokens_at_a_time)))
    size = -(-seq // count)
    count = -(-seq // size)

    def divided(array: jax.Array) -> jax.Array:
        padding = [(0, 0), (0, count * size - seq)] + [(0, 0)] * (array.ndim - 2)
        padded = jnp.pad(array, padding)
        return jnp.moveaxis(padded.reshape(batch, count, size, *array.shape[2:]), 1, 0)

    return jax.tree.map(divided, arrays)


def _joined(chunks: jax.Array, seq: int) -> jax.Array:
    count, batch, size = chunks.shape[:3]
    return jnp.moveaxis(chunks, 0, 1).reshape(batch, count * size, *chunks.shape[3:])[:, :seq]
