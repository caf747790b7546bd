"""The engine: a model, and a batch of slots in which sequences are continued together.

XLA compiles a program for every shape it sees, so few shapes are ever made: a prompt is prefilled in chunks of a power
of two, and a cache has a power of two of slots. Positions, settings and slot numbers are data, not shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jax import numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Int

from zoo.models.cache import Cache, empty_cache
from zoo.models.config import ModelConfig
from zoo.models.decoder import Decoder
from zoo.models.fuse import fuse
from zoo.models.parameters import merge
from zoo.models.rope import frequency_period
from zoo.models.tokenizer import Tokenizer

from .generate import Piece, Request, Result, run
from .sampler import GREEDY, Sampling, SamplingRows, choose, sampling_rows

# The fewest and the most tokens that one prefill takes.
SMALLEST_CHUNK = 16
LARGEST_CHUNK = 128
SMALLEST_CACHE = 64


@partial(
    jax.tree_util.register_dataclass, data_fields=["cache", "tokens", "positions", "sampling"], meta_fields=["capacity"]
)
@dataclass(frozen=True)
class Slots:
    """The state of a batch: one sequence a slot. Its tree, shapes and types never change while it lives."""

    cache: Cache
    tokens: Int[Array, " batch"]  # the newest token of each sequence, which is not in the cache yet
    positions: Int[Array, " batch"]  # its position
    sampling: SamplingRows
    capacity: int  # the most tokens of a sequence


class Prefix(NamedTuple):
    """A sequence that has been read but does not sit in a slot yet."""

    cache: Cache
    token: Int[Array, " 1"]  # the token that follows it
    length: int
    capacity: int  # the most tokens that the cache could hold
    sampling: Sampling


class Engine:
    """Continues sequences of tokens.

    Attributes:
        config: the network.
        tokenizer: for text; without one, results have tokens only.
        slots: the most sequences that are continued at the same time.
    """

    def __init__(
        self,
        config: ModelConfig,
        params: Mapping[str, jax.Array],
        *,
        dtype: DTypeLike = jnp.float32,
        tokenizer: Tokenizer | None = None,
        slots: int = 8,
    ):
        """Takes parameters by native path and casts those that are not of the compute `dtype` yet."""
        self.config = config
        self.tokenizer = tokenizer
        self.slots = slots
        self._dtype = jnp.dtype(dtype)
        merge(config, params)  # complains about parameters that do not fit, before anything is compiled
        fused = _on_one_cpu(params)
        self._params = {
            path: array if array.dtype == self._dtype else array.astype(self._dtype)
            for path, array in (fuse(params) if fused else params).items()
        }
        model = partial(merge, config, fused=fused)
        self._prefill = jax.jit(partial(_prefill, model), donate_argnums=1)
        self._step = jax.jit(partial(_step, model), donate_argnums=1)
        self._insert = jax.jit(_insert, donate_argnums=0)
        empty = partial(empty_cache, config, dtype=self._dtype, longest_pass=LARGEST_CHUNK)
        self._empty = jax.jit(empty, static_argnames=("batch", "slots"))
        self._grow = jax.jit(partial(_grow, empty), static_argnums=1)

    def start(self, batch: int, length: int) -> Slots:
        """Empty slots for `batch` sequences of up to `length` tokens."""
        capacity = _power_of_two(length, SMALLEST_CACHE)
        return Slots(
            self._empty(batch=batch, slots=capacity),
            jnp.zeros(batch, jnp.int32),
            jnp.zeros(batch, jnp.int32),
            sampling_rows([GREEDY] * batch),
            capacity,
        )

    def prefill(self, tokens: Sequence[int], sampling: Sampling) -> Prefix:
        """Reads a sequence and chooses the token after it."""
        capacity = _power_of_two(len(tokens), SMALLEST_CHUNK)
        cache = self._empty(batch=1, slots=capacity)
        settings = sampling_rows([sampling])
        token = None
        for start in range(0, len(tokens), LARGEST_CHUNK):
            part = tokens[start : start + LARGEST_CHUNK]
            chunk = np.zeros((1, _power_of_two(len(part), SMALLEST_CHUNK)), np.int32)
            chunk[0, : len(part)] = part
            cache, token = self._prefill(
                self._params, cache, chunk, np.int32(start), np.int32(len(part)), np.int32(len(tokens)), settings
            )
        assert token is not None, "a prompt has at least one token"
        return Prefix(cache, token, len(tokens), capacity, sampling)

    def insert(self, slots: Slots, prefix: Prefix, slot: int) -> Slots:
        """Puts a prefix into a slot, over whatever was there. `slots` is used up; they grow if they have to."""
        slots = self.reserve(slots, prefix.capacity)
        return self._insert(
            slots, prefix.cache, prefix.token, np.int32(prefix.length), np.int32(slot), sampling_rows([prefix.sampling])
        )

    def reserve(self, slots: Slots, length: int) -> Slots:
        """Slots whose sequences have room for `length` tokens: these, or longer copies."""
        if length <= slots.capacity:
            return slots
        capacity = _power_of_two(length, 1)
        return replace(slots, cache=self._grow(slots.cache, capacity), capacity=capacity)

    def step(self, slots: Slots) -> tuple[Slots, Int[Array, " batch"]]:
        """One more token for every slot. `slots` is used up."""
        return self._step(self._params, slots)

    def can_extend(self, length: int) -> bool:
        """Whether what a sequence of `length` tokens has left in the cache serves one token more.

        Some rotary embeddings turn all positions differently once a sequence has outgrown a threshold; it has to be
        prefilled again then, so that decoding and reading the whole text at once are the same function.
        """
        return all(frequency_period(rope, length) == frequency_period(rope, length + 1) for rope in self.config.ropes)

    def stream(
        self,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int = 64,
        sampling: Sampling | Sequence[Sampling] = GREEDY,
        stop: Sequence[str] = (),
        *,
        ignore_eos: bool = False,
    ) -> Iterator[Piece]:
        """Continues prompts and gives every piece as soon as it is certain; the last of each has the result.

        Args:
            prompts: token ids.
            max_new_tokens: the most tokens to add; fewer where the model's longest sequence ends before.
            sampling: for all prompts, or one for each.
            stop: texts before which a continuation ends.
            ignore_eos: whether to go on after an end token.

        Raises:
            ZooError: a prompt is empty, longer than the model's longest sequence, or has unknown ids.
        """
        settings = [sampling] * len(prompts) if isinstance(sampling, Sampling) else list(sampling)
        requests = [
            Request(tuple(prompt), max_new_tokens, setting, tuple(stop), ignore_eos)
            for prompt, setting in zip(prompts, settings, strict=True)
        ]
        return run(self, requests)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int = 64,
        sampling: Sampling | Sequence[Sampling] = GREEDY,
        stop: Sequence[str] = (),
        *,
        ignore_eos: bool = False,
        on_text: Callable[[int, str], None] | None = None,
    ) -> list[Result]:
        """The results of `stream` in the order of the prompts; `on_text` gets a prompt's index and each new text."""
        results: dict[int, Result] = {}
        for piece in self.stream(prompts, max_new_tokens, sampling, stop, ignore_eos=ignore_eos):
            if on_text is not None and piece.text:
                on_text(piece.index, piece.text)
            if piece.result is not None:
                results[piece.index] = piece.result
        return [results[index] for index in range(len(prompts))]


def _on_one_cpu(params: Mapping[str, jax.Array]) -> bool:
    devices = {device for array in params.values() for device in array.sharding.device_set}
    return len(devices) == 1 and devices.pop().platform == "cpu"


def _power_of_two(number: int, smallest: int) -> int:
    """The least power of two that is no less than either."""
    return 1 << (max(number, smallest) - 1).bit_length()


def _prefill(
    model: Callable[[Mapping[str, jax.Array]], Decoder],
    params: Mapping[str, jax.Array],
    cache: Cache,
    tokens: Int[Array, "1 seq"],
    start: Int[Array, ""],
    count: Int[Array, ""],
    length: Int[Array, ""],
    sampling: SamplingRows,
) -> tuple[Cache, Int[Array, " 1"]]:
    """Reads `count` tokens at position `start` of a sequence that will be `length` long; the rest is padding."""
    index = jnp.arange(tokens.shape[1], dtype=jnp.int32)[None]
    logits, updated = model(params)(
        tokens,
        start + index,
        (index < count).astype(jnp.int32),
        cache,
        rows=(count - 1)[None, None],
        lengths=length[None],
    )
    assert updated is not None, "who gives a cache gets one"
    return updated, choose(logits[:, 0], sampling, (start + count)[None])


def _step(
    model: Callable[[Mapping[str, jax.Array]], Decoder], params: Mapping[str, jax.Array], slots: Slots
) -> tuple[Slots, Int[Array, " batch"]]:
    logits, cache = model(params)(slots.tokens[:, None], slots.positions[:, None], None, slots.cache)
    assert cache is not None, "who gives a cache gets one"
    positions = slots.positions + 1
    tokens = choose(logits[:, 0], slots.sampling, positions)
    return replace(slots, cache=cache, tokens=tokens, positions=positions), tokens


def _insert(
    slots: Slots,
    cache: Cache,
    token: Int[Array, " 1"],
    length: Int[Array, ""],
    slot: Int[Array, ""],
    sampling: SamplingRows,
) -> Slots:
    def put(batch: jax.Array, row: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice(batch, row, (slot, *(0,) * (batch.ndim - 1)))

    return replace(
        slots,
        cache=jax.tree.map(put, slots.cache, cache),
        tokens=put(slots.tokens, token),
        positions=put(slots.positions, length[None]),
        sampling=jax.tree.map(put, slots.sampling, sampling),
    )


def _grow(empty: Callable[..., Cache], cache: Cache, capacity: int) -> Cache:
    """A cache with room for longer sequences: every array padded at its end."""
    longer = jax.eval_shape(partial(empty, batch=jax.tree.leaves(cache)[0].shape[0], slots=capacity))

    def pad(array: jax.Array, wanted: jax.ShapeDtypeStruct) -> jax.Array:
        return jnp.pad(array, [(0, new - old) for old, new in zip(array.shape, wanted.shape, strict=True)])

    return jax.tree.map(pad, cache, longer)
