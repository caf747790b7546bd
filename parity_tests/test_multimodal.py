"""Whole repositories of models that also see: beside other towers, under the prefixes of several versions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoConfig, AutoModelForImageTextToText, Llama4ForConditionalGeneration, PreTrainedModel

from zoo.converters.digest import file_sha256
from zoo.converters.family import Family, families
from zoo.converters.hf_to_orbax import hf_to_orbax
from zoo.converters.orbax_to_hf import orbax_to_hf

from .reference import assert_close, load, random_tokens, randomise, reference_logits

# From the names that transformers writes now to those of its versions 4.52 to 4.57, where a family has had both.
BETWEEN = {
    r"^language_model\.model\.": "model.language_model.",
    r"^language_model\.lm_head\.": "lm_head.",
    r"^(vision_tower|multi_modal_projector)\.": r"model.\1.",
}
CASES = [
    pytest.param(family, renames, id=f"{family.model_type}-{name}")
    for family in families()
    for name, renames in {"now": {}, "between": BETWEEN}.items()
    if "text_config" in family.tiny and (family.model_type == "gemma3" or not renames)
]


def write_repository(folder: Path, fields: dict[str, Any]) -> PreTrainedModel:
    """A random model with all its towers."""
    config = AutoConfig.for_model(**json.loads(json.dumps(fields)))
    model = AutoModelForImageTextToText.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    randomise(model)
    model.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(fields), encoding="utf-8")
    return model


def _language(model: PreTrainedModel) -> PreTrainedModel:
    """What gives logits for text alone, which not every whole model does."""
    return model.language_model if isinstance(model, Llama4ForConditionalGeneration) else model


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("family", "renames"), CASES)
def test_other_towers_are_carried_along_under_every_prefix(
    tmp_path: Path, family: Family, renames: dict[str, str], tied: bool
) -> None:
    """transformers finds every tensor it looks for, of language and of sight, in what comes back."""
    text = {**family.tiny["text_config"], "tie_word_embeddings": tied}
    reference = write_repository(tmp_path / "hf", {**family.tiny, "tie_word_embeddings": tied, "text_config": text})
    path = tmp_path / "hf" / "model.safetensors"
    tensors = load_file(path)
    for old, new in renames.items():
        tensors = {re.sub(old, new, name): tensor for name, tensor in tensors.items()}
    save_file(tensors, path, metadata={"format": "pt"})
    tokens = random_tokens(2, 20)
    assert_close(load(tmp_path / "hf").logits(tokens), reference_logits(_language(reference), tokens))
    hf_to_orbax(tmp_path / "hf", tmp_path / "store")
    orbax_to_hf(tmp_path / "store", tmp_path / "back")
    assert file_sha256(tmp_path / "back" / "model.safetensors") == file_sha256(path)
    loaded: Any = AutoModelForImageTextToText.from_pretrained(
        tmp_path / "back", attn_implementation="eager", dtype=torch.float32, output_loading_info=True
    )
    exported, loading = loaded
    assert not any(loading[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), loading
    assert_close(reference_logits(_language(exported.eval()), tokens), reference_logits(_language(reference), tokens))
    ours, theirs = exported.state_dict(), reference.state_dict()
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in theirs)
