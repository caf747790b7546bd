"""Frequencies against values worked out by hand, and the rotation's defining property."""

from __future__ import annotations

import numpy as np
from jax import numpy as jnp

from zoo.models.config import DefaultRope, DynamicRope, Llama3Rope, LongRope
from zoo.models.rope import Rotation, frequency_period, inverse_frequencies, rotate, rotation


def test_llama3_keeps_short_waves_divides_long_ones_and_blends_between() -> None:
    rope = Llama3Rope(
        theta=10000.0, dims=16, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_positions=64
    )
    expected = [1, 0.2443846, 0.01304226, 0.00395285, 0.00125, 0.00039528, 0.000125, 0.00003953]
    np.testing.assert_allclose(inverse_frequencies(rope), expected, rtol=1e-4)


def test_default_is_a_geometric_series() -> None:
    np.testing.assert_allclose(
        inverse_frequencies(DefaultRope(theta=10000.0, dims=8)), [1, 0.1, 0.01, 0.001], rtol=1e-6
    )


def test_dynamic_grows_its_base_with_the_length_only_beyond_the_limit() -> None:
    rope = DynamicRope(theta=10000.0, dims=16, factor=2.0, max_positions=64)

    def base(length: int) -> float:
        # Pair 1 of 8 turns by base ** (-2 / 16) a position.
        angles = rotation(rope, jnp.array([[1]]), jnp.array([[length]]))
        return float(np.arctan2(angles.sin[0, 0, 1], angles.cos[0, 0, 1])) ** -8

    np.testing.assert_allclose(
        [base(length) for length in (1, 32, 64, 128)], [10000, 10000, 10000, 35097.924], rtol=1e-4
    )


def test_frequency_period_changes_exactly_where_the_frequencies_do() -> None:
    dynamic = DynamicRope(theta=10000.0, dims=16, factor=2.0, max_positions=64)
    assert frequency_period(dynamic, 1) == frequency_period(dynamic, 64)
    assert len({frequency_period(dynamic, length) for length in range(64, 70)}) == 6
    long = LongRope(
        theta=10000.0, dims=2, short_factor=(1.0,), long_factor=(2.0,), original_max_positions=32, attention_factor=1.0
    )
    assert [frequency_period(long, length) for length in (1, 32, 33, 99)] == [0, 0, 1, 1]
    assert frequency_period(DefaultRope(theta=1e4, dims=16), 5) == frequency_period(
        DefaultRope(theta=1e4, dims=16), 5000
    )


def test_products_of_rotated_vectors_depend_on_the_distance_alone() -> None:
    rope = DefaultRope(theta=10000.0, dims=16)
    query, key = np.random.default_rng(0).standard_normal((2, 1, 1, 1, 16), np.float32)

    def at(vector: np.ndarray, position: int) -> np.ndarray:
        positions = jnp.array([[position]])
        turn: Rotation = rotation(rope, positions, positions)
        return np.asarray(rotate(jnp.asarray(vector), turn))

    products = [np.sum(at(query, start + 5) * at(key, start)) for start in (0, 3, 200)]
    np.testing.assert_allclose(products, products[0], rtol=1e-3)
