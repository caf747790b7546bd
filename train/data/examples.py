"""Rows to token ids, and which of them are learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from zoo.models.errors import ZooError
from zoo.models.tokenizer import Tokenizer

from .conversation import ASSISTANT, Message, assistant_spans, read_messages, read_tools
from .shapes import SHAPES, Shape
from .spans import encode_spans

# A tokenizer's normaliser may shorten a text, though hardly to a quarter.
NORMALISED = 4

# The prompt that Stanford Alpaca's rows were made for, where there is no chat template to say it.
ALPACA = "### Instruction:\n{instruction}\n\n{input}### Response:\n"
ALPACA_INPUT = "### Input:\n{input}\n\n"


# A text, from where to where in it is learned, and whether it is raw: without a template around it.
_Marked = tuple[str, list[tuple[int, int]], bool]


class TooLong(ZooError):
    """An example has more tokens than there is place for."""


class NothingLearned(ZooError):
    """No token of an example counts in the loss."""


@dataclass(frozen=True)
class Example:
    """A text to learn.

    Attributes:
        tokens: int32 [tokens]
        learned: bool [tokens]; whether the model learns to write the token.
        truncated: whether tokens at the end were left out.
        literal: whether it has control tokens in it that were kept as text.
    """

    tokens: np.ndarray
    learned: np.ndarray
    truncated: bool = False
    literal: bool = False


@dataclass(frozen=True)
class EncodingOptions:
    """How rows become examples.

    Attributes:
        max_length: the most tokens of an example.
        too_long: what becomes of longer ones: an error, its first `max_length` tokens, or nothing. Under "drop",
            as under "error", the encoder raises; whoever asked for the row leaves it out.
        nothing_learned: what becomes of those no token of which is learned: an error, or nothing.
        turns: which of the assistant's turns are learned.
        control_tokens: what a control token is that a row's text has in it: text, or in rows that were rendered
            beforehand the token. In a conversation it is always text.
        variables: what the chat template knows beside the messages. Templates that write today's date make other
            tokens tomorrow; a run that is to be repeated or continued names the date.
    """

    max_length: int
    too_long: Literal["error", "truncate", "drop"] = "error"
    nothing_learned: Literal["error", "skip"] = "error"
    turns: Literal["all", "last"] = "all"
    control_tokens: Literal["text", "parse"] = "text"
    variables: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if self.max_length < 2:
            raise ZooError(
                f"max_length: expected at least 2, a token to read and one to learn, found {self.max_length}"
            )


class Encoder:
    """Rows of any shape to examples, by a checkpoint's tokenizer."""

    def __init__(self, tokenizer: Tokenizer, options: EncodingOptions):
        self.tokenizer = tokenizer
        self.options = options
        self._most_characters = NORMALISED * options.max_length * tokenizer.longest_token

    def encode(self, row: Mapping[str, Any], shape: Shape) -> Example:
        """The example of a row that is not of preferences.

        Raises:
            TooLong: and `too_long` is not "truncate".
            NothingLearned: none of its tokens counts in the loss, perhaps since it was truncated.
            ZooError: the row does not fit its shape, or the template does not fit the row; names the field.
        """
        if shape.name == "preference":
            raise ZooError("expected rows to imitate, found pairs of preferences (chosen, rejected)")
        return self._finish(*self._spans(row, shape))

    def encode_pair(self, row: Mapping[str, Any]) -> tuple[Example, Example]:
        """The chosen and the rejected example of a row of preferences, in both of which the answer is learned.

        Raises:
            ZooError: as `encode`; or an answer is neither text nor messages.
        """
        chosen, rejected = (self._spans(*_answered(row, name)) for name in ("chosen", "rejected"))
        return self._finish(*chosen), self._finish(*rejected)

    def describe(self, shape: Shape) -> str:
        """How rows of a shape are read, and what is learned of them, for people."""
        templated = shape.name in {"chat", "conversations"} or (
            shape.name == "instruction" and self.tokenizer.has_chat_template
        )
        how = "by the chat template" if templated else "as plain text"
        if shape.name in {"completion", "preference"}:
            how = "texts as they are, messages by the chat template"
        return f"{shape}, {how}; learned: {shape.learned}"

    def _spans(self, row: Mapping[str, Any], shape: Shape) -> _Marked:
        match shape.name:
            case "chat" | "conversations":
                [field] = shape.fields
                messages = read_messages(row[field], field)
                if isinstance(row.get("system"), str) and row["system"] and messages[0]["role"] != "system":
                    messages = [{"role": "system", "content": row["system"]}, *messages]
                return self._chat(messages, row, 0)
            case "instruction":
                return self._instruction(row)
            case "text":
                text = self._raw(_text(row, "text"))
                _check_answer(text, "text")
                return text, [(0, len(text))], True
            case _:
                return self._completion(row)

    def _chat(self, messages: Sequence[Message], row: Mapping[str, Any], first: int) -> _Marked:
        tools = read_tools(row.get("tools"))
        only_last = self.options.turns == "last"
        text, spans = assistant_spans(
            self.tokenizer,
            messages,
            tools=tools,
            variables=self.options.variables,
            first=first,
            only_last=only_last,
        )
        return text, spans, False

    def _instruction(self, row: Mapping[str, Any]) -> _Marked:
        instruction, output = _text(row, "instruction"), _text(row, "output")
        _check_answer(output, "output")
        more = _text(row, "input") if row.get("input") is not None else ""
        if self.tokenizer.has_chat_template:
            asked = f"{instruction}\n\n{more}" if more else instruction
            messages = [{"role": "user", "content": asked}, {"role": ASSISTANT, "content": output}]
            if isinstance(row.get("system"), str) and row["system"]:
                messages = [{"role": "system", "content": row["system"]}, *messages]
            return self._chat(messages, row, 0)
        prompt = ALPACA.format(instruction=instruction, input=ALPACA_INPUT.format(input=more) if more else "")
        return self._joined(prompt, output)

    def _completion(self, row: Mapping[str, Any]) -> _Marked:
        prompt, completion = row["prompt"], row["completion"]
        if isinstance(prompt, str) and isinstance(completion, str):
            return self._joined(prompt, completion)
        if isinstance(prompt, list) and isinstance(completion, list):
            before = read_messages(prompt, "prompt")
            return self._chat([*before, *read_messages(completion, "completion")], row, len(before))
        raise ZooError(
            "prompt, completion: expected two texts or two lists of messages, "
            f"found {type(prompt).__name__} and {type(completion).__name__}"
        )

    def _joined(self, prompt: str, answer: str) -> _Marked:
        _check_answer(answer, "answer")
        prompt, answer = self._raw(prompt), self._raw(answer)
        return prompt + answer, [(len(prompt), len(prompt) + len(answer))], True

    def _raw(self, text: str) -> str:
        hidden = self.tokenizer.control.hide(text)
        return text if self.options.control_tokens == "parse" else hidden

    def _finish(self, text: str, spans: list[tuple[int, int]], raw: bool) -> Example:
        """Ids of a text, within the length."""
        most, truncate = self.options.max_length, self.options.too_long == "truncate"
        cut = len(text) > self._most_characters
        if cut and not truncate:
            raise TooLong(f"the example has more than {most} tokens, in {len(text)} characters")
        if cut:
            text = text[: self._most_characters]
            spans = [(start, min(stop, len(text))) for start, stop in spans if start < len(text)]
        ids, learned = encode_spans(self.tokenizer, text, spans, add_special_tokens=raw)
        if raw:
            ids, learned = self._ended(ids, learned)
        if len(ids) > most and not truncate:
            raise TooLong(f"the example has {len(ids)} tokens; at most {most} are wanted")
        example = Example(
            np.array(ids[:most], np.int32),
            np.array(learned[:most], np.bool_),
            truncated=cut or len(ids) > most,
            literal=self.tokenizer.control.is_hidden(text),
        )
        # The first token is read and never predicted.
        example.learned[:1] = False
        if not example.learned.any():
            after = f" within its first {most}" if example.truncated else ""
            why = "the answer is cut off" if spans else "it has no turn of the assistant"
            raise NothingLearned(f"no token of the example is learned{after}: {why}")
        return example

    def _ended(self, ids: list[int], learned: list[bool]) -> tuple[list[int], list[bool]]:
        """With the end of text, once, and learned."""
        end = self.tokenizer.end
        if end is None:
            raise ZooError("the tokenizer has no end of text (eos_token) to learn; name one in tokenizer_config.json")
        if ids and ids[-1] == end:
            return ids, [*learned[:-1], True]
        return [*ids, end], [*learned, True]


def _answered(row: Mapping[str, Any], name: str) -> tuple[dict[str, Any], Shape]:
    """A row with one of its two answers alone."""
    answer, prompt = row[name], row.get("prompt")
    rest = {"tools": row.get("tools")}
    if prompt is None and isinstance(answer, list):
        # The prompt is what comes before the last turn, as in both answers.
        messages = read_messages(answer, name)
        return rest | {"prompt": messages[:-1], "completion": messages[-1:]}, SHAPES["completion"]
    if isinstance(prompt, str) and isinstance(answer, list):
        messages = read_messages(answer, name)
        # Many files repeat the prompt as the first message of each answer.
        before = messages[:-1] if len(messages) > 1 else [{"role": "user", "content": prompt}]
        return rest | {"prompt": before, "completion": messages[-1:]}, SHAPES["completion"]
    return rest | {"prompt": prompt or "", "completion": answer}, SHAPES["completion"]


def _text(row: Mapping[str, Any], field: str) -> str:
    value = row[field]
    if not isinstance(value, str):
        raise ZooError(f"{field}: expected a text, found {type(value).__name__} {str(value)[:40]!r}")
    return value


def _check_answer(text: str, name: str) -> None:
    """Refuses to teach that a text ends where it begins, which is what an empty field comes to."""
    if not text.strip():
        raise NothingLearned(f"no token of the example is learned: the {name} is empty")
