"""Qwen3.5 with its eyes: the language model of a repository that sees, whose other tensors are carried along."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import ModelConfig

from ..hf_multimodal import between_names, passengers, read_text_part
from . import qwen3_5_text

ARCHITECTURES = ("Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM")
# Without the prefix is a language model cut out of its repository.
ROWS = qwen3_5_text.ROWS
OTHER_ROWS = (between_names(qwen3_5_text.ROWS),)
PASSENGERS = passengers(("visual.*", "mtp.*"))
TEXT = qwen3_5_text.TINY
TINY = {
    **{"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "torch_dtype": "float32"},
    **{"bos_token_id": 1, "eos_token_id": 2, "image_token_id": 127, "video_token_id": 126, "text_config": TEXT},
    **{"vision_start_token_id": 125, "vision_end_token_id": 124, "tie_word_embeddings": False},
    "vision_config": {
        **{"model_type": "qwen3_5_vision", "depth": 1, "hidden_size": 8, "intermediate_size": 12, "num_heads": 2},
        **{"out_hidden_size": 32, "num_position_embeddings": 16, "patch_size": 2, "spatial_merge_size": 1},
    },
}
VARIANTS = {
    name: {
        "tie_word_embeddings": changes.get("tie_word_embeddings", False),
        "text_config": {field: value for field, value in {**TEXT, **changes}.items() if value is not ...},
    }
    for name, changes in qwen3_5_text.VARIANTS.items()
}
TOKENS = ["image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id"]


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The language model that a config.json describes."""
    text, tied = read_text_part(hf, "qwen3_5_text", qwen3_5_text.DEFAULTS, tied=False, ignored=TOKENS)
    # transformers goes by the one for the whole repository, by the other for the language model alone.
    text.neutral({"tie_word_embeddings": (tied,)})
    return qwen3_5_text.read(text, "qwen3_5", tied_head=tied)
