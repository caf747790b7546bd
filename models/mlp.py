"""Multilayer perceptrons, plain and gated (Shazeer 2020), and mixtures of them."""

from __future__ import annotations

import jax
from flax import nnx
from jax import numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from . import config as configs
from .activation import ACTIVATIONS
from .moe import Experts, Router
from .names import named
from .projection import Projection


class GatedMlp(nnx.Module):
    """down(activation(gate(x)) * up(x))."""

    def __init__(self, config: configs.GatedMlp, embed: int, *, dtype: DTypeLike, rngs: nnx.Rngs | None):
        self.activation: configs.Activation = config.activation
        wide, narrow = {"ffn": config.ffn}, {"embed": embed}
        self.gate = Projection(narrow, wide, bias=config.bias, dtype=dtype, rngs=rngs)
        self.up = Projection(narrow, wide, bias=config.bias, dtype=dtype, rngs=rngs)
        self.down = Projection(wide, narrow, bias=config.bias, dtype=dtype, rngs=rngs)

    def __call__(self, x: Float[Array, "batch seq embed"]) -> Float[Array, "batch seq embed"]:
        gate, up = named(self.gate(x), "gate"), named(self.up(x), "up")
        return self.down(ACTIVATIONS[self.activation](gate) * up)


class PlainMlp(nnx.Module):
    """down(activation(up(x)))."""

    def __init__(self, config: configs.PlainMlp, embed: int, *, dtype: DTypeLike, rngs: nnx.Rngs | None):
        self.activation: configs.Activation = config.activation
        wide, narrow = {"ffn": config.ffn}, {"embed": embed}
        self.up = Projection(narrow, wide, bias=config.bias, dtype=dtype, rngs=rngs)
        self.down = Projection(wide, narrow, bias=config.bias, dtype=dtype, rngs=rngs)

    def __call__(self, x: Float[Array, "batch seq embed"]) -> Float[Array, "batch seq embed"]:
        return self.down(ACTIVATIONS[self.activation](named(self.up(x), "up")))


class MixtureOfExperts(nnx.Module):
    """The chosen experts' outputs, each times its weight, and maybe an MLP that all tokens share; see `moe.py`."""

    def __init__(self, config: configs.MixtureOfExperts, embed: int, *, dtype: DTypeLike, rngs: nnx.Rngs | None):
        self.config = config
        self.router = Router(config.router, embed, config.experts, dtype=dtype, rngs=rngs)
        self.experts = Experts(config, embed, dtype=dtype, rngs=rngs)
        self.shared = None if config.shared is None else GatedMlp(config.shared, embed, dtype=dtype, rngs=rngs)
        self.shared_gate = (
            Projection({"embed": embed}, {}, bias=False, dtype=dtype, rngs=rngs) if config.shared_gate else None
        )

    def __call__(
        self, x: Float[Array, "batch seq embed"], routed: Float[Array, "batch seq embed"] | None = None
    ) -> Float[Array, "batch seq embed"]:
        """Of `x`; the router sees `routed`, where that is something else."""
        tokens = x.reshape(-1, x.shape[-1])
        weights, chosen = self.router(tokens if routed is None else routed.reshape(tokens.shape))
        weights, chosen = named(weights, "router_weights"), named(chosen, "router_experts")
        order = jnp.argsort(chosen.reshape(-1))
        owners = chosen.reshape(-1)[order]
        sizes = jnp.bincount(owners, length=self.config.experts)
        rows = tokens[order // chosen.shape[1]]
        if self.config.scaled_input:
            rows = (rows * weights.reshape(-1)[order, None]).astype(rows.dtype)
            weights = jnp.ones_like(weights)
        experts = self.experts
        inner = self._unit(experts.gate(rows, owners, sizes), experts.up(rows, owners, sizes))
        rows = experts.down(inner, owners, sizes)
        parts = jnp.zeros_like(rows).at[order].set(rows).reshape(*chosen.shape, -1)
        result = jnp.einsum("tk,tke->te", weights, parts.astype(jnp.float32)).astype(x.dtype)
        return named(result.reshape(x.shape), "experts") + self._shared(x)

    def _unit(self, gate: jax.Array, up: jax.Array) -> jax.Array:
        unit = self.config.activation
        if not isinstance(unit, configs.ClampedUnit):
            return ACTIVATIONS[unit](gate) * up
        gate, up = jnp.minimum(gate, unit.limit), jnp.clip(up, -unit.limit, unit.limit)
        return gate * jax.nn.sigmoid(unit.alpha * gate) * (up + 1)

    def _shared(self, x: jax.Array) -> jax.Array | float:
        if self.shared is None:
            return 0.0
        shared = self.shared(x)
        return shared if self.shared_gate is None else shared * jax.nn.sigmoid(self.shared_gate(x))[..., None]


def make_mlp(
    config: configs.Mlp, embed: int, *, dtype: DTypeLike, rngs: nnx.Rngs | None
) -> GatedMlp | PlainMlp | MixtureOfExperts:
    """The module that a configuration describes."""
    match config:
        case configs.GatedMlp():
            return GatedMlp(config, embed, dtype=dtype, rngs=rngs)
        case configs.PlainMlp():
            return PlainMlp(config, embed, dtype=dtype, rngs=rngs)
        case configs.MixtureOfExperts():
            return MixtureOfExperts(config, embed, dtype=dtype, rngs=rngs)
