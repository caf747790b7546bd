"""`zoo parity`: a model against `transformers` on its source, or against another model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from zoo.models.errors import ZooError
from zoo.models.parameters import abstract_parameters
from zoo.models.tokenizer import Tokenizer

from ..decoding import read_prompts
from ..model import DTYPES
from .checks import block_check, greedy_checks, logit_checks, text_checks
from .greedy import continue_greedily
from .lockstep import compare_layers
from .probe import TEXTS, make_probe
from .records import make_report
from .report import Report
from .sides import Ours, open_ours, open_reference, special_ids, tokenizer_of

LONGEST = 1024


def parity(
    model: str | Path,
    against: str | Path | None = None,
    *,
    dtype: str = "float32",
    prompts: Path | None = None,
    longest: int = LONGEST,
    on_progress: Callable[[str], None] | None = None,
) -> Report:
    """Compares a model with another implementation of it, block by block and at every position.

    Args:
        model: a store, a Hugging Face directory, a GGUF file or a catalog name; this side is ours.
        against: a Hugging Face directory, which `transformers` runs in float32, or a store or GGUF file, which we run;
            by default the directory that the model is, or that it was converted from.
        dtype: what our side computes in: float32, bfloat16 or float16.
        prompts: a JSON lines file of prompts, read beside the built-in documents.
        longest: the most tokens of a random document.
        on_progress: called with a few words as the work goes on.

    Returns:
        The report; `passed` says whether all of its checks hold.

    Raises:
        ZooError: a side is missing or bad, they have other vocabularies, or torch is needed and not installed.
    """
    if dtype not in DTYPES:
        raise ZooError(f"unknown dtype {dtype!r}; expected one of {', '.join(DTYPES)}")
    if longest < 8:
        raise ZooError(f"longest: expected at least 8 tokens, found {longest}")
    say = on_progress or (lambda _: None)
    with ExitStack() as stack:
        ours = open_ours(str(model), dtype, stack)
        folder, make_reference = open_reference(ours, against, stack)
        notes: list[str] = []
        # First of all, while neither torch nor a tokenizer is in memory: the engine needs all parameters at once.
        continued = continue_greedily(ours, notes, say)
        tokenizer = tokenizer_of(ours.source.tokenizer_folder)
        texts = list(read_texts(ours, tokenizer, prompts, notes))
        say("building the reference")
        reference = make_reference()
        if reference.vocab != ours.native.vocab:
            raise ZooError(
                f"the vocabularies differ: {ours.name} has {ours.native.vocab} logits, {reference.description} "
                f"{reference.vocab}; they cannot be compared"
            )
        documents = [*texts, *((f"{one.name}, continued", one.ids) for one in continued)]
        special = special_ids(ours.source.tokenizer_folder)
        probe = make_probe(ours.source.config, documents, special=special, longest=longest)
        comparison = compare_layers(ours.native, reference, probe, ours.tolerance, say)
        has_experts = any(".router." in path for path in abstract_parameters(ours.source.config))
        checks = [
            *logit_checks(comparison, ours.tolerance, probe, has_experts),
            block_check(comparison),
            *greedy_checks(continued, comparison, probe, ours.tolerance),
            *text_checks(ours, tokenizer, folder),
        ]
        return make_report(ours, tokenizer, reference, probe, comparison, checks, continued, notes)


def read_texts(
    ours: Ours, tokenizer: Tokenizer | None, prompts: Path | None, notes: list[str]
) -> Iterator[tuple[str, list[int]]]:
    """Texts as ids, by our tokenizer."""
    given = [] if prompts is None else read_prompts(prompts)
    if tokenizer is None:
        if given:
            raise ZooError(f"{ours.name}: the checkpoint has no tokenizer; it cannot read --prompts")
        notes.append("texts: the checkpoint has no tokenizer")
        return
    for name, text in TEXTS.items():
        yield name, tokenizer.encode(text)
    for number, prompt in enumerate(given, 1):
        ids = tokenizer.chat(prompt.messages) if prompt.text is None else tokenizer.encode(prompt.text)
        yield f"prompt {number}", ids
