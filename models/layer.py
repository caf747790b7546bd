"""One block of the decoder; see `config.Layer`."""

from __future__ import annotations

import jax
from flax import nnx
from jax.nn import initializers
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from . import config as configs
from .activation import ACTIVATIONS
from .cache import LayerCache
from .context import Context
from .mixer import make_mixer
from .mlp import MixtureOfExperts, make_mlp
from .names import Name, named
from .norm import Norm
from .parameter import parameter
from .projection import Projection


class Layer(nnx.Module):
    """A mixer and an MLP, what is beside them and what follows them."""

    def __init__(self, config: configs.Layer, embed: int, *, fused: bool, dtype: DTypeLike, rngs: nnx.Rngs | None):
        def norm(its: configs.Norm | None) -> Norm | None:
            return None if its is None else Norm(its, {"embed": embed}, dtype=dtype, rngs=rngs)

        self.config = config
        self.attn_norm = norm(config.attn_norm)
        self.attn = make_mixer(config.attn, embed, fused=fused, dtype=dtype, rngs=rngs)
        self.attn_post_norm = norm(config.attn_post_norm)
        self.mlp_norm = norm(config.mlp_norm)
        self.mlp = make_mlp(config.mlp, embed, dtype=dtype, rngs=rngs)
        self.mlp_post_norm = norm(config.mlp_post_norm)
        self.beside = None if config.beside is None else Beside(config.beside, embed, dtype=dtype, rngs=rngs)
        self.input = None if config.input is None else LayerInput(config.input, embed, dtype=dtype, rngs=rngs)
        self.scale = parameter({}, initializers.ones, dtype, rngs) if config.learned_scale else None

    def __call__(
        self,
        x: Float[Array, "batch seq embed"],
        context: Context,
        cache: LayerCache | None,
        given: Float[Array, "batch seq layer_input"] | None,
    ) -> tuple[Float[Array, "batch seq embed"], LayerCache | None]:
        """The block's output, and what its mixer remembers.

        Args:
            cache: what the mixer remembers of earlier tokens, or where it shares what another does, that.
            given: the block's own input for each token, where it has one.
        """
        normed = _apply(self.attn_norm, x, "attn_norm")
        attended, cache = self.attn(normed, context, cache)
        attended = self._residual(_apply(self.attn_post_norm, named(attended, "attn"), "attn_post_norm"))
        if self.config.parallel:
            seen = normed if self.mlp_norm is None else _apply(self.mlp_norm, x, "mlp_norm")
            transformed = named(self.mlp(seen), "mlp")
            return x + attended + self._residual(_apply(self.mlp_post_norm, transformed, "mlp_post_norm")), cache
        x = x + attended
        transformed = self.mlp(_apply(self.mlp_norm, x, "mlp_norm"))
        if self.beside is not None:
            transformed = self.beside(transformed, x)
        x = x + self._residual(_apply(self.mlp_post_norm, named(transformed, "mlp"), "mlp_post_norm"))
        if self.input is not None and given is not None:
            x = self.input(x, given)
        return x if self.scale is None else x * self.scale[...], cache

    def _residual(self, branch: jax.Array) -> jax.Array:
        multiplier = self.config.residual_multiplier
        return branch if multiplier == 1 else branch * multiplier


def _apply(norm: Norm | None, x: jax.Array, name: Name) -> jax.Array:
    return x if norm is None else named(norm(x), name)


class Beside(nnx.Module):
    """Experts beside an MLP."""

    def __init__(self, config: configs.Beside, embed: int, *, dtype: DTypeLike, rngs: nnx.Rngs | None):
        sizes = {"embed": embed}
        self.mlp_post_norm = Norm(config.mlp_post_norm, sizes, dtype=dtype, rngs=rngs)
        self.norm = Norm(config.norm, sizes, dtype=dtype, rngs=rngs)
        self.mlp = MixtureOfExperts(config.experts, embed, dtype=dtype, rngs=rngs)
        self.post_norm = Norm(config.post_norm, sizes, dtype=dtype, rngs=rngs)

    def __call__(
        self, transformed: Float[Array, "batch seq embed"], x: Float[Array, "batch seq embed"]
    ) -> Float[Array, "batch seq embed"]:
        """What the MLP made of `x`, `transformed`, and what experts make of it."""
        return self.mlp_post_norm(transformed) + self.post_norm(self.mlp(self.norm(x), x))


class LayerInput(nnx.Module):
    """What an input of the layer's own adds."""

    def __init__(self, config: configs.LayerInput, embed: int, *, dtype: DTypeLike, rngs: nnx.Rngs | None):
        self.activation: configs.Activation = config.activation
        outer, inner = {"embed": embed}, {"layer_input": config.width}
        self.gate = Projection(outer, inner, bias=False, dtype=dtype, rngs=rngs)
        self.out = Projection(inner, outer, bias=False, dtype=dtype, rngs=rngs)
        self.norm = Norm(config.norm, outer, dtype=dtype, rngs=rngs)

    def __call__(
        self, x: Float[Array, "batch seq embed"], given: Float[Array, "batch seq layer_input"]
    ) -> Float[Array, "batch seq embed"]:
        return x + self.norm(self.out(ACTIVATIONS[self.activation](self.gate(x)) * given))
