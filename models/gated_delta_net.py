"""Linear attention by the gated delta rule (Yang et al. 2024), as Qwen3-Next has it."""

from __future__ import annotations

import jax
from flax import nnx
from jax import numpy as jnp
from jax.nn import initializers
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from . import config as configs
from .activation import ACTIVATIONS
from .cache import DeltaMemory
from .context import Context
from .convolution import Convolution
from .delta_rule import many_tokens, one_token
from .names import named
from .norm import Norm
from .parameter import parameter
from .projection import Projection


class GatedDeltaNet(nnx.Module):
    """Queries, keys and values, each through a short convolution; heads with a memory of fixed size; a gated norm.

    Each key head has a group of value heads, each with a memory of its own.
    """

    def __init__(self, config: configs.GatedDeltaNet, embed: int, *, dtype: DTypeLike, rngs: nnx.Rngs | None):
        self.config = config
        outer, shared = {"embed": embed}, {"kv_heads": config.key_heads, "head_dim": config.key_dim}
        heads = {"kv_heads": config.key_heads, "group": config.group}
        values = {**heads, "head_dim": config.value_dim}

        def projection(outputs: dict[str, int]) -> Projection:
            return Projection(outer, outputs, bias=False, dtype=dtype, rngs=rngs)

        def convolution(channels: dict[str, int]) -> Convolution:
            return Convolution(config.taps, channels, bias=False, dtype=dtype, rngs=rngs)

        self.query, self.key, self.value = projection(shared), projection(shared), projection(values)
        self.query_convolution, self.key_convolution = convolution(shared), convolution(shared)
        self.value_convolution = convolution(values)
        self.output_gate, self.beta, self.decay = projection(values), projection(heads), projection(heads)
        self.decay_bias = parameter(heads, initializers.ones, dtype, rngs)
        self.decay_rate = parameter(heads, initializers.zeros, dtype, rngs)
        self.norm = Norm(config.norm, {"head_dim": config.value_dim}, dtype=dtype, rngs=rngs)
        self.out = Projection(values, outer, bias=False, dtype=dtype, rngs=rngs)

    def __call__(
        self, x: Float[Array, "batch seq embed"], context: Context, cache: DeltaMemory | None
    ) -> tuple[Float[Array, "batch seq embed"], DeltaMemory | None]:
        activation = ACTIVATIONS[self.config.activation]
        recent = (None, None, None) if cache is None else cache[:3]
        queries, recent_queries = self.query_convolution(self.query(x), context, recent[0])
        keys, recent_keys = self.key_convolution(self.key(x), context, recent[1])
        values, recent_values = self.value_convolution(self.value(x), context, recent[2])
        queries, keys, values = (activation(part).astype(jnp.float32) for part in (queries, keys, values))
        queries, keys = _unit(queries) * self.config.key_dim**-0.5, _unit(keys)
        betas = jax.nn.sigmoid(self.beta(x)).astype(jnp.float32)
        rate = jnp.exp(self.decay_rate[...].astype(jnp.float32))
        decays = -rate * jax.nn.softplus((self.decay(x) + self.decay_bias[...]).astype(jnp.float32))
        attended, memory = self._remember(queries, keys, values, decays, betas, context, cache)
        attended = named(attended, "mixed")
        gate = jax.nn.silu(self.output_gate(x).astype(jnp.float32))
        result = self.out((self.norm(attended) * gate).astype(x.dtype))
        if recent_queries is None or recent_keys is None or recent_values is None:
            return result, None
        return result, DeltaMemory(recent_queries, recent_keys, recent_values, memory)

    def _remember(
        self,
        queries: jax.Array,
        keys: jax.Array,
        values: jax.Array,
        decays: jax.Array,
        betas: jax.Array,
        context: Context,
        cache: DeltaMemory | None,
    ) -> tuple[jax.Array, jax.Array]:
        """The outputs of the pass's tokens, and what is remembered after them."""
        config, segments = self.config, context.segment_ids
        if cache is None:
            shape = (keys.shape[0], config.key_heads, config.group, config.key_dim, config.value_dim)
            empty = jnp.zeros(shape, jnp.float32)
            return many_tokens(queries, keys, values, decays, betas, empty, segments, segments[:, 0])
        # Padding neither forgets nor writes; a sequence that begins finds nothing of the one before it.
        real = segments != 0
        decays, betas = (jnp.where(real[:, :, None, None], part, 0) for part in (decays, betas))
        begins = jnp.any(real & (context.positions == 0), axis=1)
        memory = jnp.where(begins[:, None, None, None, None], 0, cache.memory)
        if keys.shape[1] > 1:
            alike = jnp.ones_like(segments)
            return many_tokens(queries, keys, values, decays, betas, memory, alike, alike[:, 0])
        output, memory = one_token(queries[:, 0], keys[:, 0], values[:, 0], decays[:, 0], betas[:, 0], memory)
        return output[:, None], memory


def _unit(x: jax.Array) -> jax.Array:
    """Vectors of length one; the epsilon is the reference's."""
    return x * jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + 1e-6)
