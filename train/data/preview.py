"""Examples as they will be learned, to be looked at before they are."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from rich.text import Text

from zoo.models.tokenizer import Tokenizer

from .dataset import Dataset
from .examples import Example

LEARNED = "black on green"
READ = "dim"
# Tokens of an example that are shown.
MOST_TOKENS = 2000


def preview(dataset: Dataset, count: int = 3, most_tokens: int = MOST_TOKENS) -> Iterator[Text]:
    """Lines that show the first `count` examples: learned tokens in colour, those only read dim.

    Raises:
        ZooError: a row cannot be read or encoded, or is too long by the encoder's options.
    """
    yield Text.assemble(("⟦learned⟧", LEARNED), " ", ("only read", READ))
    for index in range(min(count, len(dataset))):
        example = dataset.example(index)
        learned = int(example.learned.sum())
        yield Text(f"{dataset.where(index)}: {len(example.tokens)} tokens, {learned} learned", style="bold")
        yield from shown(dataset.encoder.tokenizer, example, most_tokens)


def shown(tokenizer: Tokenizer, example: Example, most_tokens: int = MOST_TOKENS) -> list[Text]:
    """The lines of an example's text.

    Tokens that are learned and that are not are told apart without colour too: learned ones stand between ⟦ and ⟧.
    """
    whole = Text()
    for ids, learned in _runs(example, most_tokens):
        text = tokenizer.written(ids)
        whole.append(f"⟦{text}⟧" if learned else text, style=LEARNED if learned else READ)
    if len(example.tokens) > most_tokens:
        whole.append(f" … and {len(example.tokens) - most_tokens} more tokens", style="italic")
    return list(whole.split("\n", allow_blank=True))


def _runs(example: Example, most_tokens: int) -> Iterator[tuple[list[int], bool]]:
    """Tokens one after another that are all learned, or all not: some characters have several tokens."""
    tokens, learned = example.tokens[:most_tokens].tolist(), example.learned[:most_tokens].tolist()
    for mark, run in groupby(zip(tokens, learned, strict=True), key=itemgetter(1)):
        yield [token for token, _ in run], mark
