"""`zoo decode`: prompts in, text out as it is made."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.models.errors import ZooError, report_all

from .compilation import keep_compiled_programs
from .model import Model, load


@dataclass(frozen=True)
class Prompt:
    """One line of a prompts file, or the prompt of the command line: a text or a conversation."""

    text: str | None = None
    messages: tuple[dict[str, str], ...] = ()

    def encode(self, model: Model, raw: bool) -> list[int]:
        if self.text is not None:
            return model.encode(self.text, raw=raw)
        if model.tokenizer is None:
            raise ZooError("the checkpoint has no tokenizer; it cannot read messages")
        if raw:
            raise ZooError("messages need the chat template; give texts with --raw")
        return model.tokenizer.chat(self.messages)


def decode(
    model_name: str,
    *,
    prompt: str | None,
    prompts: Path | None,
    raw: bool,
    dtype: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Continues one prompt, or each of a file's, and prints the texts.

    Raises:
        ZooError: not exactly one of `prompt` and `prompts` is given, or either or the model is bad.
    """
    if (prompt is None) == (prompts is None):
        raise ZooError("expected either --prompt TEXT or --prompts FILE.jsonl")
    wanted = [Prompt(text=prompt)] if prompts is None else read_prompts(prompts)
    keep_compiled_programs()
    model = load(model_name, dtype)
    if model.tokenizer is None:
        raise ZooError(f"{model_name}: the checkpoint has no tokenizer, so it can neither read nor write text")
    ids = [one.encode(model, raw) for one in wanted]
    printer = _Silent() if as_json else _Printer(len(ids))
    results = model.generate(ids, on_text=printer.on_text, **options)
    printer.finish()
    if as_json:
        for index, result in enumerate(results):
            line = {
                "index": index,
                "text": result.text,
                "finish_reason": result.finish_reason,
                "prompt_tokens": len(ids[index]),
                "tokens": result.tokens,
            }
            print(json.dumps(line, ensure_ascii=False))


def read_prompts(path: Path) -> list[Prompt]:
    """The prompts of a JSON lines file.

    Raises:
        ZooError: the file is missing or empty, or lines are not `{"prompt": TEXT}` or `{"messages": [...]}`.
    """
    try:
        # Not `splitlines`, which also divides at characters that JSON allows inside a text, such as U+2028.
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ZooError(f"{path}: cannot read prompts: {getattr(error, 'strerror', None) or error}") from None
    found: list[Prompt] = []
    wrong: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(_parse(line))
        except ValueError as error:
            wrong.append(f"line {number}: {error}")
    report_all(wrong, f"{path}: bad prompts:")
    if not found:
        raise ZooError(f'{path}: no prompts; expected lines such as {{"prompt": "Hello"}}')
    return found


def _parse(line: str) -> Prompt:
    """The prompt of one line; a ValueError says what is wrong with it."""
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    if isinstance(value, dict):
        text, messages = value.get("prompt"), value.get("messages")
        if isinstance(text, str) and messages is None:
            return Prompt(text=text)
        if text is None and isinstance(messages, list) and messages and all(map(_is_message, messages)):
            return Prompt(messages=tuple(messages))
    raise ValueError(
        f'expected {{"prompt": TEXT}} or {{"messages": [{{"role": ..., "content": TEXT}}]}}, found {line[:80]}'
    )


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str) and isinstance(value.get("content"), str)


class _Printer:
    """Streams one text to stdout as it comes; several are printed at the end, each behind its number."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._texts = [""] * count

    def on_text(self, index: int, text: str) -> None:
        if self._count == 1:
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            self._texts[index] += text

    def finish(self) -> None:
        if self._count == 1:
            print(flush=True)
        else:
            for index, text in enumerate(self._texts, 1):
                print(f"[{index}] {text}", flush=True)


class _Silent:
    def on_text(self, index: int, text: str) -> None:
        pass

    def finish(self) -> None:
        pass
