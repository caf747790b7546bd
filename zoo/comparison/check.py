"""`zoo parity`: a model against `transformers` on its source, or against another model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from zoo.models.errors import ZooError, report_all
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
from .side import Side
from .sides import Ours, open_ours, open_reference, special_ids, tokenizer_of, tolerance_between

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
        other = open_reference(ours, against, stack)
        tolerance, described_dtype = tolerance_between(ours, other)
        notes: list[str] = []
        # First of all, while neither torch nor a tokenizer is in memory: the engine needs all parameters at once.
        continued = continue_greedily(ours, notes, say)
        tokenizer = tokenizer_of(ours.source.tokenizer_folder)
        texts = list(read_texts(ours, tokenizer, prompts, notes))
        say("building the reference")
        reference = other.make()
        _check_sizes(ours, reference)
        documents = [*texts, *((f"{one.name}, continued", one.ids) for one in continued)]
        special = special_ids(ours.source.tokenizer_folder)
        probe = make_probe(ours.source.config, documents, special=special, longest=longest)
        comparison = compare_layers(ours.native, reference, probe, tolerance, say)
        has_experts = any(".router." in path for path in abstract_parameters(ours.source.config))
        checks = [
            *logit_checks(comparison, tolerance, probe, has_experts),
            block_check(comparison),
            *greedy_checks(continued, comparison, probe, tolerance),
            *text_checks(ours, tokenizer, other.tokenizer_folder),
        ]
        return make_report(
            ours, tokenizer, reference, probe, comparison, checks, continued, notes, tolerance, described_dtype
        )


def _check_sizes(ours: Ours, reference: Side) -> None:
    """Refuses sides that are other networks."""
    sizes = (
        ("the vocabularies differ", "logits", ours.native.vocab, reference.vocab),
        ("the depths differ", "blocks", ours.native.blocks, reference.blocks),
        ("the widths differ", "elements an activation", ours.native.embed, reference.embed),
    )
    report_all(
        (
            f"{what}: {ours.name} has {mine} {unit}, {reference.description} {theirs}"
            for what, unit, mine, theirs in sizes
            if mine != theirs
        ),
        "these are other networks, which cannot be compared:",
    )


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
    config = ours.source.config
    for name, text in TEXTS.items():
        ids = tokenizer.encode(text)
        if max(ids, default=0) < config.vocab:
            yield name, ids
        else:
            notes.append(f"text {name!r}: the tokenizer makes token {max(ids)} of it, the model has {config.vocab}")
    for number, prompt in enumerate(given, 1):
        ids = tokenizer.chat(prompt.messages) if prompt.text is None else tokenizer.encode(prompt.text)
        if max(ids, default=0) >= config.vocab:
            raise ZooError(
                f"{prompts}: prompt {number}: the tokenizer makes token {max(ids)} of it, but {ours.name} has "
                f"{config.vocab} tokens; is the tokenizer another model's?"
            )
        limit = config.learned_positions or config.max_positions
        if len(ids) > limit:
            raise ZooError(f"{prompts}: prompt {number}: {len(ids)} tokens; {ours.name} has {limit} positions")
        yield f"prompt {number}", ids
