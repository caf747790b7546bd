"""Ids of a text of which some spans are learned, with the boundaries of spans at boundaries of tokens."""

from __future__ import annotations

from collections.abc import Sequence

from zoo.models.errors import ZooError
from zoo.models.tokenizer import Tokenizer


def encode_spans(
    tokenizer: Tokenizer, text: str, spans: Sequence[tuple[int, int]], *, add_special_tokens: bool = False
) -> tuple[list[int], list[bool]]:
    """Ids of a text, and which of them are learned.

    A token may lie across the boundary of a span ("A: " and "yes" have the token " yes"). Decoding never makes it, as
    there the prompt is encoded alone; so the text is then encoded in pieces too, if the tokenizer can encode a piece
    without adding to it. If it cannot, such a token is learned.

    Args:
        text: with control tokens hidden, as `Tokenizer.render` writes it.
        spans: from which to which character of it is learned, in order and apart.

    Raises:
        ZooError: a hidden control token cannot be kept as text.
    """
    pieces = _pieces(text, spans)
    apart = [
        tokenizer.encode_part(piece, add_special_tokens=add_special_tokens and number == 0)
        for number, (piece, _) in enumerate(pieces)
    ]
    ids = [token for piece in apart for token in piece]
    learned = [mark for piece, (_, mark) in zip(apart, pieces, strict=True) for _ in piece]
    if len(pieces) == 1:
        return ids, learned
    whole = tokenizer.encode_part(text, add_special_tokens=add_special_tokens)
    if ids == whole or tokenizer.written(ids) == tokenizer.written(whole):
        return ids, learned
    if tokenizer.control.is_hidden(text):
        raise ZooError("the text has control tokens in it, which this tokenizer cannot keep as text; remove them")
    return _by_offsets(tokenizer, text, spans, add_special_tokens)


def _pieces(text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[str, bool]]:
    pieces: list[tuple[str, bool]] = []
    end = 0
    for start, stop in spans:
        pieces += [(text[end:start], False), (text[start:stop], True)]
        end = stop
    return [piece for piece in [*pieces, (text[end:], False)] if piece[0]] or [("", False)]


def _by_offsets(
    tokenizer: Tokenizer, text: str, spans: Sequence[tuple[int, int]], add_special_tokens: bool
) -> tuple[list[int], list[bool]]:
    """The ids of the whole text; a token is learned if any of its characters is."""
    ids, offsets = tokenizer.offsets(text, add_special_tokens=add_special_tokens)
    learned = [any(begin < stop and end > start for start, stop in spans) for begin, end in offsets]
    return ids, learned
