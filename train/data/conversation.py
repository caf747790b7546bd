"""Conversations: their messages as rows spell them, and where in the rendered text the assistant speaks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.models.errors import ZooError
from zoo.models.tokenizer import Tokenizer

# Who speaks, by the names that ShareGPT's rows use.
ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "function_call": "assistant",
    "tool": "tool",
    "observation": "tool",
    "function_response": "tool",
}
ASSISTANT = "assistant"

Message = dict[str, Any]


def read_messages(value: Any, field: str) -> list[Message]:
    """The messages of a row's field, with texts for contents.

    Raises:
        ZooError: it is no list of messages, or one holds something else than text.
    """
    if not isinstance(value, list) or not value:
        raise ZooError(f"{field}: expected a list of messages, found {_kind(value)}")
    return [_message(item, f"{field}[{number}]") for number, item in enumerate(value)]


def _message(value: Any, where: str) -> Message:
    if not isinstance(value, Mapping):
        raise ZooError(f'{where}: expected {{"role": ..., "content": TEXT}}, found {_kind(value)}')
    message = {name: item for name, item in value.items() if item is not None}
    if "from" in message and "role" not in message:
        speaker = message.pop("from")
        if speaker not in ROLES:
            raise ZooError(f"{where}.from: expected one of {', '.join(ROLES)}, found {speaker!r}")
        message = {"role": ROLES[speaker], "content": message.pop("value", None), **message}
    if not isinstance(message.get("role"), str):
        raise ZooError(f"{where}.role: expected a role such as user or assistant, found {_kind(message.get('role'))}")
    if message.get("content") is None and message.get("tool_calls"):
        # Templates test its truth, or add it to a text.
        return message | {"content": ""}
    return message | {"content": _content(message.get("content"), f"{where}.content")}


def _content(value: Any, where: str) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise ZooError(f"{where}: expected a text, found {_kind(value)}")
    parts: list[str] = []
    for number, part in enumerate(value):
        if not isinstance(part, Mapping) or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, Mapping) else None
            raise ZooError(f"{where}[{number}]: expected a part with a text, found {kind or _kind(part)}")
        parts.append(part["text"])
    return "".join(parts)


def read_tools(value: Any) -> list[Any] | None:
    """The descriptions of tools that a row offers, which many files hold as JSON in a text.

    Raises:
        ZooError: they are no list.
    """
    if isinstance(value, str) and value.strip():
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ZooError(f"tools: not JSON: {error}") from None
    if not value:
        return None
    if not isinstance(value, list):
        raise ZooError(f"tools: expected a list, found {_kind(value)}")
    return value


def assistant_spans(
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    *,
    tools: Sequence[Any] | None = None,
    variables: Mapping[str, Any] | None = None,
    first: int = 0,
    only_last: bool = False,
) -> tuple[str, list[tuple[int, int]]]:
    """The rendered conversation, and from where to where in it the assistant speaks, each time with its end.

    A template that marks the assistant's words is believed. For any other, the text that belongs to a turn is what
    the turn adds: the difference between the conversation before it, with the words that let the assistant begin, and
    the conversation with it. Never is the text searched for the words of a turn, which may stand elsewhere too.

    Args:
        variables: what the template knows beside the messages.
        first: the first message that may be learned.
        only_last: learn the last of the assistant's turns and no other.

    Raises:
        ZooError: the template refuses the messages, or writes a turn otherwise once others follow.
    """
    turns = [number for number, message in enumerate(messages) if message["role"] == ASSISTANT and number >= first]
    turns = turns[-1:] if only_last else turns
    everyone = sum(message["role"] == ASSISTANT for message in messages)
    marked = tokenizer.render_marked(messages, tools=tools, variables=variables)
    if marked is not None and len(marked[1]) == everyone:
        text, spans = marked
        skipped = everyone - len(turns)
        return text, [(start, _with_end(tokenizer, text, stop)) for start, stop in spans[skipped:]]

    def render(count: int, generation_prompt: bool) -> str:
        return tokenizer.render(messages[:count], tools=tools, variables=variables, generation_prompt=generation_prompt)

    text = render(len(messages), False)
    return text, [
        _turn(number, text, render(number, True), text if number == len(messages) - 1 else render(number + 1, False))
        for number in turns
    ]


def _turn(number: int, text: str, before: str, after: str) -> tuple[int, int]:
    """From where to where in `text` a turn stands, by the texts of the conversation before and after it."""
    if not text.startswith(before):
        raise ZooError(
            f"messages[{number}]: the chat template writes what comes before this turn otherwise once it is there, "
            f"{_difference(before, text)}; so the model would learn from a prompt that decoding never gives it"
        )
    if not text.startswith(after):
        raise ZooError(
            f"messages[{number}]: the chat template writes this turn otherwise once others follow, "
            f"{_difference(after, text)}; learn only the last turn of each conversation (turns: last)"
        )
    if len(after) <= len(before):
        raise ZooError(f"messages[{number}]: the chat template writes nothing for this turn")
    return len(before), len(after)


def _with_end(tokenizer: Tokenizer, text: str, stop: int) -> int:
    """Where a turn ends when the token that ends it is counted in; templates often mark only the words."""
    for token in tokenizer.eos:
        end = tokenizer.written([token])
        if end and text.startswith(end, stop):
            return stop + len(end)
    return stop


def _difference(one: str, other: str) -> str:
    same = next((number for number, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(other))
    begin = max(0, same - 20)
    return f"{one[begin : same + 20]!r} and then {other[begin : same + 20]!r}"


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    return f"{type(value).__name__} {str(value)[:40]!r}"
