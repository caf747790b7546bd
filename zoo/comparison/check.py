"""`zoo parity`: a model against `transformers` on its source, or against another model."""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import zoo
from zoo.converters.gguf_to_hf import gguf_to_hf
from zoo.models.abstract import AbstractParameter
from zoo.models.checkpoint import Store, is_store, open_store
from zoo.models.errors import ZooError
from zoo.models.json_file import read_json
from zoo.models.parameters import abstract_parameters
from zoo.models.tokenizer import Tokenizer, eos_of_files
from zoo.serve.engine import Engine

from ..allocator import trim
from ..catalog import resolve
from ..decoding import read_prompts
from ..model import DTYPES, TOKENIZER_FILES
from ..sources import Source, open_source
from .culprit import find_culprit
from .lockstep import Comparison, compare_layers
from .native import Native
from .probe import TEXTS, Document, Probe, make_probe
from .reference import Reference, need_torch
from .report import (
    BlockRecord,
    Check,
    CulpritRecord,
    DocumentRecord,
    Greedy,
    HistogramRecord,
    PositionRecord,
    Report,
    Statistics,
    TensorRecord,
    TokenRecord,
    ValueRecord,
    WorstRecord,
)
from .side import Side
from .statistics import Scores
from .tolerance import TOLERANCES, Tolerance

NEW_TOKENS = 16
LONGEST = 1024
# Decimal exponents of the divergences that the histogram counts.
KL_EXPONENTS = range(-14, 2)
# How many bins the positions of documents are put into.
POSITION_BINS = 64


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
        ours = _open_ours(str(model), dtype, stack)
        folder, make_reference = _open_reference(ours, against, stack)
        notes: list[str] = []
        # First of all, while neither torch nor a tokenizer is in memory: the engine needs all parameters at once.
        continued = _decode(ours, notes, say)
        tokenizer = _tokenizer(ours.source.tokenizer_folder)
        texts = list(_texts(ours, tokenizer, prompts, notes))
        say("building the reference")
        reference = make_reference()
        if reference.vocab != ours.native.vocab:
            raise ZooError(
                f"the vocabularies differ: {ours.name} has {ours.native.vocab} logits, {reference.description} "
                f"{reference.vocab}; they cannot be compared"
            )
        documents = [*texts, *((f"{one.name}, continued", one.ids) for one in continued)]
        special = _special_ids(ours.source.tokenizer_folder)
        probe = make_probe(ours.source.config, documents, special=special, longest=longest)
        comparison = compare_layers(ours.native, reference, probe, ours.tolerance, say)
        checks = [
            *_logit_checks(comparison, ours.tolerance, probe),
            _block_check(comparison),
            *_greedy_checks(continued, comparison, probe, ours.tolerance),
            *_text_checks(ours, tokenizer, folder),
        ]
        return _report(ours, tokenizer, reference, probe, comparison, checks, continued, notes)


# ------------------------------------------------------------------------------------------------- the two sides


@dataclass(frozen=True)
class _Ours:
    """Our side, opened."""

    name: str
    path: Path
    source: Source
    native: Native
    store: Store | None
    dtype: str
    tolerance: Tolerance
    described_dtype: str


def _open_ours(model: str, dtype: str, stack: ExitStack) -> _Ours:
    path = resolve(model)
    source = stack.enter_context(open_source(path))
    store = open_store(path) if is_store(path) else None
    cast = {
        tensor.dtype
        for tensor in (store.manifest.tensors.values() if store else ())
        if tensor.dtype != tensor.source_dtype and tensor.dtype in ("BF16", "F16")
    }
    row, described = dtype, dtype
    if cast and dtype == "float32":
        # Rounded weights are not the source's, whatever is computed with them.
        row = "bfloat16" if "BF16" in cast else "float16"
        described = f"{dtype}, weights rounded to {row}"
    native = Native(source, dtype, f"zoo {zoo.__version__}, {dtype}: {path}")
    return _Ours(model, path, source, native, store, dtype, TOLERANCES[row], described)


def _open_reference(ours: _Ours, against: str | Path | None, stack: ExitStack) -> tuple[Path, Callable[[], Side]]:
    """Where the other side's tokenizer is, and what makes that side."""
    if against is not None:
        path = resolve(str(against))
        if path.is_file() or is_store(path):
            other = stack.enter_context(open_source(path))
            return other.tokenizer_folder, lambda: Native(other, "float32", f"zoo {zoo.__version__}, float32: {path}")
        need_torch()
        return path, lambda: Reference(path)
    need_torch()
    if ours.store is not None:
        recorded = Path(ours.store.manifest.provenance.source)
        if not (recorded / "config.json").is_file():
            raise ZooError(
                f"{ours.path}: its source, {recorded}, is gone; give where it is now: --against HF_DIR, or compare "
                "with another model by --against STORE"
            )
        return recorded, lambda: Reference(recorded)
    if ours.path.is_file():
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="zoo-parity-"))) / "hf"
        gguf_to_hf(ours.path, folder, dtype="float32")
        return folder, lambda: Reference(folder)
    return ours.path, lambda: Reference(ours.path)


def _tokenizer(folder: Path) -> Tokenizer | None:
    return Tokenizer.load(folder) if any((folder / name).is_file() for name in TOKENIZER_FILES) else None


def _special_ids(folder: Path) -> frozenset[int]:
    """Ids that config.json gives a meaning of their own: ends of texts, places of images."""
    if not (folder / "config.json").is_file():
        return frozenset()
    found: set[int] = set()

    def visit(values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if isinstance(value, Mapping):
                visit(value)
            elif name.endswith(("token_id", "token_index")):
                found.update(item for item in (value if isinstance(value, list) else [value]) if isinstance(item, int))

    visit(read_json(folder / "config.json"))
    return frozenset(found)


# ------------------------------------------------------------------------------------------------- what is read


def _texts(
    ours: _Ours, tokenizer: Tokenizer | None, prompts: Path | None, notes: list[str]
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


@dataclass(frozen=True)
class _Continued:
    """A prompt and what the engine made of it; the last `made` of the ids."""

    name: str
    ids: list[int]
    made: int


def _decode(ours: _Ours, notes: list[str], say: Callable[[str], None]) -> list[_Continued]:
    """Greedy continuations by the engine. They are documents of the probe, so the reference judges every token."""
    size = _bytes(ours)
    if (room := _available_memory()) is not None and 3 * size > room:
        notes.append(
            f"greedy decoding: the parameters, {size / 1e9:.1f} GB, and the engine need more than the "
            f"{room / 1e9:.1f} GB of memory that are free"
        )
        return []
    say("decoding")
    config = ours.source.config
    prompts = {"random ids": np.random.default_rng(1).integers(0, config.vocab, 5).tolist()}
    if (ids := _ids_of_prose(ours.source.tokenizer_folder)) and max(ids) < config.vocab:
        prompts["prose"] = ids
    # As many as the table of positions has.
    limit = config.learned_positions or config.max_positions
    count = max(1, min(NEW_TOKENS, limit - max(map(len, prompts.values()))))
    engine = Engine(config, ours.source.load(ours.native.dtype, None), dtype=ours.native.dtype, slots=len(prompts))
    try:
        results = engine.generate(list(prompts.values()), count, ignore_eos=True)
    except ZooError as error:
        notes.append(f"greedy decoding: {error}")
        return []
    finally:
        del engine
        gc.collect()
        trim()
    return [
        _Continued(name, [*ids, *result.tokens], len(result.tokens))
        for (name, ids), result in zip(prompts.items(), results, strict=True)
    ]


def _ids_of_prose(folder: Path) -> list[int]:
    """Ids of a text by the tokenizer's own file, which takes a tenth of the memory of the whole tokenizer."""
    from tokenizers import Tokenizer as Fast

    if not (folder / "tokenizer.json").is_file():
        return []
    try:
        return Fast.from_file(str(folder / "tokenizer.json")).encode(TEXTS["prose"]).ids
    except Exception as error:  # the library raises bare exceptions
        raise ZooError(f"{folder / 'tokenizer.json'}: cannot be read: {error}") from error


def _bytes(ours: _Ours) -> int:
    every: Mapping[str, AbstractParameter] = abstract_parameters(ours.source.config)
    return sum(math.prod(parameter.shape) for parameter in every.values()) * np.dtype(ours.native.dtype).itemsize


def _available_memory() -> int | None:
    """Bytes of memory that are free or can be freed; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


# ------------------------------------------------------------------------------------------------------- checks


def _logit_checks(comparison: Comparison, tolerance: Tolerance, probe: Probe) -> Iterator[Check]:
    for arrangement in comparison.scores:
        scores = comparison.joined(arrangement)
        for side, bad in (("ours", scores.not_finite), ("the reference's", scores.reference_not_finite)):
            if bad.any():
                where = _where(comparison, probe, arrangement, int(np.argmax(bad)))
                yield Check(
                    name=f"logits are numbers, {arrangement}",
                    passed=False,
                    found=None,
                    allowed=None,
                    detail=f"{side}: {int(bad.sum())} positions have NaN or infinity, the first {where}",
                )
        some = _statistics(scores)
        worst = _where(comparison, probe, arrangement, int(np.argmax(scores.largest)))
        for name, found, allowed, detail in (
            ("largest", some.largest_relative, tolerance.logits_largest, worst),
            ("RMS", some.rms_relative, tolerance.logits_rms, ""),
            ("KL", some.kl_largest, tolerance.kl_largest, ""),
        ):
            yield Check(
                name=f"logits, {arrangement}: {name}",
                passed=found <= allowed,
                found=found,
                allowed=allowed,
                detail=detail,
            )


def _where(comparison: Comparison, probe: Probe, arrangement: Any, index: int) -> str:
    for number, scores in comparison.scores[arrangement].items():
        if index < len(scores.kl):
            return f"in {probe.documents[number].name!r} at position {probe.documents[number].start + index}"
        index -= len(scores.kl)
    raise AssertionError("an index into all scores is in one of them")


def _block_check(comparison: Comparison) -> Check:
    name, value, alone = max(
        ((stage, value, alone) for stage, result in comparison.stages.items() for value, alone in result.alone.items()),
        key=lambda found: found[2].excess,
    )
    return Check(
        name="every block alone: RMS",
        passed=alone.excess <= 1,
        found=alone.difference.rms,
        allowed=alone.allowed,
        detail=f"in {name}: {value}",
    )


def _shortfalls(continued: list[_Continued], comparison: Comparison, probe: Probe) -> Iterator[np.ndarray]:
    """For each continuation how far the logits of its tokens are below the reference's largest."""
    scores = comparison.scores["padding after"]
    numbers = {document.name: number for number, document in enumerate(probe.documents)}
    for one in continued:
        yield scores[numbers[f"{one.name}, continued"]].shortfall[-one.made - 1 : -1]


def _greedy_checks(
    continued: list[_Continued], comparison: Comparison, probe: Probe, tolerance: Tolerance
) -> Iterator[Check]:
    """Whether every token that decoding chose is the reference's likeliest, or as likely within the tolerance."""
    if not continued:
        return
    scores = comparison.scores["padding after"]
    room = 2 * tolerance.logits_largest * max(float(part.reference_largest.max()) for part in scores.values())
    shortfall = np.concatenate(list(_shortfalls(continued, comparison, probe)))
    yield Check(
        name="greedy decoding: below the reference's largest logit",
        passed=bool(shortfall.max() <= room),
        found=float(shortfall.max()),
        allowed=room,
        detail=f"{int(np.sum(shortfall <= 0))} of {len(shortfall)} tokens are the reference's likeliest",
    )


def _text_checks(ours: _Ours, tokenizer: Tokenizer | None, folder: Path) -> Iterator[Check]:
    """Whether both sides make the same ids of texts, and end at the same ones."""
    theirs = _tokenizer(folder)
    if tokenizer is not None and theirs is not None:
        different = [name for name, text in TEXTS.items() if tokenizer.encode(text) != theirs.encode(text)]
        detail = f"{len(TEXTS)} texts have the same ids" if not different else f"other ids for {', '.join(different)}"
        yield Check(name="tokenizer", passed=not different, found=None, allowed=None, detail=detail)
    elif (tokenizer is None) != (theirs is None):
        side = "the reference" if theirs is None else "our side"
        yield Check(name="tokenizer", passed=False, found=None, allowed=None, detail=f"{side} has none")
    left, right = (
        sorted(eos_of_files(where) if one is None else one.eos)
        for where, one in ((ours.source.tokenizer_folder, tokenizer), (folder, theirs))
    )
    detail = ", ".join(map(str, left)) or "none"
    if left != right:
        detail = f"ours {left}, the reference's {right}"
    yield Check(name="end tokens", passed=left == right, found=None, allowed=None, detail=detail)


# ------------------------------------------------------------------------------------------------------- report


def _report(
    ours: _Ours,
    tokenizer: Tokenizer | None,
    reference: Side,
    probe: Probe,
    comparison: Comparison,
    checks: list[Check],
    continued: list[_Continued],
    notes: list[str],
) -> Report:
    scores = comparison.joined("padding after")
    passed = all(check.passed for check in checks)
    return Report(
        zoo_version=zoo.__version__,
        model=ours.name,
        family=_family(ours),
        reference=reference.description,
        dtype=ours.described_dtype,
        parameters=sum(math.prod(p.shape) for p in abstract_parameters(ours.source.config).values()),
        blocks=len(ours.source.config.layers),
        vocab=ours.native.vocab,
        passed=passed,
        checks=tuple(checks),
        tolerance=ours.tolerance,
        documents=tuple(
            DocumentRecord(name=d.name, tokens=len(d.ids), first_position=d.start) for d in probe.documents
        ),
        not_covered=(*probe.not_covered, *notes),
        statistics={name: _statistics(comparison.joined(name)) for name in comparison.scores},
        block_records=tuple(_block_records(comparison)),
        position_records=tuple(_position_records(comparison, probe)),
        kl_histogram=_histogram(scores.kl),
        worst=tuple(_worst(comparison, probe, tokenizer)),
        greedy=tuple(_greedy(continued, comparison, probe, tokenizer)),
        culprit=None if passed else _culprit(ours, reference, comparison, checks),
    )


def _greedy(
    continued: list[_Continued], comparison: Comparison, probe: Probe, tokenizer: Tokenizer | None
) -> Iterator[Greedy]:
    for one, shortfall in zip(continued, _shortfalls(continued, comparison, probe), strict=True):
        text = None if tokenizer is None else tokenizer.decode(one.ids[-one.made :])
        yield Greedy(prompt=one.name, tokens=one.made, agreed=int(np.sum(shortfall <= 0)), text=text)


def _family(ours: _Ours) -> str | None:
    if ours.store is not None:
        return ours.store.manifest.family
    config = ours.source.tokenizer_folder / "config.json"
    return str(read_json(config).get("model_type")) if config.is_file() else None


def _statistics(scores: Scores) -> Statistics:
    largest = float(scores.largest.max())
    rms = float(np.sqrt(scores.squares.mean()))
    return Statistics(
        positions=len(scores.kl),
        largest=largest,
        largest_relative=largest / max(float(scores.reference_largest.max()), 1e-30),
        rms=rms,
        rms_relative=rms / max(float(np.sqrt(scores.reference_squares.mean())), 1e-30),
        kl_mean=float(scores.kl.mean()),
        kl_largest=float(scores.kl.max()),
        top_1=float(scores.top_1.mean()),
        top_5=float(scores.top_5.mean()),
        perplexity=_perplexity(scores.loss),
        reference_perplexity=_perplexity(scores.reference_loss),
    )


def _perplexity(losses: np.ndarray) -> float:
    mean = float(np.nanmean(losses))
    return math.exp(mean) if mean < 700 else math.inf


def _block_records(comparison: Comparison) -> Iterator[BlockRecord]:
    for name, stage in comparison.stages.items():
        values = tuple(
            ValueRecord(name=value, rms=a.difference.rms, largest=a.difference.largest, allowed=a.allowed)
            for value, a in stage.alone.items()
        )
        yield BlockRecord(name=name, used_rms=math.inf if stage.used is None else stage.used.rms, values=values)


def _position_records(comparison: Comparison, probe: Probe) -> Iterator[PositionRecord]:
    parts = comparison.scores["padding after"]
    scale = max(float(part.reference_largest.max()) for part in parts.values())
    longest = max(len(document.ids) for document in probe.documents)
    width = -(-longest // POSITION_BINS)
    for first in range(0, longest, width):
        some = slice(first, first + width)
        inside = [part for part in parts.values() if len(part.kl) > first]
        yield PositionRecord(
            first=first,
            largest_relative=max(float(part.largest[some].max()) for part in inside) / max(scale, 1e-30),
            kl_largest=max(float(part.kl[some].max()) for part in inside),
        )


def _histogram(kl: np.ndarray) -> HistogramRecord:
    edges = [10.0**exponent for exponent in KL_EXPONENTS]
    bins = np.searchsorted(edges, kl, side="right")
    counts = np.bincount(bins, minlength=len(edges) + 1)
    return HistogramRecord(edges=tuple(edges), counts=tuple(counts.tolist()))


def _worst(comparison: Comparison, probe: Probe, tokenizer: Tokenizer | None) -> Iterator[WorstRecord]:
    def text(ids: list[int]) -> str | None:
        return None if tokenizer is None else tokenizer.decode(ids)

    def record(pair: tuple[int, float]) -> TokenRecord:
        return TokenRecord(id=pair[0], text=text([pair[0]]), probability=pair[1])

    for position in comparison.worst:
        document: Document = probe.documents[position.document]
        yield WorstRecord(
            document=document.name,
            position=document.start + position.index,
            before=text(list(document.ids[max(0, position.index - 11) : position.index + 1])),
            kl=position.kl,
            ours=tuple(map(record, position.ours)),
            reference=tuple(map(record, position.reference)),
        )


def _culprit(ours: _Ours, reference: Side, comparison: Comparison, checks: list[Check]) -> CulpritRecord | None:
    head_differs = any(not check.passed and check.name.startswith("logits, padding after") for check in checks)
    paths = list(abstract_parameters(ours.source.config))
    found = find_culprit(comparison, ours.source.config, paths, head_differs)
    if found is None:
        return None
    tensors = tuple(_tensors(ours, reference, found.paths))
    unequal = [tensor.native for tensor in tensors if tensor.equal is False]
    if unequal:
        advice = f"other numbers than the reference's: {', '.join(unequal[:4])}"
    elif tensors and all(tensor.equal for tensor in tensors):
        advice = "its tensors are the reference's: look at the configuration and at the arithmetic, not at the weights"
    elif tensors:
        advice = "look at these tensors and at how they are used"
    else:
        advice = "no tensor makes it: look at the configuration and at the arithmetic"
    return CulpritRecord(
        stage=found.stage,
        value=found.value,
        what=found.what,
        rms=found.rms,
        blocks_that_differ=found.others + 1,
        tensors=tensors,
        advice=advice,
    )


def _tensors(ours: _Ours, reference: Side, paths: tuple[str, ...]) -> Iterator[TensorRecord]:
    """The parameters behind a value, with the rows that bind them, and whether the reference's are the same."""
    for path in paths:
        source, row = reference.named(path)
        theirs = reference.parameter(path)
        mine = np.asarray(ours.source.load(None, None, [path])[path], np.float32)
        equal = None if theirs is None or theirs.shape != mine.shape else bool(np.array_equal(mine, theirs))
        del mine, theirs
        yield TensorRecord(native=path, source=source, row=row, equal=equal)


def write_report(report: Report, folder: Path) -> None:
    """Writes report.json, report.md and report.html into a folder, each whole or not at all."""
    from .page import page

    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        "report.json": json.dumps(report.as_json(), indent=1, ensure_ascii=False) + "\n",
        "report.md": report.markdown(),
        "report.html": page(report),
    }
    for name, content in contents.items():
        temporary = folder / f".{name}.tmp"
        temporary.write_text(content, encoding="utf-8")
        temporary.replace(folder / name)


def check_report_folder(folder: Path) -> None:
    """Refuses, before the work is done, a folder that the report could not be written to."""
    if folder.exists() and not folder.is_dir():
        raise ZooError(f"--report {folder}: expected a folder, found a file")
    existing = folder / "report.json"
    if existing.is_file() and "schema_version" not in read_json(existing):
        raise ZooError(f"--report {folder}: its report.json is none of zoo's; name another folder")
    folder.mkdir(parents=True, exist_ok=True)
