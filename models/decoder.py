"""The decoder: embedding, blocks, final norm, head.

Training, packed training, prefill, chunked prefill and decoding are all this one function of
`(tokens, positions, segment_ids, cache)`; it keeps no state of its own.
"""

from __future__ import annotations

import jax
from flax import nnx
from jax import numpy as jnp
from jax.nn import initializers
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from . import config as configs
from .cache import Cache, LayerCache
from .context import Context, make_context, positions_in_segments
from .mixer import make_mixer
from .mlp import make_mlp
from .norm import Norm
from .parameter import parameter
from .projection import Projection


class Embedding(nnx.Module):
    """One vector a token; read backwards it is a tied head."""

    def __init__(self, vocab: int, embed: int, *, dtype: DTypeLike, rngs: nnx.Rngs | None):
        self.embedding = parameter({"vocab": vocab, "embed": embed}, initializers.normal(0.02), dtype, rngs)

    def __call__(self, tokens: Int[Array, "batch seq"]) -> Float[Array, "batch seq embed"]:
        return self.embedding[...][tokens]

    def logits(self, x: Float[Array, "batch rows embed"]) -> Float[Array, "batch rows vocab"]:
        return jnp.einsum("bre,ve->brv", x, self.embedding[...], preferred_element_type=jnp.float32)


class PositionTable(nnx.Module):
    """One learned vector a position."""

    def __init__(self, positions: int, embed: int, *, dtype: DTypeLike, rngs: nnx.Rngs | None):
        self.embedding = parameter({"positions": positions, "embed": embed}, initializers.normal(0.02), dtype, rngs)

    def __call__(self, positions: Int[Array, "batch seq"]) -> Float[Array, "batch seq embed"]:
        return self.embedding[...][positions]


class Layer(nnx.Module):
    """One block; see `config.Layer`."""

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

    def __call__(
        self, x: Float[Array, "batch seq embed"], context: Context, cache: LayerCache | None
    ) -> tuple[Float[Array, "batch seq embed"], LayerCache | None]:
        normed = _apply(self.attn_norm, x)
        attended, cache = self.attn(normed, context, cache)
        attended = self._residual(_apply(self.attn_post_norm, attended))
        if self.config.parallel:
            seen = normed if self.mlp_norm is None else self.mlp_norm(x)
            return x + attended + self._residual(_apply(self.mlp_post_norm, self.mlp(seen))), cache
        x = x + attended
        return x + self._residual(_apply(self.mlp_post_norm, self.mlp(_apply(self.mlp_norm, x)))), cache

    def _residual(self, branch: jax.Array) -> jax.Array:
        multiplier = self.config.residual_multiplier
        return branch if multiplier == 1 else branch * multiplier


def _apply(norm: Norm | None, x: jax.Array) -> jax.Array:
    return x if norm is None else norm(x)


class Decoder(nnx.Module):
    """A decoder-only language model. Without `rngs` its parameters are abstract: shapes and types without values.

    Where `fused`, its parameters are those that `fuse.py` makes, which no file has.
    """

    def __init__(
        self,
        config: configs.ModelConfig,
        *,
        fused: bool = False,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs | None = None,
    ):
        self.config = config
        self.embed = Embedding(config.vocab, config.embed, dtype=dtype, rngs=rngs)
        table = config.learned_positions
        self.positions = None if table is None else PositionTable(table, config.embed, dtype=dtype, rngs=rngs)
        self.layers = nnx.List(
            [Layer(layer, config.embed, fused=fused, dtype=dtype, rngs=rngs) for layer in config.layers]
        )
        self.final_norm = Norm(config.final_norm, {"embed": config.embed}, dtype=dtype, rngs=rngs)
        sizes = {"embed": config.embed}, {"vocab": config.vocab}
        self.head = None if config.tied_head else Projection(*sizes, bias=False, dtype=dtype, rngs=rngs)

    def __call__(
        self,
        tokens: Int[Array, "batch seq"],
        positions: Int[Array, "batch seq"] | None = None,
        segment_ids: Int[Array, "batch seq"] | None = None,
        cache: Cache | None = None,
        *,
        rows: Int[Array, "batch rows"] | None = None,
        lengths: Int[Array, " batch"] | None = None,
    ) -> tuple[Float[Array, "batch rows vocab"], Cache | None]:
        """Logits, and the cache with the tokens of this pass added.

        Args:
            tokens: token ids.
            positions: the absolute position of each token in its sequence; by default each segment counts from 0.
            segment_ids: 0 for padding, equal numbers for tokens of one sequence; by default all are one sequence.
                With a cache a row holds one sequence, any number but 0 means that sequence, and padding comes last.
            cache: keys and values of earlier tokens, to attend to as well.
            rows: the indices along `seq` to compute logits for; all by default.
            lengths: the length of each row's whole sequence, where this pass does not reach its end: some rotary
                embeddings depend on it. By default the largest position of a token's segment, plus one.
        """
        if segment_ids is None:
            segment_ids = jnp.ones_like(tokens)
        if positions is None:
            positions = positions_in_segments(segment_ids)
        context = make_context(self.config, positions, segment_ids, cache, lengths)
        x = self.embed(tokens)
        if self.config.embedding_multiplier != 1:
            # Rounded to the element type first, as the models that have one do.
            x = x * jnp.asarray(self.config.embedding_multiplier, x.dtype)
        if self.positions is not None:
            x = x + self.positions(positions)
        caches: list[LayerCache] = []
        for index, layer in enumerate(self.layers):
            x, updated = layer(x, context, None if cache is None else cache[index])
            if updated is not None:
                caches.append(updated)
        if rows is not None:
            x = jnp.take_along_axis(x, rows[:, :, None], axis=1)
        return self._logits(self.final_norm(x)), None if cache is None else tuple(caches)

    def _logits(self, x: Float[Array, "batch rows embed"]) -> Float[Array, "batch rows vocab"]:
        if self.head is None:
            logits = self.embed.logits(x)
        else:
            logits = jnp.einsum("bre,ev->brv", x, self.head.kernel[...], preferred_element_type=jnp.float32)
        if self.config.logit_multiplier != 1:
            logits = logits * self.config.logit_multiplier
        softcap = self.config.logit_softcap
        return logits if softcap is None else softcap * jnp.tanh(logits / softcap)
