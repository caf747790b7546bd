"""A loaded model: the same thing whatever it was loaded from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from zoo.models.config import ModelConfig
from zoo.models.errors import ZooError
from zoo.models.parameters import abstract_parameters, merge
from zoo.models.sharding import parameter_shardings
from zoo.models.tokenizer import Tokenizer
from zoo.serve.engine import Engine
from zoo.serve.generate import Result
from zoo.serve.sampler import Sampling

from .catalog import resolve
from .sources import open_source

DTYPES = ("float32", "bfloat16", "float16")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")


class Model:
    """A network with its parameters and its tokenizer, ready to compute logits and to generate.

    Attributes:
        config: what the network is.
        params: its parameters by native path, in the compute dtype.
        tokenizer: its tokenizer; None where the checkpoint has none.
    """

    def __init__(self, config: ModelConfig, params: Mapping[str, jax.Array], tokenizer: Tokenizer | None, dtype: str):
        self.config = config
        self.params = dict(params)
        self.tokenizer = tokenizer
        self._dtype = dtype
        self._forward = jax.jit(partial(_logits, config))

    @cached_property
    def engine(self) -> Engine:
        return Engine(self.config, self.params, dtype=self._dtype, tokenizer=self.tokenizer)

    def logits(self, tokens: Any, positions: Any = None, segment_ids: Any = None) -> jax.Array:
        """The logits of every token.

        Args:
            tokens: ids, int [batch, seq].
            positions: absolute positions, int [batch, seq]; by default each sequence counts from 0.
            segment_ids: int [batch, seq], 0 for padding, equal numbers for one sequence; by default all are one.

        Returns:
            float32 [batch, seq, vocab].
        """
        ids = np.asarray(tokens)
        if ids.ndim != 2 or not np.issubdtype(ids.dtype, np.integer):
            raise ZooError(
                f"tokens: expected integers of shape [batch, seq], found {ids.dtype} of shape {list(ids.shape)}"
            )
        if ids.size and not 0 <= ids.min() <= ids.max() < self.config.vocab:
            raise ZooError(f"tokens: expected ids from 0 to {self.config.vocab - 1}, found {ids.min()} to {ids.max()}")
        optional = (None if array is None else jnp.asarray(array, jnp.int32) for array in (positions, segment_ids))
        return self._forward(self.params, jnp.asarray(ids, jnp.int32), *optional)

    def generate(
        self,
        prompts: Sequence[str] | Sequence[Sequence[int]],
        max_new_tokens: int = 64,
        temperature: float = 0.0,
        seed: int = 0,
        *,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        stop: Sequence[str] = (),
        raw: bool = False,
        ignore_eos: bool = False,
        on_text: Callable[[int, str], None] | None = None,
    ) -> list[Result]:
        """Continues prompts, several at a time; each result is the one its prompt has alone.

        Args:
            prompts: texts or lists of ids. A text is a user's turn where the tokenizer has a chat template.
            max_new_tokens: the most tokens to add to each.
            temperature: 0 takes the likeliest token, more samples.
            seed: equal seeds make equal samples.
            top_k, top_p, min_p: which tokens are sampled from.
            stop: texts before which a continuation ends.
            raw: give texts to the model without the chat template.
            ignore_eos: go on after an end token.
            on_text: called with a prompt's index and each new piece of its text.

        Returns:
            For each prompt its text, tokens and finish_reason (`stop` or `length`).
        """
        if isinstance(prompts, str):
            raise ZooError("prompts: expected a list of texts or of lists of ids, found one text")
        ids = [self.encode(prompt, raw=raw) if isinstance(prompt, str) else list(prompt) for prompt in prompts]
        sampling = Sampling(
            temperature=temperature,
            top_k=top_k or 0,
            top_p=1.0 if top_p is None else top_p,
            min_p=min_p or 0.0,
            seed=seed,
        )
        return self.engine.generate(ids, max_new_tokens, sampling, tuple(stop), ignore_eos=ignore_eos, on_text=on_text)

    def encode(self, prompt: str, *, raw: bool = False) -> list[int]:
        """The ids of a text: a user's turn by the chat template, if there is one and the text is not `raw`."""
        if self.tokenizer is None:
            raise ZooError("the checkpoint has no tokenizer; give prompts as lists of ids")
        if raw or not self.tokenizer.has_chat_template:
            return self.tokenizer.encode(prompt)
        return self.tokenizer.chat([{"role": "user", "content": prompt}])


def load(model: str | Path, dtype: str | None = None, mesh: jax.sharding.Mesh | None = None) -> Model:
    """Loads a model from a store, a Hugging Face directory, a GGUF file or a catalog name.

    Args:
        model: where it is.
        dtype: the type to compute in: float32, bfloat16 or float16; by default float32 on a CPU, where narrower types
            are slower, and bfloat16 elsewhere.
        mesh: devices to spread the parameters over; the default device without.

    Raises:
        ZooError: there is no such model, or it contradicts itself.
    """
    dtype = dtype or ("float32" if jax.default_backend() == "cpu" else "bfloat16")
    if dtype not in DTYPES:
        raise ZooError(f"unknown dtype {dtype!r}; expected one of {', '.join(DTYPES)}")
    with open_source(resolve(str(model))) as source:
        has_tokenizer = any((source.tokenizer_folder / name).is_file() for name in TOKENIZER_FILES)
        tokenizer = Tokenizer.load(source.tokenizer_folder) if has_tokenizer else None
        places = None if mesh is None else parameter_shardings(abstract_parameters(source.config), mesh)
        params = source.load(jnp.dtype(dtype), places)
    return Model(source.config, params, tokenizer, dtype)


def _logits(
    config: ModelConfig,
    params: Mapping[str, jax.Array],
    tokens: jax.Array,
    positions: jax.Array | None,
    segment_ids: jax.Array | None,
) -> jax.Array:
    return merge(config, params)(tokens, positions, segment_ids)[0]
