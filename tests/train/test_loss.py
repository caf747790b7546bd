"""The loss by chunks: equal to the plain one, with its gradient, whatever the chunks."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from zoo.train.loss import cross_entropy

EMBED, VOCAB = 8, 50


def make(batch: int, seq: int) -> tuple[dict[str, jax.Array], jax.Array, jax.Array, jax.Array]:
    draw = np.random.default_rng(batch * 100 + seq)
    params = {"head": jnp.asarray(draw.normal(size=(EMBED, VOCAB)), jnp.float32)}
    x = jnp.asarray(draw.normal(size=(batch, seq, EMBED)), jnp.float32)
    targets = jnp.asarray(draw.integers(0, VOCAB, (batch, seq)))
    return params, x, targets, jnp.asarray(draw.integers(0, 3, (batch, seq)), jnp.float32)


def logits_of(params: Any, x: jax.Array) -> jax.Array:
    return x @ params["head"]


def plain(params: Any, x: jax.Array, targets: jax.Array, weights: jax.Array, z_loss: float) -> jax.Array:
    logits = logits_of(params, x)
    log_z = jax.nn.logsumexp(logits, axis=-1)
    nll = log_z - jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return jnp.sum(weights * (nll + z_loss * log_z**2))


@pytest.mark.parametrize("z_loss", [0.0, 1e-2])
@pytest.mark.parametrize(("batch", "seq", "at_a_time"), [(1, 1, 1), (2, 7, 4), (3, 8, 6), (2, 9, 1000)])
def test_value_and_gradient_equal_those_of_the_whole(batch: int, seq: int, at_a_time: int, z_loss: float) -> None:
    params, x, targets, weights = make(batch, seq)

    def chunked(params: Any, x: jax.Array) -> jax.Array:
        value, _ = cross_entropy(logits_of, params, x, targets, weights, z_loss=z_loss, tokens_at_a_time=at_a_time)
        # A factor, so that the gradient that comes from outside counts.
        return 3 * value

    value, gradients = jax.jit(jax.value_and_grad(chunked, (0, 1)))(params, x)
    expected, wanted = jax.value_and_grad(lambda p, x: 3 * plain(p, x, targets, weights, z_loss), (0, 1))(params, x)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), gradients, wanted)


def test_totals_are_sums_over_weighted_tokens() -> None:
    params, x, targets, weights = make(2, 7)
    _, totals = cross_entropy(logits_of, params, x, targets, weights, tokens_at_a_time=4)
    logits = np.asarray(logits_of(params, x))
    assert float(totals.weight) == float(weights.sum())
    assert float(totals.correct) == float(np.sum(np.asarray(weights) * (logits.argmax(-1) == np.asarray(targets))))
    np.testing.assert_allclose(totals.loss, plain(params, x, targets, weights, 0.0), rtol=1e-5)


def test_a_frozen_head_costs_no_gradient_of_it() -> None:
    params, x, targets, weights = make(2, 7)

    def run(x: jax.Array) -> jax.Array:
        return cross_entropy(logits_of, params, x, targets, weights, trains_head=False)[0]

    expected = jax.grad(lambda x: plain(params, x, targets, weights, 0.0))(x)
    np.testing.assert_allclose(jax.grad(run)(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("trains_head", [True, False])
def test_logits_of_all_tokens_are_never_there_together(trains_head: bool) -> None:
    batch, seq, vocab = 2, 64, 4096
    params = {"head": jnp.zeros((EMBED, vocab))}
    x, targets, weights = jnp.zeros((batch, seq, EMBED)), jnp.zeros((batch, seq), int), jnp.ones((batch, seq))

    def run(params: Any, x: jax.Array) -> jax.Array:
        return cross_entropy(logits_of, params, x, targets, weights, tokens_at_a_time=8, trains_head=trains_head)[0]

    compiled = jax.jit(jax.grad(run, (0, 1) if trains_head else 1)).lower(params, x).compile()
    memory = compiled.memory_analysis()
    assert memory is not None and memory.temp_size_in_bytes < batch * seq * vocab * 4 / 2
