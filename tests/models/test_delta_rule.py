"""Many tokens at once against one token at a time."""

from __future__ import annotations

import jax
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import numpy as jnp

from zoo.models.delta_rule import many_tokens, one_token

SEQ = 150
many = jax.jit(many_tokens)


@jax.jit
def one_after_another(
    queries: jax.Array,
    keys: jax.Array,
    values: jax.Array,
    decays: jax.Array,
    betas: jax.Array,
    memory: jax.Array,
    kept: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    def step(memory: jax.Array, now: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        queries, keys, values, decays, betas, keep = now
        output, memory = one_token(queries, keys, values, decays, betas, jnp.where(keep, memory, 0))
        return memory, output

    parts = [jnp.moveaxis(part, 1, 0) for part in (queries, keys, values, decays, betas)]
    memory, outputs = jax.lax.scan(step, memory, (*parts, kept))
    return jnp.moveaxis(outputs, 0, 1), memory


@settings(deadline=None, max_examples=40)
@given(st.sets(st.integers(1, SEQ - 1), max_size=5), st.integers(0, 2**31), st.booleans())
def test_many_tokens_in_any_segments_are_single_tokens(starts: set[int], seed: int, continues: bool) -> None:
    """Segments begin with an empty memory, but for the first where it goes on with that which is given."""
    rng = np.random.default_rng(seed)
    heads, group, key_dim, value_dim = 2, 3, 4, 5

    def random(*shape: int) -> jax.Array:
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    queries, keys = random(1, SEQ, heads, key_dim), random(1, SEQ, heads, key_dim)
    keys = keys / jnp.linalg.norm(keys, axis=-1, keepdims=True)
    values, decays = random(1, SEQ, heads, group, value_dim), -jnp.abs(random(1, SEQ, heads, group))
    betas = jnp.asarray(rng.uniform(size=(1, SEQ, heads, group)), jnp.float32)
    memory = random(1, heads, group, key_dim, value_dim)
    begins = np.isin(np.arange(SEQ), list(starts))
    segments = jnp.asarray(7 + np.cumsum(begins), jnp.int32)[None]
    kept = jnp.asarray(~begins).at[0].set(continues)
    found = many(queries, keys, values, decays, betas, memory, segments, jnp.array([7 if continues else 6], jnp.int32))
    for ours, expected in zip(
        found, one_after_another(queries, keys, values, decays, betas, memory, kept), strict=True
    ):
        np.testing.assert_allclose(ours, expected, atol=2e-5)
