"""Llama 4 with its eyes: the language model of a repository that sees, whose other tensors are carried along."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import ModelConfig

from ..hf_multimodal import old_names, passengers, read_text_part
from ..llama4 import read_llama4
from . import llama4_text

ARCHITECTURES = ("Llama4ForConditionalGeneration", "Llama4ForCausalLM")
# Without the prefix is a language model cut out of its repository.
ROWS = llama4_text.ROWS
OTHER_ROWS = (old_names(llama4_text.ROWS),)
PASSENGERS = passengers(("vision_model.*", "multi_modal_projector.*"))
TEXT = llama4_text.TINY
TINY = {
    **{"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "torch_dtype": "float32"},
    **{"bos_token_id": 1, "eos_token_id": 2, "text_config": TEXT, "tie_word_embeddings": False},
    **{"image_token_index": 127, "boi_token_index": 126, "eoi_token_index": 125},
    "vision_config": {
        **{"model_type": "llama4_vision_model", "hidden_size": 8, "intermediate_size": 32, "num_hidden_layers": 1},
        **{"num_attention_heads": 2, "image_size": 16, "patch_size": 4, "vision_output_dim": 16},
        **{"projector_input_dim": 16, "projector_output_dim": 16, "pixel_shuffle_ratio": 0.5},
    },
}
VARIANTS = {
    name: {
        "tie_word_embeddings": changes.get("tie_word_embeddings", False),
        "text_config": {field: value for field, value in {**TEXT, **changes}.items() if value is not ...},
    }
    for name, changes in llama4_text.VARIANTS.items()
}
TOKENS = [f"{name}_token_{kind}" for name in ("image", "boi", "eoi") for kind in ("index", "id")]


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The language model that a config.json describes."""
    text, tied = read_text_part(hf, "llama4_text", llama4_text.DEFAULTS, tied=False, ignored=TOKENS)
    # transformers goes by the one for the whole repository, by the other for the language model alone.
    text.neutral({"tie_word_embeddings": (tied,)})
    return read_llama4(text, "llama4", tied_head=tied)
