"""Gemma 4 with its eyes and ears: the language model of a repository that sees, whose other tensors are carried along.

Whether the head is tied says the file itself, whatever the object of the language model says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import ModelConfig

from ..gemma4 import read_gemma4
from ..hf_multimodal import between_names, passengers, read_text_part
from . import gemma4_text

ARCHITECTURES = ("Gemma4ForConditionalGeneration",)
ROWS = between_names(gemma4_text.ROWS)
OTHER_ROWS = (gemma4_text.ROWS,)
UNUSED = (*gemma4_text.UNUSED, *(name.replace("model.", "model.language_model.", 1) for name in gemma4_text.UNUSED))
PASSENGERS = (*passengers(("vision_tower.*", "audio_tower.*", "embed_vision.*", "embed_audio.*")), *UNUSED)
TEXT = gemma4_text.TINY
TINY = {
    **{"architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "torch_dtype": "float32"},
    **{"bos_token_id": 1, "eos_token_id": 2, "text_config": TEXT, "audio_config": None, "image_token_id": 0},
    **{"boi_token_id": 1, "eoi_token_id": 2, "tie_word_embeddings": True},
    "vision_config": {
        **{"model_type": "gemma4_vision", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1},
        **{"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4, "position_embedding_size": 16},
        **{"patch_size": 4, "pooling_kernel_size": 1},
    },
}
EXPERTS = {**TEXT, **next(iter(gemma4_text.VARIANTS.values()))}
VARIANTS = {"experts, untied": {"tie_word_embeddings": False, "text_config": EXPERTS}}
TOKENS = [
    f"{name}_token_{kind}"
    for name in ("image", "video", "audio", "boi", "eoi", "boa", "eoa")
    for kind in ("index", "id")
]


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The language model that a config.json describes."""
    ignored = [*TOKENS, "vision_soft_tokens_per_image", "audio_soft_tokens_per_image"]
    text, tied = read_text_part(hf, "gemma4_text", gemma4_text.DEFAULTS, tied=True, ignored=ignored)
    text.skip(["tie_word_embeddings"])
    return read_gemma4(text, "gemma4", tied_head=tied)
