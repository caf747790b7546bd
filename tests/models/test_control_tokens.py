"""Control tokens that are text, hidden from a chat template and shown again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from zoo.models.control_tokens import ControlTokens
from zoo.models.errors import ZooError


def tokenizer(**options: Any) -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({token: index for index, token in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(
        [AddedToken("<e>", special=True, **options), AddedToken("<e>>", special=True, **options)]
    )
    backend.add_tokens([AddedToken("<think>")])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<e>")


PLAIN = tokenizer()
CONTROL = ControlTokens(PLAIN)
texts = st.lists(st.sampled_from(["<e>", "<e>>", "<think>", "a", " ", "é", "<", ">"]), max_size=12).map("".join)


@given(texts)
def test_hidden_texts_come_back(text: str) -> None:
    hidden = CONTROL.hide(text)
    assert CONTROL.show(hidden) == text
    assert CONTROL.found(hidden) is None


@given(st.lists(st.tuples(texts, st.sampled_from(["<e>.", "<e>>.", "x"])), max_size=4))
def test_hidden_control_tokens_are_encoded_as_text_and_others_as_themselves(parts: list[tuple[str, str]]) -> None:
    ids = CONTROL.encode("".join(CONTROL.hide(text) + own for text, own in parts), add_special_tokens=False)
    assert PLAIN.decode(ids) == "".join(text + own for text, own in parts)
    control = [token.content for token in PLAIN.added_tokens_decoder.values() if token.special]
    written = [PLAIN.convert_ids_to_tokens(token) for token in ids]
    assert [token for token in written if token in control] == [own[:-1] for _, own in parts if own != "x"]


@pytest.mark.parametrize("side", ["lstrip", "rstrip"])
def test_control_tokens_that_take_the_space_beside_them_do_so_still(side: str) -> None:
    spaced = tokenizer(**{side: True})
    ids = ControlTokens(spaced).encode(CONTROL.hide("a<e>") + " <e> " + "b", add_special_tokens=False)
    expected = spaced("a_e_ <e> b", add_special_tokens=False)["input_ids"]
    assert len(ids) == len(expected) and ids[-1] == expected[-1]
    assert ids[4:] == expected[4:]


def test_names_of_fields_and_numbers_are_left_alone() -> None:
    value = {"<e>": [1, None, True, "<e>"]}
    assert CONTROL.hide(value) == {"<e>": [1, None, True, CONTROL.hide("<e>")]}


def test_characters_that_would_be_mistaken_are_refused() -> None:
    with pytest.raises(ZooError, match="private use"):
        CONTROL.hide("\U000f0000")
