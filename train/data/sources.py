"""Files of rows, addressed by index: one, or many by a pattern, and mixtures of them by weight.

Any row can be read without those before it, so where a run stands in its data is a number, and continuing costs
nothing however far it had come.
"""

from __future__ import annotations

import glob
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

from zoo.models.errors import ZooError, report_all

from .lines import JsonLines, TextLines
from .parquet import ParquetFile

# What reads a file, by the end of its name.
READERS = {
    ".jsonl": JsonLines,
    ".ndjson": JsonLines,
    ".json": JsonLines,
    ".parquet": ParquetFile,
    ".txt": TextLines,
    ".text": TextLines,
}
# Names that an error lists.
MOST_NAMES = 8


class Rows(Protocol):
    """The rows of a file by index."""

    @property
    def path(self) -> Path: ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> dict[str, Any]:
        """One row; a ZooError names file and line where it cannot be read."""
        ...

    def where(self, index: int) -> str:
        """File and line of a row, for people."""
        ...


@dataclass(frozen=True)
class Source:
    """Files of one shape.

    Attributes:
        paths: files or patterns such as `data/*.jsonl`; files of a pattern are read in the order of their names.
        weight: how much of a mixture comes from here, against the weights of the other sources; either all of a
            mixture's sources have one or none.
        shape: the name of the rows' shape where they could be read as several; see `shapes.SHAPES`.
        columns: the file's name of a field, by ours: {"prompt": "question"}.
    """

    paths: tuple[str, ...]
    weight: float | None = None
    shape: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict[str, str])


class Files:
    """The rows of several files, one after another."""

    def __init__(self, files: Sequence[Rows]):
        self.files = tuple(files)
        self._stops = list(accumulate(map(len, self.files)))

    def __len__(self) -> int:
        return self._stops[-1]

    def file_of(self, index: int) -> int:
        """Which of `files` holds a row."""
        return bisect_right(self._stops, index)

    def where(self, index: int) -> str:
        file, inner = self._find(index)
        return file.where(inner)

    def __getitem__(self, index: int) -> dict[str, Any]:
        file, inner = self._find(index)
        return file[inner]

    def _find(self, index: int) -> tuple[Rows, int]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        number = self.file_of(index)
        return self.files[number], index - (self._stops[number] - len(self.files[number]))


def open_files(paths: Sequence[str]) -> Files:
    """The rows of every file that `paths` name.

    Raises:
        ZooError: a name or pattern matches no file, a file matches twice, is of an unknown kind, cannot be read or has
            no rows.
    """
    if not paths:
        raise ZooError("data: no files are named")
    found: list[Path] = []
    wrong: list[str] = []
    for path in paths:
        try:
            found += _matches(path)
        except ZooError as error:
            wrong.append(str(error))
    twice = sorted({str(path) for path in found if found.count(path) > 1}) if len(paths) > 1 else []
    wrong += [f"{path}: named twice; its rows would count double: give it a weight instead" for path in twice]
    wrong += [problem for path in found if (problem := _unknown_kind(path))]
    report_all(wrong, "the data files cannot be used:")
    opened: list[Rows] = []
    for path in found:
        try:
            opened.append(READERS[path.suffix.lower()](path))
        except ZooError as error:
            wrong.append(str(error))
    report_all(wrong, "the data files cannot be used:")
    return Files(opened)


def _matches(name: str) -> list[Path]:
    path = Path(name).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        raise ZooError(f"{name}: expected a file or a pattern, found a folder; {_readable(path)}")
    found = [Path(match) for match in sorted(glob.glob(str(path), recursive=True))]
    found = [match for match in found if match.is_file()]
    if found:
        return found
    if any(character in name for character in "*?["):
        raise ZooError(f"{name}: no file matches; {_readable(_existing(path))}")
    raise ZooError(f"{name}: no such file; {_readable(_existing(path))}")


def _existing(path: Path) -> Path:
    return next(parent for parent in [*path.absolute().parents] if parent.is_dir())


def _readable(folder: Path) -> str:
    """What a folder offers instead."""
    names = sorted(path.name for path in folder.iterdir() if path.suffix.lower() in READERS)
    if not names:
        return f"{folder} holds no {', '.join(READERS)} file"
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{folder} holds {', '.join(names[:MOST_NAMES])}{more}"


def _unknown_kind(path: Path) -> str | None:
    suffix = path.suffix.lower()
    if suffix in READERS:
        return None
    if suffix in {".gz", ".zst", ".bz2", ".xz"}:
        return f"{path}: compressed files cannot be read by index; decompress it, or use parquet"
    return f"{path}: expected one of {', '.join(READERS)}, found {suffix or 'no suffix'}"
