"""The gated delta rule (Yang et al. 2024, Gated Delta Networks), by which a linear attention writes to its memory.

For one head a memory S, a matrix [key_dim, value_dim], takes in a token by

    S = exp(decay) * S;    S = S + k (beta * (v - k S));    output = q S

Many tokens are taken in at once, a chunk at a time (Yang et al. 2024, Parallelizing Linear Transformers with the Delta
Rule): what a chunk's tokens write depends on what those before them in it wrote, which is a triangular system of
equations; the memory itself is read and written once a chunk. All in float32.
"""

from __future__ import annotations

import jax
from jax import numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Int

Memory = Float[Array, "batch kv_heads group key_dim value_dim"]
LARGEST_CHUNK = 64


def one_token(
    queries: Float[Array, "batch kv_heads key_dim"],
    keys: Float[Array, "batch kv_heads key_dim"],
    values: Float[Array, "batch kv_heads group value_dim"],
    decays: Float[Array, "batch kv_heads group"],
    betas: Float[Array, "batch kv_heads group"],
    memory: Memory,
) -> tuple[Float[Array, "batch kv_heads group value_dim"], Memory]:
    """A single token's output, and the memory with it taken in."""
    memory = memory * jnp.exp(decays)[..., None, None]
    known = jnp.einsum("bkd,bkgdv->bkgv", keys, memory)
    written = betas[..., None] * (values - known)
    memory = memory + keys[:, :, None, :, None] * written[..., None, :]
    return jnp.einsum("bkd,bkgdv->bkgv", queries, memory), memory


def many_tokens(
    queries: Float[Array, "batch seq kv_heads key_dim"],
    keys: Float[Array, "batch seq kv_heads key_dim"],
    values: Float[Array, "batch seq kv_heads group value_dim"],
    decays: Float[Array, "batch seq kv_heads group"],
    betas: Float[Array, "batch seq kv_heads group"],
    memory: Memory,
    segments: Int[Array, "batch seq"],
    segment: Int[Array, " batch"],
) -> tuple[Float[Array, "batch seq kv_heads group value_dim"], Memory]:
    """The tokens' outputs, and the memory of the last one's segment.

    Args:
        segments: neighbours of equal numbers share a memory; to others it is empty at first.
        segment: the number of those tokens that `memory` is of.
    """
    seq = keys.shape[1]
    chunk = min(LARGEST_CHUNK, 1 << (seq - 1).bit_length())

    def split(array: jax.Array, mode: str = "constant") -> jax.Array:
        """Chunks first, to be gone through. Tokens that fill the last one neither forget nor write."""
        padded = jnp.pad(array, [(0, 0), (0, -seq % chunk), *[(0, 0)] * (array.ndim - 2)], mode=mode)
        return jnp.moveaxis(padded.reshape(array.shape[0], -1, chunk, *array.shape[2:]), 1, 0)

    def step(
        carried: tuple[Memory, jax.Array], part: tuple[jax.Array, ...]
    ) -> tuple[tuple[Memory, jax.Array], jax.Array]:
        queries, keys, values, decays, betas, segments = part
        output, memory = _one_chunk(queries, keys, values, decays, betas, segments, *carried)
        return (memory, segments[:, -1]), output

    parts = (*map(split, (queries, keys, values, decays, betas)), split(segments, "edge"))
    (memory, _), outputs = jax.lax.scan(step, (memory, segment), parts)
    return jnp.moveaxis(outputs, 0, 1).reshape(values.shape[0], -1, *values.shape[2:])[:, :seq], memory


def _one_chunk(
    queries: Float[Array, "batch chunk kv_heads key_dim"],
    keys: Float[Array, "batch chunk kv_heads key_dim"],
    values: Float[Array, "batch chunk kv_heads group value_dim"],
    decays: Float[Array, "batch chunk kv_heads group"],
    betas: Float[Array, "batch chunk kv_heads group"],
    segments: Int[Array, "batch chunk"],
    memory: Memory,
    segment: Int[Array, " batch"],
) -> tuple[Float[Array, "batch chunk kv_heads group value_dim"], Memory]:
    chunk = keys.shape[1]
    total = jnp.moveaxis(jnp.cumsum(decays, axis=1), 1, -1)  # [batch, kv_heads, group, chunk]
    same = (segments[:, :, None] == segments[:, None, :]) & jnp.tri(chunk, dtype=bool)
    # How much of what token j wrote is left at token i, and of the memory that there was before the chunk.
    between = jnp.exp(jnp.where(same[:, None, None], total[..., :, None] - total[..., None, :], -jnp.inf))
    before = jnp.where((segments == segment[:, None])[:, None, None], jnp.exp(total), 0)
    beta = jnp.moveaxis(betas, 1, -1)
    likeness = jnp.einsum("bikd,bjkd->bkij", keys, keys)[:, :, None] * between
    # What tokens write, were the memory empty, and what of it they take back for each row of the memory.
    right = jnp.concatenate(
        [
            jnp.einsum("bkgi,bikgv->bkgiv", beta, values),
            jnp.einsum("bkgi,bikd->bkgid", beta * before, keys),
        ],
        axis=-1,
    )
    solved = solve_triangular(beta[..., None] * likeness, right, lower=True, unit_diagonal=True)
    fresh, taken = jnp.split(solved, [values.shape[-1]], axis=-1)
    written = fresh - taken @ memory
    seen = jnp.einsum("bikd,bjkd->bkij", queries, keys)[:, :, None] * between
    output = seen @ written + jnp.einsum("bkgi,bikd,bkgdv->bkgiv", before, queries, memory)
    kept = memory * before[..., -1, None, None]
    memory = kept + jnp.einsum("bkgj,bjkd,bkgjv->bkgdv", between[..., -1, :], keys, written)
    return jnp.moveaxis(output, 3, 1), memory
