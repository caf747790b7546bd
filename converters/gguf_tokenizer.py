"""The tokenizer inside a GGUF file, written as the files that `transformers` loads a fast tokenizer from.

Two kinds. `gpt2` is byte-pair encoding over bytes written as printable characters, with its merges in the file.
`llama` is SentencePiece's encoding over characters: the file holds a score for each piece, and the pair that makes the
piece of the highest score is merged first, so the merges follow from the scores.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, normalizers, processors
from tokenizers.models import BPE

from zoo.models.errors import ZooError, report_all

from .gguf_pre_tokenizers import pre_tokenizer

# SentencePiece's mark for a space.
SPACE = "\u2581"
# Names of the tokens that a tokenizer treats specially, here and in `transformers`.
SPECIAL = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}
SHOWN_PROBLEMS = 10


class Kind(IntEnum):
    """The numbers in `tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a GGUF file, checked. `special` maps names of `SPECIAL` to ids."""

    tokens: Sequence[str]
    kinds: Sequence[int]
    ids: Mapping[str, int]
    special: Mapping[str, int]


def write_tokenizer(metadata: Mapping[str, Any], directory: Path, where: str = "the GGUF file") -> list[str]:
    """Writes tokenizer.json and tokenizer_config.json, the chat template inside; returns the files' names.

    Args:
        metadata: the metadata of a GGUF file.
        directory: an existing directory.
        where: how an error names the file.

    Raises:
        ZooError: a part of the tokenizer is missing, contradictory or not known.
    """
    model = metadata.get("tokenizer.ggml.model")
    if model not in ("gpt2", "llama"):
        found = "nothing" if model is None else repr(model)
        raise ZooError(f"{where}: tokenizer.ggml.model: expected 'gpt2' or 'llama', found {found}")
    vocabulary = _read_vocabulary(metadata, where)
    if model == "gpt2":
        tokenizer, add_bos = _byte_level(metadata, vocabulary, where)
    else:
        tokenizer, add_bos = _sentencepiece(metadata, vocabulary, where), True
    adds = {
        "bos_token": bool(metadata.get("tokenizer.ggml.add_bos_token", add_bos)),
        "eos_token": bool(metadata.get("tokenizer.ggml.add_eos_token", False)),
    }
    report_all(
        (
            f"it adds its {name} to a text, and has none"
            for name, add in adds.items()
            if add and name not in vocabulary.special
        ),
        f"{where}: the tokenizer contradicts itself:",
    )
    _add_special_tokens(tokenizer, vocabulary)
    _add_template(tokenizer, vocabulary, adds)
    tokenizer.save(str(directory / "tokenizer.json"))
    config = _tokenizer_config(metadata, vocabulary, adds)
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    (directory / "tokenizer_config.json").write_text(text, encoding="utf-8")
    return ["tokenizer.json", "tokenizer_config.json"]


def _read_vocabulary(metadata: Mapping[str, Any], where: str) -> Vocabulary:
    tokens = metadata.get("tokenizer.ggml.tokens")
    kinds = metadata.get("tokenizer.ggml.token_type")
    if not tokens or not kinds or len(tokens) != len(kinds):
        raise ZooError(
            f"{where}: expected tokenizer.ggml.tokens and a tokenizer.ggml.token_type for each, "
            f"found {len(tokens or [])} tokens and {len(kinds or [])} types"
        )
    ids: dict[str, int] = {}
    problems: list[str] = []
    for index, token in enumerate(tokens):
        if ids.setdefault(token, index) != index:
            problems.append(f"token {index} is {token!r} again, like token {ids[token]}")
    known = {int(kind) for kind in Kind}
    problems += [f"token {index} has unknown type {kind}" for index, kind in enumerate(kinds) if kind not in known]
    special: dict[str, int] = {}
    for name, key in SPECIAL.items():
        index = metadata.get(f"tokenizer.ggml.{key}")
        if index is None:
            continue
        if type(index) is int and 0 <= index < len(tokens):
            special[name] = index
        else:
            problems.append(f"tokenizer.ggml.{key} is {index!r}, there are {len(tokens)} tokens")
    _report_some(problems, f"{where}: the vocabulary contradicts itself:")
    return Vocabulary(tokens, kinds, ids, special)


def _byte_level(metadata: Mapping[str, Any], vocabulary: Vocabulary, where: str) -> tuple[Tokenizer, bool]:
    """The tokenizer, and whether such a one begins a text with its bos token where the file does not say."""
    if metadata.get("tokenizer.ggml.add_space_prefix"):
        raise ZooError(f"{where}: tokenizer.ggml.add_space_prefix is not supported for a 'gpt2' tokenizer")
    pre = pre_tokenizer(metadata.get("tokenizer.ggml.pre"), where)
    merges: list[tuple[str, str]] = []
    problems: list[str] = []
    for index, merge in enumerate(metadata.get("tokenizer.ggml.merges", [])):
        left, _, right = merge.partition(" ")
        if left in vocabulary.ids and right in vocabulary.ids and left + right in vocabulary.ids:
            merges.append((left, right))
        else:
            problems.append(f"merge {index}, {merge!r}: its parts and what they make must be tokens")
    _report_some(problems, f"{where}: merges that do not fit the vocabulary:")
    tokenizer = Tokenizer(BPE(dict(vocabulary.ids), merges, ignore_merges=pre.ignore_merges))
    tokenizer.pre_tokenizer = pre.build()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, pre.add_bos


def _sentencepiece(metadata: Mapping[str, Any], vocabulary: Vocabulary, where: str) -> Tokenizer:
    for key in ("remove_extra_whitespaces", "precompiled_charsmap"):
        if metadata.get(f"tokenizer.ggml.{key}"):
            raise ZooError(f"{where}: tokenizer.ggml.{key} is not supported for a 'llama' tokenizer")
    scores = metadata.get("tokenizer.ggml.scores", [])
    if len(scores) != len(vocabulary.tokens):
        raise ZooError(
            f"{where}: expected tokenizer.ggml.scores for {len(vocabulary.tokens)} tokens, found {len(scores)}"
        )
    unknown = vocabulary.special.get("unk_token")
    tokenizer = Tokenizer(
        BPE(
            dict(vocabulary.ids),
            _merges_of_scores(vocabulary, scores),
            unk_token=None if unknown is None else vocabulary.tokens[unknown],
            fuse_unk=True,
            byte_fallback=Kind.BYTE in vocabulary.kinds,
        )
    )
    prefix = metadata.get("tokenizer.ggml.add_space_prefix", True)
    mark = normalizers.Replace(" ", SPACE)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), mark]) if prefix else mark
    strip = [decoders.Strip(" ", left=1, right=0)] if prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer


def _merges_of_scores(vocabulary: Vocabulary, scores: Sequence[float]) -> list[tuple[str, str]]:
    """Every way to make a piece of two others, those of the highest score first.

    Only what text can be made of takes part: control tokens and bytes are written like text but are none.
    """
    pieces = {
        token: index
        for index, token in enumerate(vocabulary.tokens)
        if vocabulary.kinds[index] in (Kind.NORMAL, Kind.UNUSED)
    }
    merges: list[tuple[float, int, int, str, str]] = []
    for piece, index in pieces.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in pieces and right in pieces:
                merges.append((-scores[index], pieces[left], pieces[right], left, right))
    return [(left, right) for *_, left, right in sorted(merges)]


def _add_special_tokens(tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    """Tokens that are found in a text before it is cut; those for control are left out of decoded text on request."""
    named = set(vocabulary.special.values())
    added = [
        AddedToken(token, special=kind != Kind.USER_DEFINED or index in named, normalized=False)
        for index, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.kinds, strict=True))
        if token and (kind in (Kind.CONTROL, Kind.UNKNOWN, Kind.USER_DEFINED) or index in named)
    ]
    tokenizer.add_tokens(added)  # pyright: ignore[reportUnknownMemberType]  # the stub says a bare Sequence


def _add_template(tokenizer: Tokenizer, vocabulary: Vocabulary, adds: Mapping[str, bool]) -> None:
    used = [name for name, add in adds.items() if add]
    if not used:
        return

    def around(text: str) -> list[str]:
        segment = text[-1]
        before = [f"bos_token:{segment}"] if "bos_token" in used else []
        after = [f"eos_token:{segment}"] if "eos_token" in used else []
        return [*before, text, *after]

    tokenizer.post_processor = processors.TemplateProcessing(
        single=around("$A:0"),
        pair=[*around("$A:0"), *around("$B:1")],
        special_tokens=[
            {"id": name, "ids": [vocabulary.special[name]], "tokens": [vocabulary.tokens[vocabulary.special[name]]]}
            for name in used
        ],
    )


def _tokenizer_config(metadata: Mapping[str, Any], vocabulary: Vocabulary, adds: Mapping[str, bool]) -> dict[str, Any]:
    config: dict[str, Any] = {
        # The class that takes tokenizer.json as it is; a model's own would rebuild parts of it.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **{f"add_{name}": add for name, add in adds.items()},
        **{name: vocabulary.tokens[index] for name, index in vocabulary.special.items()},
    }
    context = metadata.get(f"{metadata.get('general.architecture')}.context_length")
    if context is not None:
        config["model_max_length"] = context
    templates = _chat_templates(metadata)
    if set(templates) == {"default"}:
        config["chat_template"] = templates["default"]
    elif templates:
        config["chat_template"] = [{"name": name, "template": text} for name, text in templates.items()]
    return config


def _chat_templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    prefix = "tokenizer.chat_template."
    templates = {key.removeprefix(prefix): text for key, text in metadata.items() if key.startswith(prefix)}
    default = metadata.get("tokenizer.chat_template")
    return templates if default is None else {"default": default, **templates}


def _report_some(problems: Sequence[str], heading: str) -> None:
    """Like `report_all`, but a vocabulary can be wrong in a hundred thousand places."""
    rest = len(problems) - SHOWN_PROBLEMS
    report_all([*problems[:SHOWN_PROBLEMS], *([f"and {rest} more"] if rest > 0 else [])], heading)
