"""A model of ours, gone through one block at a time: only that block's parameters are in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from zoo.models.config import ModelConfig, shared_layer
from zoo.models.context import make_context
from zoo.models.decoder import Decoder
from zoo.models.names import NAMES, collected
from zoo.models.parameters import abstract_parameters, fill

from ..sources import Source
from .side import Floats, Stage, Tokens

Values = Mapping[str, jax.Array]


@dataclass
class Way:
    """How far a batch has come: the activations, and what later blocks need of earlier ones."""

    tokens: Tokens
    x: jax.Array
    given: jax.Array | None
    memories: dict[int, Any] = field(default_factory=dict[int, Any])


class Native:
    """Our side. Parameters are loaded when their block's turn comes."""

    def __init__(self, source: Source, dtype: str, description: str):
        self.config = source.config
        self.description = description
        self._source = source
        self._dtype = jnp.dtype(dtype)
        self._paths = list(abstract_parameters(source.config))
        self._shared = {shared_layer(layer.attn) for layer in self.config.layers}
        self._head: dict[str, jax.Array] | None = None

    @property
    def vocab(self) -> int:
        return self.config.vocab

    @property
    def blocks(self) -> int:
        return len(self.config.layers)

    @property
    def embed(self) -> int:
        return self.config.embed

    def begin(self, tokens: Tokens) -> Way:
        """Embeds a batch."""
        params = self._load("embed.", "positions.", "layer_inputs.")
        x, given = _embed(self.config, params, jnp.asarray(tokens.ids), jnp.asarray(tokens.positions))
        return Way(tokens, x, given)

    def block(self, way: Way, index: int, *, params: Values | None = None, values: bool = False) -> dict[str, Floats]:
        """Takes a batch through one block, and returns the values inside it where they are asked for.

        Args:
            params: the block's parameters, where they are loaded already.
        """
        config = self.config.model_copy(update={"layers": (self.config.layers[index],)})
        source = shared_layer(self.config.layers[index].attn)
        held = None if source is None else way.memories[source]
        given = None if way.given is None else way.given[:, :, index]
        positions, segment_ids = jnp.asarray(way.tokens.positions), jnp.asarray(way.tokens.segment_ids)
        params = self.block_parameters(index) if params is None else params
        way.x, memory, inside = _block(config, values, params, way.x, positions, segment_ids, held, given)
        if index in self._shared:
            way.memories[index] = memory
        # Programs return dictionaries by the alphabet.
        return {name: np.asarray(inside[name], np.float32) for name in NAMES if name in inside}

    def block_parameters(self, index: int) -> dict[str, jax.Array]:
        """A block's parameters, under the names that they have in a network of that block alone."""
        prefix = f"layers.{index}."
        return {"layers.0." + path.removeprefix(prefix): value for path, value in self._load(prefix).items()}

    def run(self, tokens: Tokens, watch: Callable[[Stage], None]) -> Floats:
        way = self.begin(tokens)
        watch(Stage(None, None, np.asarray(way.x, np.float32), {}))
        for index in range(len(self.config.layers)):
            inputs = np.asarray(way.x, np.float32)
            values = self.block(way, index, values=True)
            outputs = np.asarray(way.x, np.float32)
            watch(Stage(index, inputs, outputs, comparable(values, self.config, index, outputs.shape[:2])))
        return np.asarray(way.x, np.float32)

    def logits(self, hidden: Floats | jax.Array) -> Floats:
        if self._head is None:
            self._head = self._load("embed." if self.config.tied_head else "head.", "final_norm.")
        return np.asarray(_logits(self.config, self._head, jnp.asarray(hidden, self._dtype)))

    @property
    def dtype(self) -> Any:
        """What it computes in."""
        return self._dtype

    def named(self, path: str) -> tuple[str | None, str | None]:
        return path, None

    def parameter(self, path: str) -> Floats | None:
        if path not in self._paths:
            return None
        return np.asarray(self._source.load(None, None, [path])[path], np.float32)

    def close(self) -> None:
        self._head = None

    def _load(self, *prefixes: str) -> dict[str, jax.Array]:
        paths = [path for path in self._paths if path.startswith(prefixes)]
        return self._source.load(self._dtype, None, paths)


def comparable(
    values: Mapping[str, np.ndarray], config: ModelConfig, index: int, batch: tuple[int, ...]
) -> dict[str, Floats]:
    """Named values as [rows, seq, features], in the form that the other side's have.

    Queries are multiplied by the scale of scores, wherever an implementation does that; of a router's choice there is
    one weight for each expert, 0 for those not chosen.
    """
    result: dict[str, np.ndarray] = {}
    for name, value in values.items():
        if name == "queries":
            result[name] = value * np.float32(getattr(config.layers[index].attn, "scale", 1.0))
        elif name == "router_experts":
            result["router"] = chosen_weights(values["router_weights"], value, values["router_logits"].shape[-1])
        elif name != "router_weights":
            result[name] = value
    size = math.prod(batch)
    return {name: value.reshape(*batch, -1) for name, value in result.items() if value.size % size == 0}


def chosen_weights(weights: np.ndarray, chosen: np.ndarray, experts: int) -> Floats:
    """The weight of every expert for each token: [tokens, experts]."""
    dense = np.zeros((*weights.shape[:-1], experts), np.float32)
    np.put_along_axis(dense, chosen.astype(np.int64), weights, axis=-1)
    return dense


@partial(jax.jit, static_argnums=0)
def _embed(
    config: ModelConfig, params: Values, ids: jax.Array, positions: jax.Array
) -> tuple[jax.Array, jax.Array | None]:
    return fill(Decoder(config), params, partly=True).embedded(ids, positions)


@partial(jax.jit, static_argnums=0)
def _logits(config: ModelConfig, params: Values, hidden: jax.Array) -> jax.Array:
    with jax.default_matmul_precision("highest"):
        return fill(Decoder(config), params, partly=True).logits(hidden)


@partial(jax.jit, static_argnums=(0, 1))
def _block(
    config: ModelConfig,
    values: bool,
    params: Values,
    x: jax.Array,
    positions: jax.Array,
    segment_ids: jax.Array,
    held: Any,
    given: jax.Array | None,
) -> tuple[jax.Array, Any, dict[str, jax.Array]]:
    """The one block of `config`, compiled once for all that are alike."""

    decoder = fill(Decoder(config), params, partly=True)
    context = make_context(config, positions, segment_ids, None, None)
    with jax.default_matmul_precision("highest"), collected() as inside:
        y, memory = decoder.layers[0](x, context, held, given)
    return y, memory, inside if values else {}
