"""Tokenizers through a GGUF file and back: the same ids and the same text as the one that went in."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer

from zoo.converters.gguf import GgufFile
from zoo.converters.gguf_pre_tokenizers import PRE_TOKENIZERS, pre_tokenizer
from zoo.converters.gguf_tokenizer import SPACE, Kind, write_tokenizer
from zoo.models.errors import ZooError

from .gguf_files import LLAMA, write_gguf

CORPUS = [
    "The quick brown fox doesn't jump over 12345 lazy dogs; it'll wait. The THE the foxes' 3.14159",
    "def area(radius):\n    return 3.14 * radius ** 2  # squared\n\n\nclass Circle:\n\tpass\r\n",
    "\u6771\u4eac\u306f\u65e5\u672c\u306e\u9996\u90fd\u3067\u3059\u3002 caf\u00e9 cafe\u0301 2024 2025 2026",
    "\U0001f600\U0001f468\u200d\U0001f469 \u0939\u093f\u0928\u094d\u0926\u0940",
]
# Words of the corpus, special tokens and anything else, in any order.
TEXTS = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "the",
                " quick",
                "'LL",
                "<|end|>",
                "<s>",
                "</s>",
                "[tool]",
                "123",
                "   ",
                "\n\n",
                "\t",
                "\u4e2d",
                "e\u0301",
                SPACE,
                "<0x0A>",
            ]
        ),
        st.text(max_size=8),
    ),
    max_size=12,
).map("".join)
many = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def byte_level(pre: pre_tokenizers.PreTokenizer, *, ignore_merges: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    tokenizer.add_tokens([AddedToken("[tool]", normalized=False)])
    return tokenizer


def smollm() -> Tokenizer:
    return byte_level(
        pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        ),
        ignore_merges=False,
    )


def llama3() -> Tokenizer:
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer = byte_level(
        pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
        ignore_merges=True,
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=["<s>", "$A"], pair=["<s>", "$A", "<s>:1", "$B:1"], special_tokens=[("<s>", 0)]
    )
    return tokenizer


def metadata_of(tokenizer: Tokenizer, pre: str) -> dict[str, Any]:
    """What a GGUF file keeps of a byte-level tokenizer."""
    model = json.loads(tokenizer.to_str())
    vocabulary = tokenizer.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    kinds = [int(Kind.NORMAL)] * len(tokens)
    for added in model["added_tokens"]:
        kinds[added["id"]] = int(Kind.CONTROL if added["special"] else Kind.USER_DEFINED)
    return {
        **LLAMA,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
    }


def through_gguf(metadata: dict[str, Any], folder: Path) -> Any:
    """The tokenizer that `transformers` loads after a trip through a GGUF file."""
    file = GgufFile.open(write_gguf(folder / "model.gguf", metadata))
    assert write_tokenizer(file.metadata, folder) == ["tokenizer.json", "tokenizer_config.json"]
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module", params=[("smollm", smollm), ("llama-bpe", llama3)], ids=lambda param: param[0])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, Any]:
    name, make = request.param
    original: Tokenizer = make()
    return original, through_gguf(metadata_of(original, name), tmp_path_factory.mktemp("tokenizer"))


@given(text=TEXTS)
@many
def test_byte_level_tokenizers_come_back(pair: tuple[Tokenizer, Any], text: str) -> None:
    original, ours = pair
    ids = original.encode(text).ids
    assert ours.encode(text) == ids
    for skip in (True, False):
        assert ours.decode(ids, skip_special_tokens=skip) == original.decode(ids, skip_special_tokens=skip)


def test_pairs_and_special_tokens(pair: tuple[Tokenizer, Any]) -> None:
    original, ours = pair
    both = original.encode("the fox", "the dog")
    assert ours("the fox", "the dog")["input_ids"] == both.ids
    assert (ours.bos_token, ours.eos_token, ours.pad_token) == ("<s>", "<|end|>", None)
    assert ours.decode(ours.encode("[tool] fox<|end|>"), skip_special_tokens=True) == "[tool] fox"


# A tokenizer scored like SentencePiece's, small enough to check by hand.
PIECES = {
    "<unk>": (Kind.UNKNOWN, 0.0),
    "<s>": (Kind.CONTROL, 0.0),
    "</s>": (Kind.CONTROL, 0.0),
    **{f"<0x{byte:02X}>": (Kind.BYTE, 0.0) for byte in range(256)},
    **{
        piece: (Kind.NORMAL, -float(rank))
        for rank, piece in enumerate(
            "he __ _t th in _the the qu ick ic _qu ck nn inn er ____ 12 23 123 ee hee hh".replace("_", SPACE).split()
        )
    },
    **{letter: (Kind.NORMAL, -1000.0 - rank) for rank, letter in enumerate(f"{SPACE}theinrquck123<>s/0xA|d")},
    "<|end|>": (Kind.CONTROL, -2000.0),
    "[tool]": (Kind.USER_DEFINED, -2000.0),
}


def sentencepiece(**changes: Any) -> dict[str, Any]:
    return {
        **LLAMA,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": list(PIECES),
        "tokenizer.ggml.scores": [score for _, score in PIECES.values()],
        "tokenizer.ggml.token_type": [int(kind) for kind, _ in PIECES.values()],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        **{f"tokenizer.ggml.{key}": value for key, value in changes.items()},
    }


def best_pairs_first(text: str) -> list[str]:
    """SentencePiece's definition: again and again join the two neighbours that make the piece of the highest score."""
    scores = {piece: score for piece, (kind, score) in PIECES.items() if kind is Kind.NORMAL}
    symbols = list(text)
    while True:
        joins = [(-scores[a + b], at) for at, (a, b) in enumerate(pairwise(symbols)) if a + b in scores]
        if not joins:
            break
        _, at = heapq.nsmallest(1, joins)[0]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    return [
        token
        for symbol in symbols
        for token in ([symbol] if symbol in scores else [f"<0x{byte:02X}>" for byte in symbol.encode()])
    ]


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return through_gguf(sentencepiece(), tmp_path_factory.mktemp("tokenizer"))


@given(text=st.text(alphabet="theinqurck 123\n\u4e2d\u00e9", max_size=24))
@many
def test_scores_become_the_right_merges(scored: Any, text: str) -> None:
    expected = best_pairs_first(SPACE + text.replace(" ", SPACE)) if text else []
    assert scored.tokenize(text) == expected
    assert scored.decode(scored.encode(text), skip_special_tokens=True) == text


def test_sentencepiece_by_hand(scored: Any) -> None:
    def tokens(text: str) -> list[str]:
        return scored.convert_ids_to_tokens(scored.encode(text))

    assert tokens("the quick") == ["<s>", f"{SPACE}the", f"{SPACE}qu", "ick"]
    assert tokens("\u4e2d") == ["<s>", SPACE, "<0xE4>", "<0xB8>", "<0xAD>"]
    assert tokens("the<|end|>the[tool]the") == [
        *("<s>", f"{SPACE}the", "<|end|>", f"{SPACE}the", "[tool]", f"{SPACE}the"),
    ]
    # What is written like a byte is text.
    assert tokens("<0x0A>")[1:] == [SPACE, "<", "0", "x", "0", "A", ">"]


def test_without_a_space_before_the_text(tmp_path: Path) -> None:
    ours = through_gguf(sentencepiece(add_space_prefix=False), tmp_path)
    assert ours.tokenize("the quick") == ["the", f"{SPACE}qu", "ick"]
    assert ours.decode(ours.encode(" the"), skip_special_tokens=True) == " the"


@pytest.mark.parametrize(
    ("adds", "before", "after"),
    [({}, [1], []), ({"add_bos_token": False}, [], []), ({"add_eos_token": True}, [1], [2])],
)
def test_tokens_around_a_text(adds: dict[str, bool], before: list[int], after: list[int], tmp_path: Path) -> None:
    ours = through_gguf(sentencepiece(**adds), tmp_path)
    middle = ours.encode("the", add_special_tokens=False)
    assert ours.encode("the") == [*before, *middle, *after]


def test_special_tokens_are_so_whatever_their_type_says(tmp_path: Path) -> None:
    metadata = sentencepiece(padding_token_id=list(PIECES).index("hh"))
    ours = through_gguf(metadata, tmp_path)
    assert ours.pad_token == "hh"
    assert ours.decode(ours.encode("hh"), skip_special_tokens=True) == ""


def test_chat_template_and_context(tmp_path: Path) -> None:
    template = "{% for message in messages %}{{ message['content'] }}<|end|>{% endfor %}"
    ours = through_gguf({**sentencepiece(), "tokenizer.chat_template": template}, tmp_path)
    assert ours.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "hi<|end|>"
    assert ours.model_max_length == 128


def test_several_chat_templates(tmp_path: Path) -> None:
    templates = {"tokenizer.chat_template": "plain", "tokenizer.chat_template.tool_use": "tools"}
    ours = through_gguf({**sentencepiece(), "tokenizer.chat_templates": ["tool_use"], **templates}, tmp_path)
    messages = [{"role": "user", "content": "hi"}]
    assert ours.apply_chat_template(messages, tokenize=False) == "plain"
    assert ours.apply_chat_template(messages, chat_template="tool_use", tokenize=False) == "tools"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("default", ["I", "'", "m", " ", " Bob", ",", " ", "123", "45"]),
        ("gpt-2", ["I", "'m", " ", " Bob", ",", " 12345"]),
        ("smollm", ["I", "'m", " ", " Bob", ",", " ", "1", "2", "3", "4", "5"]),
        ("llama-bpe", ["I", "'m", " ", " Bob", ",", " ", "123", "45"]),
        ("tekken", ["I", "'m", " ", " Bob", ",", " ", "1", "2", "3", "4", "5"]),
        ("gpt-4o", ["I'm", " ", " Bob", ",", " ", "123", "45"]),
        ("seed-coder", ["I", "'m", " ", " Bob", ",", " ", "1", "2", "3", "4", "5"]),
        ("deepseek-coder", ["I", "'", "m", " ", " Bob", ",", " ", "1", "2", "3", "4", "5"]),
    ],
)
def test_where_words_are_cut(name: str, words: list[str]) -> None:
    cut = PRE_TOKENIZERS[name].build().pre_tokenize_str("I'm  Bob, 12345")
    assert [word.replace("\u0120", " ") for word, _ in cut] == words


@pytest.mark.parametrize("name", ["llama-4-of-2031", None])
def test_an_unknown_way_to_cut_is_refused_with_the_known(name: str | None) -> None:
    with pytest.raises(ZooError, match=r"a\.gguf: tokenizer\.ggml\.pre: expected one of default, gpt-2, smollm.*found"):
        pre_tokenizer(name, "a.gguf")


Change = Callable[[dict[str, Any]], None]


def spoil(**changes: Any) -> Change:
    return lambda metadata: metadata.update({f"tokenizer.ggml.{key}": value for key, value in changes.items()})


def replace(key: str, index: int, value: Any) -> Change:
    return lambda metadata: metadata[f"tokenizer.ggml.{key}"].__setitem__(index, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (spoil(model="bert"), "expected 'gpt2' or 'llama', found 'bert'"),
        (spoil(model=None), "expected 'gpt2' or 'llama', found nothing"),
        (spoil(token_type=[1, 1]), "tokens and 2 types"),
        (spoil(token_type=None), "tokens and 0 types"),
        (replace("tokens", 9, "<s>"), "token 9 is '<s>' again, like token 0"),
        (replace("token_type", 9, 7), "token 9 has unknown type 7"),
        (spoil(merges=["a b c"]), "merge 0, 'a b c'"),
        (spoil(merges=["zz yy"] * 50), "and 40 more"),
        (spoil(eos_token_id=100000), "tokenizer.ggml.eos_token_id is 100000"),
        (spoil(bos_token_id=None, add_bos_token=True), "adds its bos_token to a text, and has none"),
        (spoil(add_space_prefix=True), "add_space_prefix is not supported"),
        (spoil(model="llama"), "expected tokenizer.ggml.scores for"),
        (spoil(model="llama", remove_extra_whitespaces=True), "remove_extra_whitespaces is not supported"),
    ],
)
def test_a_tokenizer_that_contradicts_itself(change: Change, message: str, tmp_path: Path) -> None:
    metadata = metadata_of(smollm(), "smollm")
    change(metadata)
    with pytest.raises(ZooError, match=message):
        write_tokenizer({key: value for key, value in metadata.items() if value is not None}, tmp_path)
    assert list(tmp_path.iterdir()) == []
