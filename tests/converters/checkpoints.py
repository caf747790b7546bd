"""Tiny checkpoints for tests, made without torch: every tensor of a family's table, filled with random bits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from zoo.converters.family import families, family_of
from zoo.converters.layout import bind
from zoo.models.parameters import abstract_parameters

LLAMA = next(family for family in families() if family.model_type == "llama")


def tensors_of(config: dict[str, Any], dtype: str = "bfloat16", seed: int = 0) -> dict[str, np.ndarray]:
    """Random tensors, finite and of every size that a weight has, for a config.json."""
    random = np.random.default_rng(seed)
    family = family_of(config, "config.json")
    bindings, problems = bind(family.tables[0], abstract_parameters(family.config(config)))
    assert problems == []
    return {
        name: random.standard_normal(binding.source_shape).astype(_dtype(dtype))
        for binding in bindings
        for name in binding.sources
    }


def _dtype(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def write_checkpoint(
    folder: Path,
    *,
    shards: int = 1,
    dtype: str = "bfloat16",
    tensors: dict[str, np.ndarray] | None = None,
    base: Mapping[str, Any] = LLAMA.tiny,
    **overrides: Any,
) -> Path:
    """A model directory of the configuration `base` with `overrides`, and files beside the weights."""
    config = {**base, **overrides}
    tensors = tensors_of(config, dtype) if tensors is None else tensors
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 3]}')
    (folder / "notes").mkdir()
    (folder / "notes" / "README.md").write_bytes(b"carried along\r\n\xff")
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        return folder
    names = list(tensors)
    weight_map: dict[str, str] = {}
    for number in range(shards):
        file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in names[number::shards]}
        save_file(part, folder / file, {"format": "pt", "part": str(number)})
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder
