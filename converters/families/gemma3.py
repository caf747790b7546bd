"""Gemma 3 with its eyes: the language model of a repository that sees, whose other tensors are carried along.

Its configuration is an object in the file, and its tensors' names have a prefix that has changed over time. Whether the
head is tied says the file itself, whatever the object says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import ModelConfig

from ..hf_multimodal import between_names, old_names, passengers, read_text_part
from . import gemma3_text

ARCHITECTURES = ("Gemma3ForConditionalGeneration",)
# transformers writes the first prefix again since its version 5; a language model cut out of its repository has none.
ROWS = old_names(gemma3_text.ROWS)
OTHER_ROWS = (between_names(gemma3_text.ROWS), gemma3_text.ROWS)
PASSENGERS = passengers(("vision_tower.*", "multi_modal_projector.*"))
TOKENS = [f"{name}_token_{kind}" for name in ("image", "boi", "eoi") for kind in ("index", "id")]
TEXT = gemma3_text.TINY
TINY = {
    **{"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "torch_dtype": "float32"},
    **{"bos_token_id": 1, "eos_token_id": 2, "mm_tokens_per_image": 4, "image_token_index": 127, "text_config": TEXT},
    "vision_config": {
        **{"model_type": "siglip_vision_model", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1},
        **{"num_attention_heads": 2, "image_size": 16, "patch_size": 4, "vision_use_head": False},
    },
}
SPELLED_ANEW = {**TEXT, **gemma3_text.VARIANTS["layer types, new spelling"], "tie_word_embeddings": False}
VARIANTS = {
    "untied, biases": {
        "tie_word_embeddings": False,
        "text_config": {**TEXT, "attention_bias": True, "hidden_activation": "gelu", "rms_norm_eps": 0.1},
    },
    "layer types, new spelling": {"text_config": {k: v for k, v in SPELLED_ANEW.items() if v is not ...}},
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The language model that a config.json describes."""
    ignored = [*TOKENS, "mm_tokens_per_image"]
    text, tied = read_text_part(hf, "gemma3_text", gemma3_text.DEFAULTS, tied=True, ignored=ignored)
    text.skip(["tie_word_embeddings"])
    # transformers caps no logits here, others do: what such a file means is open.
    text.neutral({"final_logit_softcapping": (None,)})
    return gemma3_text.read(text, "gemma3", tied_head=tied)
