"""How a byte-level tokenizer cuts a text into words before it merges: what the names in `tokenizer.ggml.pre` stand for.

GGUF keeps only a name. The patterns themselves are part of each tokenizer's definition, so they are written down here,
one entry for each way of cutting that models of the llama architecture use.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex, pre_tokenizers

from zoo.models.errors import ZooError

# English contractions, words, numbers and punctuation each with one leading space, runs of whitespace.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LINES_AND_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_LLAMA3 = rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_SYMBOLS}|{_LINES_AND_SPACES}"
# Words are cut where a lower-case letter is followed by an upper-case one.
_HEAD, _TAIL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_HEAD}*{_TAIL}+SUFFIX|[^\r\n\p{{L}}\p{{N}}]?{_HEAD}+{_TAIL}*SUFFIX|DIGITS|"
    rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_LINES_AND_SPACES}"
)


@dataclass(frozen=True)
class PreTokenizer:
    """Patterns that cut a text one after the other, each into its matches and what lies between them.

    `ignore_merges`: a word that is in the vocabulary is one token, whatever the merges would make of it.
    `add_bos`: whether a text begins with a token of its own where the file does not say.
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False

    def build(self) -> pre_tokenizers.PreTokenizer:
        cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in self.patterns]
        to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([*cuts, to_bytes])


_SINGLE_DIGITS = PreTokenizer((r"\p{N}", _GPT2))
_LIKE_LLAMA3 = PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True)
_LIKE_DBRX = PreTokenizer((_LLAMA3,))

PRE_TOKENIZERS = {
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    "gpt-2": PreTokenizer((_GPT2,)),
    "smollm": _SINGLE_DIGITS,
    "starcoder": _SINGLE_DIGITS,
    "refact": _SINGLE_DIGITS,
    "minerva-7b": _SINGLE_DIGITS,
    "llama-bpe": _LIKE_LLAMA3,
    "llama-v3": _LIKE_LLAMA3,
    "llama3": _LIKE_LLAMA3,
    "falcon3": _LIKE_LLAMA3,
    "dbrx": _LIKE_DBRX,
    "smaug-bpe": _LIKE_DBRX,
    "tekken": PreTokenizer(
        (_CASED.replace("SUFFIX", "").replace("DIGITS", r"\p{N}"),), ignore_merges=True, add_bos=True
    ),
    "gpt-4o": PreTokenizer((_CASED.replace("SUFFIX", f"{_CONTRACTION}?").replace("DIGITS", r"\p{N}{1,3}"),)),
    "deepseek-coder": PreTokenizer(
        (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", r"\p{N}")
    ),
    "seed-coder": PreTokenizer(
        (rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_LINES_AND_SPACES}",)
    ),
}


def pre_tokenizer(name: str | None, where: str) -> PreTokenizer:
    """The pre-tokenizer that `tokenizer.ggml.pre` names.

    Raises:
        ZooError: there is no name, or it is not known: a text cut in the wrong places still encodes, into wrong tokens.
    """
    if name in PRE_TOKENIZERS:
        return PRE_TOKENIZERS[name]
    found = "nothing; convert the original model again with a newer converter" if name is None else repr(name)
    raise ZooError(f"{where}: tokenizer.ggml.pre: expected one of {', '.join(PRE_TOKENIZERS)}; found {found}")
