"""Mixtures of experts (Shazeer et al. 2017): a router chooses a few of many MLPs for each token.

Nothing is dropped and nothing is approximate: the tokens' copies are sorted by expert, and each multiplies its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import jax
from flax import nnx
from jax import numpy as jnp
from jax.nn import initializers
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from . import config as configs
from .names import named
from .norm import Norm
from .parameter import parameter

# The most rows that one expert multiplies at a time on a CPU.
LARGEST_BLOCK = 16


class Router(nnx.Module):
    """Which experts each token goes to, and how much of each it takes. All in float32."""

    def __init__(self, config: configs.Router, embed: int, experts: int, *, dtype: DTypeLike, rngs: nnx.Rngs | None):
        self.config = config
        start = initializers.normal(1 / math.sqrt(embed))
        zeros = initializers.zeros
        self.kernel = parameter({"embed": embed, "experts": experts}, start, dtype, rngs)
        self.bias = parameter({"experts": experts}, zeros, dtype, rngs) if config.bias else None
        self.selection_bias = parameter({"experts": experts}, zeros, dtype, rngs) if config.selection_bias else None
        self.norm = None if config.norm is None else Norm(config.norm, {"embed": embed}, dtype=dtype, rngs=rngs)
        ones = initializers.ones
        self.expert_scale = parameter({"experts": experts}, ones, dtype, rngs) if config.learned_scale else None

    def __call__(self, x: Float[Array, "tokens embed"]) -> tuple[Float[Array, "tokens k"], Int[Array, "tokens k"]]:
        config = self.config
        if self.norm is not None:
            x = self.norm(x) * jnp.asarray(config.multiplier, x.dtype)
        logits = jnp.dot(x, self.kernel[...], preferred_element_type=jnp.float32)
        if self.bias is not None:
            logits = logits + self.bias[...].astype(jnp.float32)
        logits = named(logits, "router_logits")
        if config.score == "softmax_of_chosen":
            chosen, experts = jax.lax.top_k(logits, config.top_k)
            return jax.nn.softmax(chosen, axis=-1) * config.scale, experts
        scores = jax.nn.softmax(logits, axis=-1) if config.score == "softmax" else jax.nn.sigmoid(logits)
        # Scores grow with the logits, which tell apart what is equal once a score is rounded to 1.
        merit = logits if config.groups is None else scores
        if self.selection_bias is not None:
            merit = scores + self.selection_bias[...].astype(jnp.float32)
        if config.groups is not None:
            merit = _within_groups(merit, config.groups)
        _, experts = jax.lax.top_k(merit, config.top_k)
        weights = jnp.take_along_axis(scores, experts, axis=-1)
        if config.normalise:
            weights = weights / jnp.sum(weights, axis=-1, keepdims=True)
        if self.expert_scale is not None:
            weights = weights * self.expert_scale[...].astype(jnp.float32)[experts]
        return weights * config.scale, experts


def _within_groups(
    merit: Float[Array, "tokens experts"], groups: configs.ExpertGroups
) -> Float[Array, "tokens experts"]:
    """The merit of experts in the best groups; that of the others is below any."""
    by_group = merit.reshape(merit.shape[0], groups.count, -1)
    best, _ = jax.lax.top_k(by_group, groups.judged_by)
    _, kept = jax.lax.top_k(jnp.sum(best, axis=-1), groups.kept)
    allowed = jnp.any(kept[:, :, None] == jnp.arange(groups.count), axis=1)
    return jnp.where(allowed[:, :, None], by_group, -jnp.inf).reshape(merit.shape)


class ExpertProjection(nnx.Module):
    """One matrix, and maybe one bias, for each expert."""

    def __init__(
        self,
        experts: int,
        inputs: Mapping[str, int],
        outputs: Mapping[str, int],
        *,
        bias: bool,
        dtype: DTypeLike,
        rngs: nnx.Rngs | None,
    ):
        start = initializers.normal(1 / math.sqrt(math.prod(inputs.values())))
        self.kernel = parameter({"experts": experts, **inputs, **outputs}, start, dtype, rngs)
        self.bias = parameter({"experts": experts, **outputs}, initializers.zeros, dtype, rngs) if bias else None

    def __call__(
        self, rows: Float[Array, "rows inner"], owners: Int[Array, " rows"], sizes: Int[Array, " experts"]
    ) -> Float[Array, "rows outer"]:
        """Each row, which belongs to the expert that `owners` says, by that expert's matrix; `sizes` counts them."""
        y = grouped_dot(rows, self.kernel[...], sizes)
        return y if self.bias is None else y + self.bias[...][owners]


class Experts(nnx.Module):
    """The experts' gates, ups and downs."""

    def __init__(self, config: configs.MixtureOfExperts, embed: int, *, dtype: DTypeLike, rngs: nnx.Rngs | None):
        wide, narrow, count, bias = {"ffn": config.ffn}, {"embed": embed}, config.experts, config.bias
        self.gate = ExpertProjection(count, narrow, wide, bias=bias, dtype=dtype, rngs=rngs)
        self.up = ExpertProjection(count, narrow, wide, bias=bias, dtype=dtype, rngs=rngs)
        self.down = ExpertProjection(count, wide, narrow, bias=bias, dtype=dtype, rngs=rngs)


@jax.custom_vjp
def grouped_dot(
    rows: Float[Array, "rows inner"], kernel: Float[Array, "experts inner outer"], sizes: Int[Array, " experts"]
) -> Float[Array, "rows outer"]:
    """The product of the first `sizes[0]` rows with the first matrix, of the next ones with the second, and so on."""
    return jax.lax.platform_dependent(rows, kernel, sizes, cpu=_blocks, default=jax.lax.ragged_dot)


def _forward(rows: jax.Array, kernel: jax.Array, sizes: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    return grouped_dot(rows, kernel, sizes), (rows, kernel, sizes)


def _backward(saved: tuple[jax.Array, ...], gradient: jax.Array) -> tuple[jax.Array, jax.Array, None]:
    rows, kernel, sizes = saved
    _, pull = jax.vjp(partial(jax.lax.ragged_dot, group_sizes=sizes), rows, kernel)
    return (*pull(gradient), None)


grouped_dot.defvjp(_forward, _backward)


def _blocks(rows: jax.Array, kernel: jax.Array, sizes: jax.Array) -> jax.Array:
    """A few rows of one expert at a time, for the experts that have any.

    XLA on CPU makes of a ragged product one with every expert for every row (measured: 18 times slower for 64 tokens
    and 4 of 32 experts, 50 times for one token).
    """
    count, experts = rows.shape[0], kernel.shape[0]
    block = min(LARGEST_BLOCK, 1 << max(count // experts, 1).bit_length() - 1)
    blocks = (sizes + block - 1) // block
    last_block, last_row = jnp.cumsum(blocks), jnp.cumsum(sizes)
    padded = jnp.pad(rows, ((0, block), (0, 0)))

    def step(index: jax.Array, result: jax.Array) -> jax.Array:
        expert = jnp.searchsorted(last_block, index, side="right")
        start = last_row[expert] - sizes[expert] + block * (index - last_block[expert] + blocks[expert])
        matrix = jax.lax.dynamic_index_in_dim(kernel, expert, keepdims=False)
        product = jax.lax.dynamic_slice_in_dim(padded, start, block) @ matrix
        own = (start + jnp.arange(block) < last_row[expert])[:, None]
        before = jax.lax.dynamic_slice_in_dim(result, start, block)
        return jax.lax.dynamic_update_slice_in_dim(result, jnp.where(own, product, before), start, 0)

    result = jnp.zeros((count + block, kernel.shape[-1]), rows.dtype)
    return jax.lax.fori_loop(0, last_block[-1], step, result)[:count]
