"""Many tokens at once against one token at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import numpy as jnp

from zoo.models.delta_rule import many_tokens, one_token


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(1, 70), min_size=1, max_size=4), st.integers(0, 2**31), st.booleans())
def test_many_tokens_in_any_segments_are_single_tokens(lengths: list[int], seed: int, continues: bool) -> None:
    """Segments begin with an empty memory, but for the first where it goes on with that which is given."""
    rng = np.random.default_rng(seed)
    seq, heads, group, key_dim, value_dim = sum(lengths), 2, 3, 4, 5

    def random(*shape: int) -> jnp.ndarray:
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    queries, keys = random(1, seq, heads, key_dim), random(1, seq, heads, key_dim)
    keys = keys / jnp.linalg.norm(keys, axis=-1, keepdims=True)
    values, decays = random(1, seq, heads, group, value_dim), -jnp.abs(random(1, seq, heads, group))
    betas = jnp.asarray(rng.uniform(size=(1, seq, heads, group)), jnp.float32)
    given_memory = random(1, heads, group, key_dim, value_dim)
    segments = jnp.asarray(np.repeat(range(7, 7 + len(lengths)), lengths))[None]
    segment = jnp.array([7 if continues else 6])
    found, last = many_tokens(queries, keys, values, decays, betas, given_memory, segments, segment)
    memory = given_memory
    for index in range(seq):
        if segments[0, index] != segment[0]:
            memory = jnp.zeros_like(memory)
        segment = segments[:, index]
        now = queries[:, index], keys[:, index], values[:, index], decays[:, index], betas[:, index]
        expected, memory = one_token(*now, memory)
        np.testing.assert_allclose(found[:, index], expected, atol=2e-5)
    np.testing.assert_allclose(last, memory, atol=2e-5)
