"""A parameter is declared once: shape, logical axes, element type and initialiser in one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
from flax import nnx
from jax.nn.initializers import Initializer
from jax.typing import DTypeLike

# The logical axes of parameters; the same words stand in the layout tables, in annotations and in sharding rules.
AXES = (
    "vocab",
    "embed",
    "heads",
    "kv_heads",
    "head_dim",
    "ffn",
    "positions",
    "experts",
    "latent",
    "query_latent",
    "channels",
    "taps",
    "group",
)


def parameter(
    sizes: Mapping[str, int], initializer: Initializer, dtype: DTypeLike, rngs: nnx.Rngs | None
) -> nnx.Param[Any]:
    """A parameter whose dimensions are `sizes`, in order, named by their logical axes.

    Without `rngs` it is abstract: it has a shape and an element type but no value, and costs nothing.
    """
    shape = tuple(sizes.values())
    if rngs is None:
        return nnx.Param(jax.ShapeDtypeStruct(shape, dtype), axes=tuple(sizes))
    return nnx.Param(initializer(rngs.params(), shape, dtype), axes=tuple(sizes))
