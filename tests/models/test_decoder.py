"""Properties of the decoder that need no reference."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from flax import nnx
from jax import numpy as jnp

from zoo.models.attention import attend
from zoo.models.cache import KeyValues, empty_cache, write
from zoo.models.context import positions_in_segments
from zoo.models.decoder import Decoder
from zoo.models.fuse import fuse
from zoo.models.parameters import merge, split

from .test_parameters import model_config


@pytest.fixture(scope="module")
def model() -> Decoder:
    return Decoder(model_config(), rngs=nnx.Rngs(0))


def test_chosen_rows_equal_those_of_all_rows(model: Decoder) -> None:
    tokens = jnp.arange(20, dtype=jnp.int32).reshape(2, 10)
    every, _ = model(tokens)
    some, _ = model(tokens, rows=jnp.array([[9], [4]]))
    np.testing.assert_allclose(some, jnp.stack([every[0, 9:], every[1, 4:5]]), atol=1e-6)


def test_later_tokens_change_nothing_before_them(model: Decoder) -> None:
    tokens = jnp.arange(20, dtype=jnp.int32)[None]
    np.testing.assert_allclose(model(tokens)[0][:, :8], model(tokens[:, :8])[0], atol=1e-5)


def test_logits_are_float32_whatever_the_parameters_are() -> None:
    narrow = Decoder(model_config(bias=True), dtype=jnp.bfloat16, rngs=nnx.Rngs(0))
    tokens = jnp.arange(6, dtype=jnp.int32)[None]
    logits, cache = narrow(tokens, None, None, empty_cache(narrow.config, 1, 8, jnp.bfloat16))
    assert logits.dtype == jnp.float32
    assert cache is not None and {leaf.dtype for leaf in jax.tree.leaves(cache)} == {jnp.dtype(jnp.bfloat16)}


def test_positions_count_within_each_segment() -> None:
    segments = jnp.array([[0, 0, 1, 1, 1, 5, 5], [3, 3, 3, 3, 0, 0, 0]])
    assert positions_in_segments(segments).tolist() == [[0, 1, 0, 1, 2, 0, 1], [0, 1, 2, 3, 0, 1, 2]]


def test_padding_and_positions_past_the_cache_are_not_written() -> None:
    cache = KeyValues(jnp.zeros((2, 1, 4, 2)), jnp.zeros((2, 1, 4, 2)))
    ones = jnp.ones((2, 3, 1, 2))
    real = jnp.array([[True, True, False], [True, True, True]])
    written = write(cache, ones, 2 * ones, jnp.array([[1, 2, 0], [3, 4, 5]]), real, None)
    assert written.keys[:, 0, :, 0].tolist() == [[0, 1, 1, 0], [0, 0, 0, 1]]
    assert written.values[:, 0, :, 0].tolist() == [[0, 2, 2, 0], [0, 0, 0, 2]]


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_one_query_by_the_fused_loop_equals_one_of_many(kv_heads: int) -> None:
    generator = np.random.default_rng(0)
    queries = jnp.asarray(generator.standard_normal((3, 5, 4, 8), np.float32))
    stored = KeyValues(*jnp.asarray(generator.standard_normal((2, 3, kv_heads, 16, 8), np.float32)))
    mask = jnp.asarray(generator.random((3, 5, 16)) < 0.5).at[:, :, 0].set(True)
    many = attend(queries, stored, mask, 0.3)
    for index in range(5):
        one = attend(queries[:, index : index + 1], stored, mask[:, index : index + 1], 0.3)
        np.testing.assert_allclose(one, many[:, index : index + 1], atol=1e-5)
        first = KeyValues(stored.keys[:1], stored.values[:1])
        alone = attend(queries[:1, index : index + 1], first, mask[:1, index : index + 1], 0.3)
        np.testing.assert_allclose(alone, many[:1, index : index + 1], atol=1e-5)


def test_gradients_reach_every_parameter(model: Decoder) -> None:
    tokens = jnp.arange(12, dtype=jnp.int32)[None]
    gradients = nnx.grad(lambda model: jnp.sum(jnp.sin(model(tokens)[0])))(model)
    for leaf in jax.tree.leaves(gradients):
        assert jnp.any(leaf != 0)


def test_a_fused_model_is_the_same_function() -> None:
    config = model_config(bias=True)
    parameters = split(Decoder(config, rngs=nnx.Rngs(0)))
    parameters = {path: array + 0.1 if "bias" in path else array for path, array in parameters.items()}
    tokens = jnp.arange(20, dtype=jnp.int32).reshape(2, 10)
    expected, _ = merge(config, parameters)(tokens)
    found, _ = merge(config, fuse(parameters), fused=True)(tokens)
    np.testing.assert_allclose(found, expected, atol=1e-5)
