"""Control tokens that somebody wrote as text, which must stay text.

A user who writes `<|im_end|>` would otherwise end his turn and could begin another one in the system's name. Such
texts are hidden behind characters for private use while a chat template writes the conversation; what then looks like
a control token was written by the template.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .errors import ZooError

# The first of 65,534 characters that Unicode leaves to private use, and that no font or keyboard has.
FIRST = 0xF0000


class ControlTokens:
    """The tokens of a tokenizer that are no text."""

    def __init__(self, tokenizer: Any):
        """Takes them from a transformers tokenizer: those it calls special."""
        self._tokenizer = tokenizer
        added = {token.content: token for token in tokenizer.added_tokens_decoder.values() if token.special}
        # The longest first, as one may begin with another.
        self._tokens = sorted({*tokenizer.all_special_tokens, *added} - {""}, key=lambda token: (-len(token), token))
        self._added = added
        self._ids = frozenset(tokenizer.convert_tokens_to_ids(self._tokens))
        self._hidden = {token: chr(FIRST + number) for number, token in enumerate(self._tokens)}
        self._pattern = re.compile("|".join(map(re.escape, self._tokens))) if self._tokens else None
        self._private = re.compile(f"[{chr(FIRST)}-{chr(FIRST + max(0, len(self._tokens) - 1))}]")

    def found(self, text: str) -> str | None:
        """A control token that a text has in it."""
        match = self._pattern.search(text) if self._pattern else None
        return match[0] if match else None

    def is_hidden(self, text: str) -> bool:
        return bool(self._private.search(text))

    def hide(self, value: Any) -> Any:
        """A text, or lists and objects with texts in them, with each control token as a character for private use.

        Raises:
            ZooError: a text has such characters already.
        """
        if isinstance(value, str):
            if self.is_hidden(value):
                raise ZooError("the text has characters for private use (U+F0000 and following); remove them")
            pattern = self._pattern
            return pattern.sub(lambda match: self._hidden[match[0]], value) if pattern else value
        if isinstance(value, Mapping):
            return {name: self.hide(item) for name, item in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, bytes):
            return [self.hide(item) for item in value]
        return value

    def show(self, text: str) -> str:
        """The text that was hidden."""
        return self._private.sub(lambda match: self._tokens[ord(match[0]) - FIRST], text)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Ids of a text in which control tokens are themselves, and hidden ones are ordinary text.

        Raises:
            ZooError: the tokenizer cannot write these as text.
        """
        whole = self._plain(text, add_special_tokens)
        if not self.is_hidden(text):
            return whole
        # In pieces, as the tokenizer either knows control tokens or does not.
        if self._in_pieces(text, add_special_tokens) == whole:
            shown = self._in_pieces(text, add_special_tokens, show=True)
            if sum(token in self._ids for token in shown) == sum(token in self._ids for token in whole):
                return shown
        token = self.found(self.show("".join(self._private.findall(text))))
        raise ZooError(f"the text has the control token {token}, which this tokenizer cannot keep as text; remove it")

    def _in_pieces(self, text: str, add_special_tokens: bool, show: bool = False) -> list[int]:
        parts = re.split(f"({self._pattern.pattern})", text) if self._pattern else [text]
        ids: list[int] = []
        for number, part in enumerate(parts):
            if number % 2:
                ids.append(self._tokenizer.convert_tokens_to_ids(part))
                continue
            before = self._added.get(parts[number - 1]) if number else None
            after = self._added.get(parts[number + 1]) if number + 1 < len(parts) else None
            part = part.lstrip() if before is not None and before.rstrip else part
            part = part.rstrip() if after is not None and after.lstrip else part
            # What the tokenizer puts around a text is put around the first piece.
            around = add_special_tokens and number == 0
            if part or around:
                ids += self._plain(self.show(part) if show else part, around, split_special_tokens=True)
        return ids

    def _plain(self, text: str, add_special_tokens: bool, split_special_tokens: bool = False) -> list[int]:
        return list(
            self._tokenizer(
                text,
                add_special_tokens=add_special_tokens,
                split_special_tokens=split_special_tokens,
                verbose=False,
            )["input_ids"]
        )
