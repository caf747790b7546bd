"""Decoding with a cache is the same function as reading the whole text at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from transformers import PreTrainedModel

from zoo.models.cache import empty_cache
from zoo.models.parameters import merge
from zoo.serve import engine as engine_module
from zoo.serve.engine import Engine

from .reference import TOLERANCE, assert_close, load, random_tokens, reference_logits, write_checkpoint
from .variants import KINDS, NETWORKS

SOME = {name: NETWORKS[name] for name in ("multi-query", "wide heads", "all biases, tied")} | dict(KINDS)
VARIANTS = [pytest.param(value, id=name) for name, value in SOME.items()]


@pytest.mark.parametrize("fields", VARIANTS)
@pytest.mark.parametrize("chunks", [(16, 16, 8), (25, 1, 1, 12)], ids=["chunks", "mixed"])
def test_a_text_read_in_parts_equals_the_text_read_at_once(
    tmp_path: Path, fields: dict[str, Any], chunks: tuple[int, ...]
) -> None:
    reference = write_checkpoint(tmp_path, **fields)
    model = load(tmp_path)
    tokens = random_tokens(2, sum(chunks))
    cache = empty_cache(model.config, 2, 48, jnp.float32)
    # A former owner's leftovers must not show through.
    cache = jax.tree.map(lambda array: jnp.full_like(array, 1e4), cache)
    lengths = jnp.full(2, tokens.shape[1], jnp.int32)
    step = jax.jit(lambda params, *inputs: merge(model.config, params)(*inputs, lengths=lengths))
    parts, start = [], 0
    for size in chunks:
        positions = jnp.broadcast_to(jnp.arange(start, start + size, dtype=jnp.int32), (2, size))
        logits, cache = step(model.params, jnp.asarray(tokens[:, start : start + size]), positions, None, cache)
        parts.append(np.asarray(logits))
        start += size
    assert_close(np.concatenate(parts, axis=1), reference_logits(reference, tokens))


@pytest.mark.parametrize("fields", VARIANTS)
def test_greedy_continuations_are_those_of_full_passes(tmp_path: Path, fields: dict[str, Any]) -> None:
    """Rows of different lengths, one of which begins past the original length and one of which grows past it."""
    reference = write_checkpoint(tmp_path, **fields)
    engine = load(tmp_path).engine
    prompts = [random_tokens(length, seed=length).tolist() for length in (3, 25, 40)]
    results = engine.generate(prompts, 16)
    for prompt, result in zip(prompts, results, strict=True):
        assert len(result.tokens) == 16 and result.finish_reason == "length"
        _assert_greedy(reference, prompt, result.tokens)


def test_more_prompts_than_slots_and_a_cache_that_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = write_checkpoint(tmp_path, max_position_embeddings=256)
    monkeypatch.setattr("zoo.serve.generate.ROOM", 8)
    model = load(tmp_path)
    engine = Engine(model.config, model.params, slots=2)
    prompts = [random_tokens(length, seed=length).tolist() for length in (9, 1, 50, 17, 33)]
    for prompt, result in zip(prompts, engine.generate(prompts, 40), strict=True):
        _assert_greedy(reference, prompt, result.tokens)


@pytest.mark.parametrize("fields", VARIANTS)
def test_a_long_prompt_is_read_in_chunks(
    tmp_path: Path, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "LARGEST_CHUNK", 16)
    reference = write_checkpoint(tmp_path, **fields)
    prompt = random_tokens(61).tolist()
    result = load(tmp_path).engine.generate([prompt], 3)[0]
    _assert_greedy(reference, prompt, result.tokens)


def _assert_greedy(reference: PreTrainedModel, prompt: list[int], tokens: list[int]) -> None:
    """Each token is the likeliest after those before it, by a full pass; a tie may go either way."""
    text = [*prompt, *tokens]
    if (reference.config.rope_parameters or {}).get("rope_type") in ("dynamic", "longrope"):
        # What such a model makes of a text changes with what follows it, so each token needs a pass of its own.
        rows = [reference_logits(reference, [text[:end]])[0, -1] for end in range(len(prompt), len(text))]
    else:
        rows = list(reference_logits(reference, [text])[0, len(prompt) - 1 : -1])
    for index, (token, row) in enumerate(zip(tokens, rows, strict=True)):
        assert row[token] >= row.max() - TOLERANCE, f"token {index} is not the likeliest"
