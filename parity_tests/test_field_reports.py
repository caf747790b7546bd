"""Faults that other converters were reported with, by kind, where no family's own tests name them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import zoo
from zoo.converters.family import Family, families

from .reference import assert_close, load, random_tokens, reference_logits, write_checkpoint

FAMILIES: dict[str, Family] = {family.model_type: family for family in families()}


@pytest.mark.parametrize(
    ("fields", "windows"),
    [
        ({"use_sliding_window": ...}, [None, None, None, None]),
        ({"use_sliding_window": True, "max_window_layers": 2}, [None, None, 4, 4]),
        ({"use_sliding_window": True, "max_window_layers": 28}, [None, None, None, None]),
        (
            {
                "use_sliding_window": True,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
            },
            [4, None, 4, None],
        ),
    ],
    ids=["not used", "from a layer on", "from a layer that is not there", "listed"],
)
def test_a_window_is_on_the_layers_that_have_one(
    tmp_path: Path, fields: dict[str, Any], windows: list[int | None]
) -> None:
    base = {**FAMILIES["qwen3"].tiny, "num_hidden_layers": 4, "sliding_window": 4}
    reference = write_checkpoint(tmp_path, base, **fields)
    model = load(tmp_path)
    assert [layer.attn.window for layer in model.config.layers] == windows
    tokens = random_tokens(2, 12)
    assert_close(model.logits(tokens), reference_logits(reference, tokens))


def test_logits_are_capped_once_and_by_the_right_formula(tmp_path: Path) -> None:
    """Weights so large that raw logits are far beyond the cap: a cap left out, or put on twice, keeps the likeliest."""
    reference = write_checkpoint(tmp_path, FAMILIES["gemma2"].tiny, final_logit_softcapping=30.0)
    embedding: Any = reference.get_input_embeddings()
    with torch.no_grad():
        embedding.weight.mul_(10)
    reference.save_pretrained(tmp_path)
    tokens = random_tokens(2, 12)
    capped = np.asarray(load(tmp_path).logits(tokens))
    assert_close(capped, reference_logits(reference, tokens))
    raw = 30 * np.arctanh(np.clip(capped / 30, -1 + 1e-7, 1 - 1e-7))
    assert np.abs(raw).max() > 100 and np.abs(capped).max() <= 30


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        ("gpt2", {"activation_function": "gelu"}),
        ("gpt2", {"activation_function": "gelu_new"}),
        ("gemma", {"hidden_act": "gelu", "hidden_activation": None}),
        ("gemma", {"hidden_act": "gelu_pytorch_tanh"}),
    ],
)
def test_both_forms_of_gelu_are_told_apart(tmp_path: Path, family: str, fields: dict[str, Any]) -> None:
    """They differ by 5e-4 at most, so a loose tolerance would take one for the other."""
    reference = write_checkpoint(tmp_path, FAMILIES[family].tiny, **fields)
    model = load(tmp_path)
    expected = "gelu" if fields.get("activation_function") == "gelu" else "gelu_tanh"
    assert {layer.mlp.activation for layer in model.config.layers} == {expected}
    tokens = random_tokens(2, 12)
    assert_close(model.logits(tokens), reference_logits(reference, tokens), 1e-5)


def test_norms_of_deep_narrow_types_reduce_in_float32(tmp_path: Path) -> None:
    """24 layers in bfloat16 with one element of the embedding far larger than the rest."""
    reference = write_checkpoint(tmp_path, FAMILIES["gemma2"].tiny, num_hidden_layers=24)
    embedding: Any = reference.get_input_embeddings()
    with torch.no_grad():
        embedding.weight[:, 3] = 200 / 32**0.5
    reference.save_pretrained(tmp_path)
    tokens = random_tokens(4, 20)
    ours = np.asarray(zoo.load(str(tmp_path), dtype="bfloat16").logits(tokens)).ravel()
    theirs = reference_logits(reference.bfloat16(), tokens).ravel()
    assert ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs) >= 0.999
