"""Gemma 3 with its eyes: the language model of a repository that sees, whose other tensors are carried along.

Its configuration is an object in the file, and its tensors' names have a prefix that has changed over time. Whether the
head is tied says the file itself, whatever the object says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import ModelConfig

from ..blocks import ROPE_BUFFERS, prefixed
from ..hf_config import HARMLESS, NEUTRAL, Fields
from . import gemma3_text

ARCHITECTURES = ("Gemma3ForConditionalGeneration",)
# The prefix of the first releases, which transformers writes again since its version 5, has the head within; that of
# the versions between, and that of a language model cut out of its repository, have it outside.
OLD, BETWEEN = "language_model.model.", "model.language_model."
ROWS = prefixed(prefixed(gemma3_text.ROWS, "model.", OLD), "lm_head.", "language_model.lm_head.")
OTHER_ROWS = (prefixed(gemma3_text.ROWS, "model.", BETWEEN), gemma3_text.ROWS)
SIGHT = ("vision_tower.*", "multi_modal_projector.*")
BUFFERS = tuple(prefix + name.removeprefix("model.") for prefix in (OLD, BETWEEN, "model.") for name in ROPE_BUFFERS)
PASSENGERS = (*SIGHT, *(f"model.{name}" for name in SIGHT), *BUFFERS)
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
    whole = Fields(hf, {"tie_word_embeddings": True})
    tied = whole.boolean("tie_word_embeddings")
    text = Fields(whole.object("text_config"), gemma3_text.DEFAULTS, prefix="text_config.", problems=whole.problems)
    text.skip(["tie_word_embeddings"])
    # transformers caps no logits here, others do: what such a file means is open.
    text.neutral({"model_type": ("gemma3_text",), "final_logit_softcapping": (None,)})
    tokens = [f"{name}_token_{kind}" for name in ("image", "boi", "eoi") for kind in ("index", "id")]
    whole.neutral(NEUTRAL)
    whole.skip({*HARMLESS, *tokens, "vision_config", "mm_tokens_per_image", "pad_token_id"})
    whole.refuse_unknown()
    return gemma3_text.read(text, "gemma3", tied_head=tied)
