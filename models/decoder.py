"""The decoder: embedding, pre-norm blocks, final norm, head.

Training, packed training, prefill, chunked prefill and decoding are all this one function of
`(tokens, positions, segment_ids, cache)`; it keeps no state of its own.
"""

from __future__ import annotations

import jax
from flax import nnx
from jax import numpy as jnp
from jax.nn import initializers
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from . import config as configs
from .attention import Attention
from .cache import Cache, LayerCache
from .mlp import Mlp
from .norm import Norm
from .parameter import parameter
from .projection import Projection
from .rope import Rotation, depends_on_length, rotation


class Embedding(nnx.Module):
    """One vector a token; read backwards it is a tied head."""

    def __init__(self, vocab: int, embed: int, *, dtype: DTypeLike, rngs: nnx.Rngs | None):
        self.embedding = parameter({"vocab": vocab, "embed": embed}, initializers.normal(0.02), dtype, rngs)

    def __call__(self, tokens: Int[Array, "batch seq"]) -> Float[Array, "batch seq embed"]:
        return self.embedding[...][tokens]

    def logits(self, x: Float[Array, "batch rows embed"]) -> Float[Array, "batch rows vocab"]:
        return jnp.einsum("bre,ve->brv", x, self.embedding[...], preferred_element_type=jnp.float32)


class Layer(nnx.Module):
    """x + attn(attn_norm(x)), then x + mlp(mlp_norm(x))."""

    def __init__(self, config: configs.Layer, embed: int, *, fused: bool, dtype: DTypeLike, rngs: nnx.Rngs | None):
        self.attn_norm = Norm(config.attn_norm, embed, dtype=dtype, rngs=rngs)
        self.attn = Attention(config.attn, embed, fused=fused, dtype=dtype, rngs=rngs)
        self.mlp_norm = Norm(config.mlp_norm, embed, dtype=dtype, rngs=rngs)
        self.mlp = Mlp(config.mlp, embed, dtype=dtype, rngs=rngs)

    def __call__(
        self,
        x: Float[Array, "batch seq embed"],
        rotation: Rotation,
        mask: Bool[Array, "batch seq keys"],
        positions: Int[Array, "batch seq"],
        segment_ids: Int[Array, "batch seq"],
        cache: LayerCache | None,
    ) -> tuple[Float[Array, "batch seq embed"], LayerCache | None]:
        attended, cache = self.attn(self.attn_norm(x), rotation, mask, positions, segment_ids, cache)
        x = x + attended
        return x + self.mlp(self.mlp_norm(x)), cache


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
        self.layers = nnx.List(
            [Layer(layer, config.embed, fused=fused, dtype=dtype, rngs=rngs) for layer in config.layers]
        )
        self.final_norm = Norm(config.final_norm, config.embed, dtype=dtype, rngs=rngs)
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
                With a cache a row holds one sequence, so any number but 0 means that sequence.
            cache: keys and values of earlier tokens, to attend to as well.
            rows: the indices along `seq` to compute logits for; all by default.
            lengths: the length of each row's whole sequence, where this pass does not reach its end: some rotary
                embeddings depend on it. By default the largest position of a token's segment, plus one.
        """
        if segment_ids is None:
            segment_ids = jnp.ones_like(tokens)
        if positions is None:
            positions = positions_in_segments(segment_ids)
        rotations = self._rotations(positions, segment_ids, lengths)
        mask = causal_mask(positions, segment_ids, cache)
        x = self.embed(tokens)
        caches: list[LayerCache] = []
        for index, (layer, config) in enumerate(zip(self.layers, self.config.layers, strict=True)):
            turn = rotations[config.attn.rope, config.attn.head_dim]
            x, updated = layer(x, turn, mask, positions, segment_ids, None if cache is None else cache[index])
            if updated is not None:
                caches.append(updated)
        if rows is not None:
            x = jnp.take_along_axis(x, rows[:, :, None], axis=1)
        return self._logits(self.final_norm(x)), None if cache is None else tuple(caches)

    def _rotations(
        self, positions: jax.Array, segment_ids: jax.Array, lengths: jax.Array | None
    ) -> dict[tuple[configs.Rope, int], Rotation]:
        """One rotation for each kind of rotary embedding among the layers."""
        kinds = {(layer.attn.rope, layer.attn.head_dim) for layer in self.config.layers}
        if lengths is not None:
            spread = jnp.broadcast_to(lengths[:, None], positions.shape)
        elif any(depends_on_length(rope) for rope, _ in kinds):
            spread = segment_lengths(positions, segment_ids)
        else:
            spread = positions
        return {(rope, head_dim): rotation(rope, head_dim, positions, spread) for rope, head_dim in kinds}

    def _logits(self, x: Float[Array, "batch rows embed"]) -> Float[Array, "batch rows vocab"]:
        if self.head is None:
            return self.embed.logits(x)
        return jnp.einsum("bre,ev->brv", x, self.head.kernel[...], preferred_element_type=jnp.float32)


def positions_in_segments(segment_ids: Int[Array, "batch seq"]) -> Int[Array, "batch seq"]:
    """The index of each token in its run of equal segment ids."""
    index = jnp.broadcast_to(jnp.arange(segment_ids.shape[1], dtype=jnp.int32), segment_ids.shape)
    starts = jnp.diff(segment_ids, axis=1, prepend=segment_ids[:, :1]) != 0
    return index - jax.lax.cummax(jnp.where(starts, index, 0), axis=1)


def segment_lengths(
    positions: Int[Array, "batch seq"], segment_ids: Int[Array, "batch seq"]
) -> Int[Array, "batch seq"]:
    """For each token one more than the largest position in its segment."""
    same = segment_ids[:, :, None] == segment_ids[:, None, :]
    return jnp.max(jnp.where(same, positions[:, None, :], 0), axis=-1) + 1


def causal_mask(
    positions: Int[Array, "batch seq"], segment_ids: Int[Array, "batch seq"], cache: Cache | None
) -> Bool[Array, "batch seq keys"]:
    """Which keys each token attends to: those of its own segment that are not ahead of it.

    With a cache the keys are its slots, and slot p holds position p. Every token, padding too, has at least one key,
    so no softmax is over nothing.
    """
    if cache is not None:
        return jnp.arange(cache[0].keys.shape[2]) <= positions[:, :, None]
    same = segment_ids[:, :, None] == segment_ids[:, None, :]
    return same & (positions[:, None, :] <= positions[:, :, None])
