"""What is in a dataset, found before anything is trained on."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from zoo.models.errors import ZooError, report_all

from .dataset import Dataset
from .examples import NothingLearned, TooLong
from .lines import RowTooLarge

# Problems after which a survey looks for no more.
MOST_PROBLEMS = 100
# Of how rows are encoded: to be raised with every change after which a row may have other tokens.
VERSION = 1


@dataclass(frozen=True)
class Survey:
    """What is in a dataset, found by encoding each row once before anything is trained on.

    Attributes:
        places: int32 [rows]; how many places of a batch each row takes, 0 for those left out.
        learned: int32 [rows]; how many of a row's tokens count in the loss.
        truncated, dropped, nothing_learned, literal: how many rows were cut, were too long, have nothing to learn, or
            have control tokens in them that are kept as text.
    """

    places: np.ndarray
    learned: np.ndarray
    truncated: int
    dropped: int
    nothing_learned: int
    literal: int

    def lines(self) -> list[str]:
        """What was found, for people."""
        used, rows = int((self.places > 0).sum()), len(self.places)
        tokens = int(self.places.sum()) + used
        lines = [f"{used:,} of {rows:,} rows, {tokens:,} tokens, {int(self.learned.sum()):,} of them learned"]
        notes = {
            "were truncated": self.truncated,
            "were dropped, being too long": self.dropped,
            "were skipped, having nothing to learn": self.nothing_learned,
            "hold control tokens, which are kept as text": self.literal,
        }
        return lines + [f"{count:,} rows {note}" for note, count in notes.items() if count]


def survey(
    dataset: Dataset, *, kept: Path | None = None, on_progress: Callable[[int, int], None] | None = None
) -> Survey:
    """Encodes every row once; so nothing about the data first shows after hours of training.

    Args:
        kept: a file to keep what was found, and to take it from while data, tokenizer and options are the same; so
            a run that is continued need not do it again.
        on_progress: called with how many rows are done, and of how many.

    Raises:
        ZooError: rows cannot be read or encoded, or are what the options call an error, all together; or of a source
            none is left.
    """
    pairs = [f"{path}: pairs of preferences (chosen, rejected)" for path in dataset.files_of("preference")]
    report_all(pairs, "expected rows to imitate; rename the answer's column, or leave these files out:")
    fingerprint = dataset.fingerprint() if kept is not None else ""
    found = _read(kept, fingerprint) if kept is not None else None
    if found is None:
        found = _encode_all(dataset, on_progress)
        if kept is not None:
            _write(found, kept, fingerprint)
    return found


def _encode_all(dataset: Dataset, on_progress: Callable[[int, int], None] | None) -> Survey:
    options = dataset.encoder.options
    places, learned = np.zeros(len(dataset), np.int32), np.zeros(len(dataset), np.int32)
    truncated = dropped = nothing = literal = 0
    wrong: list[str] = []
    for index in range(len(dataset)):
        try:
            example = dataset.example(index)
            places[index], learned[index] = len(example.tokens) - 1, example.learned.sum()
            truncated, literal = truncated + example.truncated, literal + example.literal
        except (TooLong, RowTooLarge) as error:
            dropped += 1
            wrong += [str(error)] if options.too_long != "drop" else []
        except NothingLearned as error:
            nothing += 1
            wrong += [str(error)] if options.nothing_learned == "error" else []
        except ZooError as error:
            wrong.append(str(error))
        if len(wrong) == MOST_PROBLEMS:
            wrong.append(f"and perhaps more after row {index + 1:,} of {len(dataset):,}")
            break
        if on_progress is not None:
            on_progress(index + 1, len(dataset))
    report_all(wrong, _heading(dropped, nothing, options.too_long, options.nothing_learned))
    found = Survey(places, learned, truncated, dropped, nothing, literal)
    empty = [
        f"{', '.join(source.paths)}: none of {len(dataset.rows_of(number)):,} rows is left"
        for number, source in enumerate(dataset.sources)
        if not places[dataset.rows_of(number)].any()
    ]
    report_all(empty, f"nothing to train on ({'; '.join(found.lines()[1:])}):")
    return found


def _read(path: Path, fingerprint: str) -> Survey | None:
    """What was kept, if it is of the same data."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            if str(kept["fingerprint"]) != f"{VERSION} {fingerprint}":
                return None
            counts = [int(count) for count in kept["counts"]]
            return Survey(kept["places"], kept["learned"], *counts)
    # Nothing kept, or what a full disk left of it.
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile):
        return None


def _write(found: Survey, path: Path, fingerprint: str) -> None:
    counts = np.array([found.truncated, found.dropped, found.nothing_learned, found.literal])
    # Renamed when complete, and each process its own, as those of one host may share the folder.
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    with unfinished.open("wb") as file:
        np.savez(
            file,
            fingerprint=np.array(f"{VERSION} {fingerprint}"),
            places=found.places,
            learned=found.learned,
            counts=counts,
        )
    unfinished.replace(path)


def _heading(dropped: int, nothing: int, too_long: str, nothing_learned: str) -> str:
    remedies: list[str] = []
    if dropped and too_long != "drop":
        remedies.append("too_long: truncate or drop, or a larger length")
    if nothing and nothing_learned == "error":
        remedies.append("nothing_learned: skip")
    return f"the rows cannot be used ({'; '.join(remedies)}):" if remedies else "the rows cannot be used:"
