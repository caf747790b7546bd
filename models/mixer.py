"""What brings the tokens of a sequence together: one file for each kind, all called alike."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import jax
from flax import nnx
from jax.typing import DTypeLike

from . import config as configs
from .attention import Attention
from .context import Context
from .gated_delta_net import GatedDeltaNet
from .latent_attention import LatentAttention
from .short_convolution import ShortConvolution


@runtime_checkable
class Mixer(Protocol):
    """Takes x, what the pass knows of its tokens, and what it remembers of earlier ones; returns its output.

    Without a cache it sees the tokens of the pass alone. With one it returns it with those of the pass added.
    """

    def __call__(self, x: jax.Array, context: Context, cache: Any) -> tuple[jax.Array, Any]: ...


def make_mixer(config: configs.Mixer, embed: int, *, fused: bool, dtype: DTypeLike, rngs: nnx.Rngs | None) -> Mixer:
    """The module that a configuration describes."""
    match config:
        case configs.Attention():
            return Attention(config, embed, fused=fused, dtype=dtype, rngs=rngs)
        case configs.LatentAttention():
            return LatentAttention(config, embed, dtype=dtype, rngs=rngs)
        case configs.ShortConvolution():
            return ShortConvolution(config, embed, dtype=dtype, rngs=rngs)
        case configs.GatedDeltaNet():
            return GatedDeltaNet(config, embed, dtype=dtype, rngs=rngs)
