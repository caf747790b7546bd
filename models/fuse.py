"""Parameters as a CPU decodes fastest: the projections of queries, keys and values side by side in one matrix.

A choice made after loading, for an engine; on disk and everywhere else there is one layout. A product with one row has
a fixed cost in XLA on CPU, which small matrices do not repay: three in one made decoding of a model 576 wide 5 to
10 % faster. Doing the same to the two halves of the MLP, which are large enough, gained nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
from jax import numpy as jnp

_Q, _K, _V, _QKV = (f".attn.{name}." for name in ("q", "k", "v", "qkv"))


def fuse(parameters: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """The parameters of `Decoder(config, fused=True)`; those that stay as they are are shared, not copied."""
    result = dict(parameters)
    for path in parameters:
        three = [path.replace(_Q, name) for name in (_Q, _K, _V)]
        # Some attention has queries alone, or takes its keys for values.
        if _Q in path and all(name in parameters for name in three):
            # Kernels [embed heads head_dim] and biases [heads head_dim] alike have the heads last but one.
            result[path.replace(_Q, _QKV)] = jnp.concatenate([result.pop(name) for name in three], axis=-2)
    return result
