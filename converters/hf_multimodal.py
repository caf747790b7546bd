"""Repositories that hold more than a language model: which part of their config.json is its, and which tensors.

Its configuration is an object in the file, and its tensors' names have a prefix that has changed over time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .blocks import ROPE_BUFFERS, prefixed
from .hf_config import HARMLESS, NEUTRAL, Fields
from .layout import Row

# The prefix of the first releases, with the head within; that of later ones has it outside.
OLD, BETWEEN = "language_model.model.", "model.language_model."


def old_names(rows: Iterable[Row]) -> tuple[Row, ...]:
    """The rows of a language model under the first prefix."""
    return prefixed(prefixed(rows, "model.", OLD), "lm_head.", "language_model.lm_head.")


def between_names(rows: Iterable[Row]) -> tuple[Row, ...]:
    """The rows of a language model under the later prefix."""
    return prefixed(rows, "model.", BETWEEN)


def passengers(others: Sequence[str]) -> tuple[str, ...]:
    """Templates of tensors that are carried along: `others`, within `model.` or not, and buffers."""
    buffers = (prefix + name.removeprefix("model.") for prefix in (OLD, BETWEEN, "model.") for name in ROPE_BUFFERS)
    return (*others, *(f"model.{name}" for name in others), *buffers)


def read_text_part(
    hf: Mapping[str, Any], model_type: str, defaults: Mapping[str, Any], *, tied: bool, ignored: Sequence[str] = ()
) -> tuple[Fields, bool]:
    """The fields of the language model, and whether its head is tied, which the file itself says.

    Args:
        model_type: that of the language model.
        defaults: what is laid under its fields.
        tied: whether the head is tied where the file does not say it.
        ignored: fields of the file that do not concern text.
    """
    whole = Fields(hf, {"tie_word_embeddings": tied})
    is_tied = whole.boolean("tie_word_embeddings")
    text = Fields(whole.object("text_config"), defaults, prefix="text_config.", problems=whole.problems)
    text.neutral({"model_type": (model_type,)})
    whole.neutral(NEUTRAL)
    whole.skip({*HARMLESS, *ignored, "vision_config", "audio_config", "pad_token_id"})
    whole.refuse_unknown()
    return text, is_tied
