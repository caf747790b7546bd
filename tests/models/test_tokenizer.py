"""Prompts, end ids, and text that arrives token by token."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from zoo.models.errors import ZooError
from zoo.models.tokenizer import TextStream, eos_of_files
from zoo.models.tokenizer import Tokenizer as OurTokenizer

TEMPLATE = "{{ bos_token }}{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}"


def byte_level(*, merges: bool = True) -> PreTrainedTokenizerFast:
    """Every byte is a token, as in the byte-level BPE of most models; a few pairs are merged across characters."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [("Ã", "©"), ("h", "e"), ("he", "y"), ("Ġ", "h"), ("ð", "Ł")] if merges else []
    vocabulary = {token: index for index, token in enumerate([*alphabet, *(a + b for a, b in pairs)])}
    backend = Tokenizer(models.BPE(vocabulary, pairs))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    start = backend.token_to_id("<s>")
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", start)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>", chat_template=TEMPLATE)


def byte_fallback() -> PreTrainedTokenizerFast:
    """As Llama 2: whole words with a mark for the space before them, and bytes for whatever is no word."""
    words = ["<unk>", "▁hello", "▁world", "!", *(f"<0x{byte:02X}>" for byte in range(256))]
    backend = Tokenizer(models.BPE({word: index for index, word in enumerate(words)}, [], byte_fallback=True))
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


BYTE_LEVEL = OurTokenizer(byte_level())
BYTE_FALLBACK = OurTokenizer(byte_fallback())


@given(st.lists(st.integers(0, 262), max_size=40))
def test_pieces_of_any_tokens_add_up_to_the_text_of_them_all(ids: list[int]) -> None:
    stream = TextStream(BYTE_LEVEL)
    assert "".join([stream.push(token) for token in ids]) + stream.finish() == BYTE_LEVEL.decode(ids)


@given(st.text(max_size=20))
def test_pieces_are_whole_characters(text: str) -> None:
    ids = [token for token in BYTE_LEVEL.encode(text) if token < 256 + 5]
    stream = TextStream(BYTE_LEVEL)
    pieces = [stream.push(token) for token in ids]
    assert "".join(pieces) == text and stream.finish() == ""
    assert not any("\ufffd" in piece for piece in pieces if "\ufffd" not in text)


@given(st.lists(st.sampled_from(["▁hello", "▁world", "!", "é", "水", "🙂", "ñ", "a"]), max_size=30))
def test_bytes_beside_words_add_up_too(items: list[str]) -> None:
    """Strung together, bytes of whole characters; the first word has no space before it, and the others do."""
    ids: list[int] = []
    for item in items:
        ids += (
            [1 + ["▁hello", "▁world", "!"].index(item)]
            if item in ("▁hello", "▁world", "!")
            else [4 + byte for byte in item.encode()]
        )
    stream = TextStream(BYTE_FALLBACK)
    pieces = [stream.push(token) for token in ids]
    assert "".join(pieces) + stream.finish() == BYTE_FALLBACK.decode(ids)
    assert not any("\ufffd" in piece for piece in pieces)


@given(st.lists(st.integers(128, 255), max_size=60))
def test_hardly_anything_is_held_back(values: list[int]) -> None:
    """Bytes that are mostly no UTF-8: what is missing is at most one character's worth of replacements."""
    ids = BYTE_LEVEL._tokenizer.convert_tokens_to_ids(sorted(pre_tokenizers.ByteLevel.alphabet()))  # pyright: ignore[reportPrivateUsage]
    stream, given_out = TextStream(BYTE_LEVEL), ""
    for count, value in enumerate(values, 1):
        given_out += stream.push(ids[value])
        assert len(BYTE_LEVEL.decode([ids[item] for item in values[:count]])) - len(given_out) <= 3


def test_a_conversation_has_one_bos() -> None:
    messages = [{"role": "user", "content": "hey"}]
    ids = BYTE_LEVEL.chat(messages)
    assert ids.count(BYTE_LEVEL.encode("")[0]) == 1
    assert ids == BYTE_LEVEL.encode("<s><user>hey") == BYTE_LEVEL.encode("<user>hey")


def test_half_a_character_is_refused() -> None:
    for read in (BYTE_LEVEL.encode, lambda text: BYTE_LEVEL.chat([{"role": "user", "content": text}])):
        with pytest.raises(ZooError, match=r"not UTF-8: character 4 is '\\udcff'"):
            read("hey\udcff")


def test_without_a_template_a_conversation_is_refused() -> None:
    assert not BYTE_FALLBACK.has_chat_template
    with pytest.raises(ZooError, match="no chat template"):
        BYTE_FALLBACK.chat([{"role": "user", "content": "hey"}])


def test_a_template_that_refuses_is_an_error() -> None:
    tokenizer = byte_level()
    tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(ZooError, match="roles must alternate"):
        OurTokenizer(tokenizer).chat([{"role": "user", "content": "hey"}])


@pytest.mark.parametrize(
    ("config", "generation", "expected"),
    [(2, [101, 102], {2, 101, 102}), (None, 5, {5}), ([3, 4], None, {3, 4}), (-1, [], set[int]())],
)
def test_end_ids_are_the_union_of_all_files(
    tmp_path: Path, config: object, generation: object, expected: set[int]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": config}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": generation}))
    assert eos_of_files(tmp_path) == expected


def test_loading_adds_the_tokenizers_own_end(tmp_path: Path) -> None:
    byte_level().save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "eos_token_id": [7]}))
    tokenizer = OurTokenizer.load(tmp_path)
    assert tokenizer.eos == {7, BYTE_LEVEL._tokenizer.eos_token_id}  # pyright: ignore[reportPrivateUsage]
    assert tokenizer.chat([{"role": "user", "content": "hey"}]) == BYTE_LEVEL.chat([{"role": "user", "content": "hey"}])


def test_a_folder_without_a_tokenizer_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZooError, match="cannot load a tokenizer"):
        OurTokenizer.load(tmp_path)


def test_ids_without_a_token_have_no_text() -> None:
    """Embeddings are often padded to more rows than the tokenizer has tokens."""
    assert BYTE_LEVEL.decode([5000]) == ""
