"""Multi-head latent attention (DeepSeek-V2, 2024)."""

from __future__ import annotations

import jax
from flax import nnx
from jax import numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from . import config as configs
from .attention import attend
from .cache import KeyValues, Latents, write_latents
from .context import Context
from .names import named
from .norm import Norm
from .projection import Projection
from .rope import rotate


class LatentAttention(nnx.Module):
    """Causal self-attention whose keys and values come from one small vector a token, which is all that is kept.

    Over the tokens of a pass the keys and values of all heads are made, as for other attention. Over a cache they never
    are: the matrices that would make them are multiplied with queries and with what is attended instead. The two are
    the same products in another order; the first is the fewer for many queries, the second for few.
    """

    def __init__(self, config: configs.LatentAttention, embed: int, *, dtype: DTypeLike, rngs: nnx.Rngs | None):
        self.config = config

        def projection(inputs: dict[str, int], outputs: dict[str, int], *, bias: bool = False) -> Projection:
            return Projection(inputs, outputs, bias=bias, dtype=dtype, rngs=rngs)

        outer, latent = {"embed": embed}, {"latent": config.latent}
        queries = {"heads": config.heads, "head_dim": config.head_dim + config.rope.dims}
        values = {"heads": config.heads, "head_dim": config.value_dim}
        if config.query_latent is None:
            self.q = projection(outer, queries)
        else:
            narrow = {"query_latent": config.query_latent}
            self.q_down = projection(outer, narrow, bias=config.bias)
            self.q_norm = Norm(config.norm, narrow, dtype=dtype, rngs=rngs)
            self.q_up = projection(narrow, queries)
        self.kv_down = projection(outer, latent, bias=config.bias)
        self.kv_norm = Norm(config.norm, latent, dtype=dtype, rngs=rngs)
        self.k_shared = projection(outer, {"head_dim": config.rope.dims}, bias=config.bias)
        self.k_up = projection(latent, {"heads": config.heads, "head_dim": config.head_dim})
        self.v_up = projection(latent, values)
        self.o = projection(values, outer, bias=config.bias)

    def __call__(
        self, x: Float[Array, "batch seq embed"], context: Context, cache: Latents | None
    ) -> tuple[Float[Array, "batch seq embed"], Latents | None]:
        rope = self.config.rope
        turn = context.rotations[rope]
        if self.config.query_latent is None:
            queries = self.q(x)
        else:
            queries = self.q_up(named(self.q_norm(self.q_down(x)), "q_latent"))
        queries = named(queries, "q")
        own, turned = jnp.split(queries, [self.config.head_dim], axis=-1)
        turned = rotate(turned, turn, interleaved=rope.interleaved)
        latent = named(self.kv_norm(self.kv_down(x)), "kv_latent")
        shared = rotate(self.k_shared(x)[:, :, None], turn, interleaved=rope.interleaved)
        mask = context.masks[self.config.sight]
        if cache is None:
            queries = named(jnp.concatenate([own, turned], axis=-1), "queries")
            attended = attend(queries, self._expand(latent, shared), mask, self.config.scale)
            return self.o(named(attended, "attended")), None
        entries = jnp.concatenate([latent, shared[:, :, 0]], axis=-1)
        cache = write_latents(cache, entries, context.positions, context.segment_ids != 0)
        # One key head for all queries; its values are the part of its keys that does not turn.
        stored = KeyValues(cache.entries[:, None], cache.entries[:, None, :, : self.config.latent])
        through = jnp.einsum("bshd,lhd->bshl", own, self.k_up.kernel[...])
        seen = attend(jnp.concatenate([through, turned], axis=-1), stored, mask, self.config.scale)
        return self.o(jnp.einsum("bshl,lhd->bshd", seen, self.v_up.kernel[...])), cache

    def _expand(self, latent: jax.Array, shared: jax.Array) -> KeyValues:
        """The keys and values of all heads."""
        keys = self.k_up(latent)
        shared = jnp.broadcast_to(shared, (*keys.shape[:-1], shared.shape[-1]))
        keys = named(jnp.concatenate([keys, shared], axis=-1), "keys")
        values = named(self.v_up(latent), "values")
        return KeyValues(jnp.swapaxes(keys, 1, 2), jnp.swapaxes(values, 1, 2))
