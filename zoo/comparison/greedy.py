"""Greedy continuations through the real decode path, as documents of the probe: the reference judges every token."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from zoo.models.abstract import AbstractParameter
from zoo.models.errors import ZooError
from zoo.models.parameters import abstract_parameters
from zoo.serve.engine import Engine

from ..allocator import trim
from .probe import TEXTS
from .sides import Ours

NEW_TOKENS = 16


@dataclass(frozen=True)
class Continued:
    """A prompt and what the engine made of it; the last `made` of the ids."""

    name: str
    ids: list[int]
    made: int


def continue_greedily(ours: Ours, notes: list[str], say: Callable[[str], None]) -> list[Continued]:
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
    # As many as positions there are; a text that is longer is cut.
    limit = config.learned_positions or config.max_positions
    count = min(NEW_TOKENS, max(1, limit // 2))
    prompts = {name: ids[: max(1, limit - count)] for name, ids in prompts.items()}
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
        Continued(name, [*ids, *result.tokens], len(result.tokens))
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


def _bytes(ours: Ours) -> int:
    every: Mapping[str, AbstractParameter] = abstract_parameters(ours.source.config)
    return sum(math.prod(parameter.shape) for parameter in every.values()) * np.dtype(ours.native.dtype).itemsize


def _available_memory() -> int | None:
    """Bytes of memory that are free or can be freed; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
