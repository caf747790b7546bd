"""Tokenizers, rows and files for the tests of training data, all made in memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from zoo.models.tokenizer import Tokenizer as OurTokenizer
from zoo.train.data.dataset import Dataset
from zoo.train.data.examples import Encoder, EncodingOptions, Example
from zoo.train.data.iterator import Batches, BatchOptions
from zoo.train.data.sources import Source
from zoo.train.data.survey import survey

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTROL = ("<s>", "<|im_start|>", "<|im_end|>")


def byte_level(template: str | None = CHATML, *, bos: bool = False, merges: Sequence[tuple[str, str]] = ()) -> Any:
    """Every byte is a token; so texts can be written down as what they are."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*alphabet, *(a + b for a, b in merges)])}
    backend = Tokenizer(models.BPE(vocabulary, list(merges)))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True) for token in CONTROL])
    if bos:
        start = backend.token_to_id("<s>")
        backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", start)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="<|im_end|>", chat_template=template
    )


def metaspace(template: str | None = None) -> Any:
    """As Llama 2: a space is part of the word after it, and a text begins as if with one."""
    words = ["<unk>", "▁", *(f"<0x{byte:02X}>" for byte in range(256)), "▁a", "▁b", "a", "b"]
    merges = [("▁", "a"), ("▁", "b")]
    backend = Tokenizer(
        models.BPE({word: index for index, word in enumerate(words)}, merges, byte_fallback=True, unk_token="<unk>")
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens([AddedToken(token, special=True) for token in CONTROL])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", bos_token="<s>", eos_token="<|im_end|>", chat_template=template
    )


def turns(*texts: str) -> list[dict[str, str]]:
    """A conversation in which the user begins."""
    return [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(texts)]


def encoder(tokenizer: Any = None, max_length: int = 4096, **options: Any) -> Encoder:
    tokenizer = byte_level() if tokenizer is None else tokenizer
    return Encoder(OurTokenizer(tokenizer), EncodingOptions(max_length, **options))


def marked(encoder: Encoder, example: Example) -> str:
    """The example's text with what is learned in brackets."""
    text, open_ = "", False
    for token, learned in zip(example.tokens.tolist(), example.learned.tolist(), strict=True):
        text += "[" if learned and not open_ else "]" if open_ and not learned else ""
        open_ = learned
        text += encoder.tokenizer.written([token])
    return text + "]" * open_


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any] | str]) -> Path:
    """Lines, of JSON or as they are."""
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def write_texts(path: Path, lengths: Sequence[int]) -> Path:
    """Rows of text, each of one character of its own, `lengths` times: of so many tokens and an end."""
    return write_jsonl(path, [{"text": chr(33 + number % 90) * length} for number, length in enumerate(lengths)])


def dataset(*paths: Path | Source, tokenizer: Any = None, **options: Any) -> Dataset:
    sources = [path if isinstance(path, Source) else Source((str(path),)) for path in paths]
    return Dataset(sources, encoder(tokenizer, **options))


def batches(data: Dataset, batch_size: int, seq_len: int, *, epochs: int | None = None, **options: Any) -> Batches:
    processes = {name: options.pop(name) for name in ("process_index", "process_count") if name in options}
    return Batches(data, survey(data), BatchOptions(batch_size, seq_len, **options), epochs=epochs, **processes)


def documents(tokens: np.ndarray, targets: np.ndarray, segment_ids: np.ndarray) -> list[tuple[int, ...]]:
    """The documents of a batch's arrays [batch, seq], put together again."""
    found: list[tuple[int, ...]] = []
    for row in range(len(tokens)):
        for segment in range(1, segment_ids[row].max(initial=0) + 1):
            here = segment_ids[row] == segment
            found.append((*tokens[row][here].tolist(), int(targets[row][here][-1])))
    return found
