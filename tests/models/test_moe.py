"""Routing by hand-made numbers, and products by expert against the plain ones."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import numpy as jnp

from zoo.models import config as configs
from zoo.models.moe import Router, grouped_dot


@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=9), seed=st.integers(0, 100))
@settings(max_examples=40, deadline=None)
def test_each_row_is_multiplied_by_its_own_matrix(sizes: list[int], seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = random.standard_normal((sum(sizes), 5), np.float32)
    kernel = random.standard_normal((len(sizes), 5, 3), np.float32)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    expected = np.einsum("ri,rio->ro", rows, kernel[owners])
    found = jax.jit(grouped_dot)(rows, kernel, jnp.array(sizes))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_gradients_are_those_of_the_ragged_product() -> None:
    random = np.random.default_rng(0)
    rows = jnp.asarray(random.standard_normal((40, 5), np.float32))
    kernel = jnp.asarray(random.standard_normal((4, 5, 3), np.float32))
    sizes = jnp.array([7, 0, 30, 3])

    def loss(product: Any) -> Any:
        return lambda r, k: jnp.sum(jnp.sin(product(r, k, sizes)))

    for found, expected in zip(
        jax.grad(loss(grouped_dot), (0, 1))(rows, kernel),
        jax.grad(loss(jax.lax.ragged_dot), (0, 1))(rows, kernel),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, atol=1e-5)


def route(config: configs.Router, logits: list[float], bias: list[float] | None = None) -> dict[int, float]:
    """The weight of each expert that a token with these router logits takes."""
    router = Router(config, 1, len(logits), dtype=jnp.float32, rngs=nnx.Rngs(0))
    router.kernel.set_value(jnp.array([logits]))
    if bias is not None and router.selection_bias is not None:
        router.selection_bias.set_value(jnp.array(bias))
    weights, experts = router(jnp.ones((1, 1)))
    return {int(expert): float(weight) for expert, weight in zip(experts[0], weights[0], strict=True)}


@pytest.mark.parametrize(
    ("normalise", "score", "expected"),
    [
        (False, "softmax", {0: 0.5753, 1: 0.2117}),
        (True, "softmax", {0: 0.7311, 1: 0.2689}),
        (False, "softmax_of_chosen", {0: 0.7311, 1: 0.2689}),
    ],
)
def test_shares_are_of_all_experts_unless_they_are_normalised(
    normalise: bool, score: Any, expected: dict[int, float]
) -> None:
    found = route(configs.Router(top_k=2, score=score, normalise=normalise), [2, 1, 0, 0, -1, -1])
    assert found == pytest.approx(expected, abs=1e-4)


def test_a_selection_bias_changes_the_choice_and_not_the_weights() -> None:
    config = configs.Router(top_k=1, score="sigmoid", selection_bias=True, scale=2.5)
    found = route(config, [1.0, 0.0], [0.0, 5.0])
    assert found == pytest.approx({1: 2.5 * 0.5})


def test_experts_of_dropped_groups_are_never_chosen_even_where_all_merits_are_negative() -> None:
    groups = configs.ExpertGroups(count=4, kept=2, judged_by=2)
    config = configs.Router(top_k=3, score="sigmoid", selection_bias=True, groups=groups)
    # Group 0 has the best single expert, groups 1 and 2 the best pairs.
    logits = [3.0, -9.0, 1.0, 1.0, 0.9, 0.9, -1.0, -1.0]
    assert set(route(config, logits, [-3.0] * 8)) == {2, 3, 4}


def test_groups_may_be_judged_by_their_best() -> None:
    groups = configs.ExpertGroups(count=4, kept=1, judged_by=1)
    config = configs.Router(top_k=2, score="softmax", groups=groups)
    assert set(route(config, [3.0, -9.0, 1.0, 1.0, 0.9, 0.9, -1.0, -1.0])) == {0, 1}
