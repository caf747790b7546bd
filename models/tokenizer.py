"""Text to token ids and back, with the tokenizer that a checkpoint carries."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import xxhash

from .control_tokens import ControlTokens
from .errors import ZooError
from .json_file import read_json

# What a decoder writes for bytes that are no UTF-8, or not yet.
REPLACEMENT = "\ufffd"
# A character of UTF-8 lacks at most three bytes, and a decoder writes at most one replacement for each byte it has.
INCOMPLETE = 3
# The fewest and the most tokens that are decoded again with new ones, as the text of some depends on those before
# them. A character has at most four tokens, so among so many lengths one begins at a character.
CONTEXT = range(4, 9)


class Tokenizer:
    """A checkpoint's tokenizer, its chat template, and the ids that end a text.

    Attributes:
        eos: every id that ends a text, by config.json, generation_config.json or the tokenizer. They often disagree,
            and a model that was taught to write any of them means to stop.
    """

    def __init__(self, tokenizer: Any, eos: frozenset[int] = frozenset()):
        """Wraps a transformers tokenizer; `eos` are ids beside its own that end a text."""
        self._tokenizer = tokenizer
        own = tokenizer.eos_token_id
        self.eos = eos if own is None else eos | {own}

    @classmethod
    def load(cls, directory: Path) -> Tokenizer:
        """The tokenizer among the files of a Hugging Face directory.

        Raises:
            ZooError: there is none, or it cannot be read.
        """
        # Its advice to install torch is not ours: only tokenizers are taken from it.
        os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
        except Exception as error:  # the library raises whatever its parsers raise
            raise ZooError(f"{directory}: cannot load a tokenizer: {error}") from error
        return cls(tokenizer, eos_of_files(directory))

    @cached_property
    def control(self) -> ControlTokens:
        """Its tokens that are no text."""
        return ControlTokens(self._tokenizer)

    @property
    def has_chat_template(self) -> bool:
        return bool(self._tokenizer.chat_template)

    def encode(self, text: str) -> list[int]:
        """Ids of a text, with the special tokens that the tokenizer puts around one, such as BOS.

        Raises:
            ZooError: the text has no UTF-8 form.
        """
        _check_text(text)
        return self._single_bos(self._tokenizer.encode(text))

    def chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Ids of a conversation up to where the assistant's answer begins, by the chat template.

        Control tokens in the messages are ordinary text.

        Raises:
            ZooError: there is no template, it refuses these messages, or one has no UTF-8 form.
        """
        return self.encode_part(self.render(messages, generation_prompt=True))

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None = None,
        variables: Mapping[str, Any] | None = None,
        generation_prompt: bool,
    ) -> str:
        """The text of a conversation by the chat template, with control tokens in the messages hidden.

        Args:
            variables: what this template knows beside the messages, such as a date or whether to think.

        Raises:
            ZooError: there is no template, it refuses these messages, or one has no UTF-8 form.
        """
        return self._render(messages, tools, variables, generation_prompt)[0]

    def render_marked(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> tuple[str, list[tuple[int, int]]] | None:
        """The text as by `render`, and from where to where in it the assistant speaks.

        None where the template does not say so, as most do not.
        """
        if not re.search(r"\{%-?\s*generation\s*-?%\}", self._template(tools)):
            return None
        return self._render(messages, tools, variables, False, marks=True)

    def encode_part(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Ids of a text that `render` or `control.hide` made.

        Args:
            add_special_tokens: whether to put around it what the tokenizer puts around a text, such as BOS.

        Raises:
            ZooError: a hidden control token cannot be kept as text.
        """
        return self._single_bos(self.control.encode(text, add_special_tokens=add_special_tokens))

    def offsets(self, text: str, *, add_special_tokens: bool = False) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids of a text, and from where to where in it each of them stands."""
        found = self._tokenizer(text, add_special_tokens=add_special_tokens, return_offsets_mapping=True, verbose=False)
        ids = list(found["input_ids"])
        kept = len(self._single_bos(ids))
        return ids[len(ids) - kept :], [(start, stop) for start, stop in found["offset_mapping"][len(ids) - kept :]]

    @property
    def end(self) -> int | None:
        """The id that ends a text where one is to be written: the tokenizer's own, or the only one there is."""
        own = self._tokenizer.eos_token_id
        return own if own is not None or len(self.eos) != 1 else next(iter(self.eos))

    @cached_property
    def fingerprint(self) -> str:
        """Says of two tokenizers whether they make the same ids of everything."""
        rules = self._tokenizer.backend_tokenizer.to_str()
        whole = repr((rules, self._tokenizer.chat_template, self._tokenizer.special_tokens_map, sorted(self.eos)))
        return xxhash.xxh3_128_hexdigest(whole.encode())

    @cached_property
    def longest_token(self) -> int:
        """Characters of the longest token; a text of n times as many has more than n tokens."""
        return max(map(len, self._tokenizer.get_vocab()))

    def written(self, ids: Sequence[int]) -> str:
        """The text of ids with all their special tokens."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def _template(self, tools: Sequence[Any] | None) -> str:
        if not self.has_chat_template:
            raise ZooError("the tokenizer has no chat template: give the prompt as raw text")
        return self._tokenizer.get_chat_template(None, tools)

    def _render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Any] | None,
        variables: Mapping[str, Any] | None,
        generation_prompt: bool,
        marks: bool = False,
    ) -> tuple[str, list[tuple[int, int]]]:
        for message in messages:
            if isinstance(message.get("content"), str):
                _check_text(message["content"])
        template = self._template(tools)
        from transformers.utils.chat_template_utils import render_jinja_template

        try:
            # Not `apply_chat_template`, which gives the assistant's spans in tokens, and not for every tokenizer.
            [text], spans = render_jinja_template(
                [self.control.hide(list(messages))],
                tools=self.control.hide(list(tools)) if tools else None,
                chat_template=template,
                add_generation_prompt=generation_prompt,
                return_assistant_tokens_mask=marks,
                **{**self._tokenizer.special_tokens_map, **(variables or {})},
            )
        except ZooError:
            raise
        except Exception as error:  # templates are programs of the checkpoint and raise what they like
            raise ZooError(f"the chat template refused the messages: {error}") from error
        return text, [(int(start), int(stop)) for start, stop in spans[0]] if marks else []

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, without special tokens and without tidying up spaces."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def _single_bos(self, ids: Sequence[int]) -> list[int]:
        """Undoes a BOS written by both the template, or the text, and the tokenizer."""
        doubled = len(ids) > 1 and ids[0] == ids[1] == self._tokenizer.bos_token_id
        return list(ids[1:] if doubled else ids)


def _check_text(text: str) -> None:
    """Refuses half characters, which is what bytes that are no UTF-8 become on a command line."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ZooError(
            f"the prompt is not UTF-8: character {error.start + 1} is {text[error.start]!a}; give it in UTF-8"
        ) from None


class TextStream:
    """The text of ids that arrive one by one, in pieces that together equal the text of them all.

    Only whole characters are given out: one whose bytes are spread over several tokens is held back until it is
    complete, or until more of its bytes are there than any character has.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._given = ""

    def push(self, token: int) -> str:
        """The text that is certain now and was not before."""
        self._window.append(token)
        text = self._tokenizer.decode(self._window)
        held = min(len(text) - len(text.rstrip(REPLACEMENT)), INCOMPLETE)
        piece = self._give(text[: len(text) - held])
        if not held and len(self._window) > 2 * CONTEXT.stop:
            self._forget(text)
        return piece

    def finish(self) -> str:
        """What was held back, now that no more will come."""
        return self._give(self._tokenizer.decode(self._window))

    def _forget(self, text: str) -> None:
        """Shortens the window to a tail that decodes to the tail of `text` and begins at a character."""
        for size in CONTEXT:
            tail = self._tokenizer.decode(self._window[-size:])
            if text.endswith(tail) and not tail.startswith(REPLACEMENT):
                self._window, self._given = self._window[-size:], tail
                return

    def _give(self, text: str) -> str:
        if not text.startswith(self._given):
            return ""
        piece = text[len(self._given) :]
        self._given = text
        return piece


def eos_of_files(directory: Path) -> frozenset[int]:
    """The end ids named by config.json and generation_config.json, each of which may have none, one or a list."""
    found: set[int] = set()
    for name in ("config.json", "generation_config.json"):
        path = directory / name
        if not path.is_file():
            continue
        ids = read_json(path).get("eos_token_id")
        every = ids if isinstance(ids, list) else [ids]
        if not all(item is None or (isinstance(item, int) and not isinstance(item, bool)) for item in every):
            raise ZooError(f"{path}: eos_token_id: expected a token id, a list of them or null, found {ids!r}")
        found.update(item for item in every if item is not None and item >= 0)
    return frozenset(found)
