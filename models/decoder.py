"""The decoder: embedding, blocks, final norm, head.

Training, packed training, prefill, chunked prefill and decoding are all this one function of
`(tokens, positions, segment_ids, cache)`; it keeps no state of its own.
"""

from __future__ import annotations

from flax import nnx
from jax import numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from . import config as configs
from .cache import Cache, LayerCache
from .config import shared_layer
from .context import Context, make_context, positions_in_segments
from .embedding import Embedding, LayerInputs, PositionTable
from .layer import Layer
from .norm import Norm
from .projection import Projection


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
        inputs = config.layer_inputs
        self.layer_inputs = (
            None if inputs is None else LayerInputs(inputs, config.embed, len(config.layers), dtype=dtype, rngs=rngs)
        )
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
        x, given = self.embedded(tokens, positions)
        x, updated = self._through_layers(x, given, context, cache)
        if rows is not None:
            x = jnp.take_along_axis(x, rows[:, :, None], axis=1)
        return self.logits(x), None if cache is None else updated

    def embedded(
        self, tokens: Int[Array, "batch seq"], positions: Int[Array, "batch seq"]
    ) -> tuple[Float[Array, "batch seq embed"], Float[Array, "batch seq layers layer_input"] | None]:
        """What the first layer is given, and what each layer is given beside the activations."""
        x = self.embed(tokens)
        if self.config.embedding_multiplier != 1:
            # Rounded to the element type first, as the models that have one do.
            x = x * jnp.asarray(self.config.embedding_multiplier, x.dtype)
        if self.positions is not None:
            x = x + self.positions(positions)
        return x, None if self.layer_inputs is None else self.layer_inputs(tokens, x)

    def _through_layers(
        self,
        x: Float[Array, "batch seq embed"],
        given: Float[Array, "batch seq layers layer_input"] | None,
        context: Context,
        cache: Cache | None,
    ) -> tuple[Float[Array, "batch seq embed"], Cache]:
        """The last layer's output, and what each layer remembers."""
        memories: list[LayerCache | None] = []
        for index, layer in enumerate(self.layers):
            own, source = None if cache is None else cache[index], shared_layer(layer.config.attn)
            held = own if source is None else memories[source]
            x, memory = layer(x, context, held, None if given is None else given[:, :, index])
            memories.append(memory)
        own = (shared_layer(layer.config.attn) is None for layer in self.layers)
        return x, tuple(memory if mine else None for memory, mine in zip(memories, own, strict=True))

    def logits(self, x: Float[Array, "batch rows embed"]) -> Float[Array, "batch rows vocab"]:
        """The logits of the last layer's output."""
        x = self.final_norm(x)
        if self.head is None:
            logits = self.embed.logits(x)
        else:
            logits = jnp.einsum("bre,ev->brv", x, self.head.kernel[...], preferred_element_type=jnp.float32)
        if self.config.logit_multiplier != 1:
            logits = logits * self.config.logit_multiplier
        softcap = self.config.logit_softcap
        return logits if softcap is None else softcap * jnp.tanh(logits / softcap)
