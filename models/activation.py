"""The activations that a network may use, by the names that its configuration has for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import jax
from jax import numpy as jnp

from .config import Activation

ACTIVATIONS: Mapping[Activation, Callable[[jax.Array], jax.Array]] = {
    "silu": jax.nn.silu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
    "relu_squared": lambda x: jnp.square(jax.nn.relu(x)),
}
