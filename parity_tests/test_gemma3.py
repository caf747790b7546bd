"""Gemma 3 as repositories have it: beside a vision tower, under the prefixes of several versions of transformers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM

from zoo.converters.digest import file_sha256
from zoo.converters.family import families
from zoo.converters.hf_to_orbax import hf_to_orbax
from zoo.converters.orbax_to_hf import orbax_to_hf

from .reference import assert_close, load, random_tokens, reference_logits, write_checkpoint

GEMMA3 = next(family for family in families() if family.model_type == "gemma3")
# From the names that transformers writes now to those of its versions 4.52 to 4.57.
BETWEEN = {
    r"^language_model\.model\.": "model.language_model.",
    r"^language_model\.lm_head\.": "lm_head.",
    r"^(vision_tower|multi_modal_projector)\.": r"model.\1.",
}


@pytest.mark.parametrize("renames", [{}, BETWEEN], ids=["now and first", "between"])
@pytest.mark.parametrize("tied", [True, False])
def test_sight_is_carried_along_under_every_prefix(tmp_path: Path, renames: dict[str, str], tied: bool) -> None:
    """transformers finds every tensor it looks for, of language and of sight, in what comes back."""
    reference = write_checkpoint(tmp_path / "hf", GEMMA3.tiny, tie_word_embeddings=tied)
    path = tmp_path / "hf" / "model.safetensors"
    tensors = load_file(path)
    for old, new in renames.items():
        tensors = {re.sub(old, new, name): tensor for name, tensor in tensors.items()}
    save_file(tensors, path, metadata={"format": "pt"})
    tokens = random_tokens(2, 20)
    assert_close(load(tmp_path / "hf").logits(tokens), reference_logits(reference, tokens))
    hf_to_orbax(tmp_path / "hf", tmp_path / "store")
    orbax_to_hf(tmp_path / "store", tmp_path / "back")
    assert file_sha256(tmp_path / "back" / "model.safetensors") == file_sha256(path)
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        tmp_path / "back", attn_implementation="eager", dtype=torch.float32, output_loading_info=True
    )
    exported, loading = loaded
    assert not any(loading[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), loading
    assert_close(reference_logits(exported.eval(), tokens), reference_logits(reference, tokens))
    ours, theirs = exported.state_dict(), reference.state_dict()
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in theirs)
