"""Logits of every llama, at every position, against transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .reference import assert_close, load, random_tokens, reference_logits, write_checkpoint
from .variants import KINDS, NETWORKS, ROPES

# Longer than any original length, and than max_position_embeddings.
LENGTH = 100


@pytest.mark.parametrize("fields", [pytest.param(value, id=name) for name, value in {**NETWORKS, **ROPES}.items()])
def test_logits_at_every_position(tmp_path: Path, fields: dict[str, Any]) -> None:
    reference = write_checkpoint(tmp_path, **fields)
    tokens = random_tokens(2, LENGTH)
    assert_close(load(tmp_path).logits(tokens), reference_logits(reference, tokens))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("fields", [pytest.param(value, id=name) for name, value in KINDS.items()])
def test_a_row_of_a_padded_batch_equals_the_row_alone(tmp_path: Path, fields: dict[str, Any], side: str) -> None:
    reference = write_checkpoint(tmp_path, **fields)
    lengths = [1, 30, 100]
    tokens, segments = np.zeros((3, LENGTH), np.int32), np.zeros((3, LENGTH), np.int32)
    real = [slice(LENGTH - length, LENGTH) if side == "left" else slice(0, length) for length in lengths]
    rows = [random_tokens(length, seed=length) for length in lengths]
    for index, (where, row) in enumerate(zip(real, rows, strict=True)):
        tokens[index, where], segments[index, where] = row, 1
    logits = np.asarray(load(tmp_path).logits(tokens, segment_ids=segments))
    for index, (where, row) in enumerate(zip(real, rows, strict=True)):
        assert_close(logits[index, where], reference_logits(reference, row[None])[0])


@pytest.mark.parametrize("fields", [pytest.param(value, id=name) for name, value in KINDS.items()])
def test_packed_sequences_do_not_see_each_other(tmp_path: Path, fields: dict[str, Any]) -> None:
    reference = write_checkpoint(tmp_path, **fields)
    first, second = random_tokens(35, seed=1), random_tokens(70, seed=2)
    tokens = np.concatenate([first, second])[None]
    segments = np.repeat([4, 7], [35, 70])[None]
    logits = np.asarray(load(tmp_path).logits(tokens, segment_ids=segments))[0]
    assert_close(logits[:35], reference_logits(reference, first[None])[0])
    assert_close(logits[35:], reference_logits(reference, second[None])[0])


def test_a_short_prompt_after_a_long_one_has_the_frequencies_of_a_short_one(tmp_path: Path) -> None:
    reference = write_checkpoint(tmp_path, **KINDS["dynamic"])
    model = load(tmp_path)
    for length in (32, 64, 100, 32):
        tokens = random_tokens(1, length)
        assert_close(model.logits(tokens), reference_logits(reference, tokens))
