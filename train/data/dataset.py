"""Every row of every source as an example, by one number."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from zoo.models.errors import ZooError, report_all

from .examples import Encoder, Example
from .shapes import Shape, check_shape, named_shape, recognise, renamed
from .sources import Files, Source, open_files


class Dataset:
    """Rows of one or several sources, numbered through.

    Attributes:
        weights: of each source, or None where each row counts alike.
    """

    def __init__(self, sources: Sequence[Source], encoder: Encoder):
        """Opens the files and recognises the shape of each by its first row.

        Raises:
            ZooError: of all sources together: files cannot be used, weights are missing or not above 0, or the first
                row of a file is of no known shape.
        """
        self.sources = tuple(sources)
        self.encoder = encoder
        self.weights = _weights(self.sources)
        self.parts: list[Files] = []
        wrong: list[str] = []
        for source in self.sources:
            try:
                self.parts.append(open_files(source.paths))
            except ZooError as error:
                wrong.append(str(error))
        report_all(wrong, "the data cannot be read:")
        self._stops = np.cumsum([len(part) for part in self.parts])
        self._shapes = self._recognise()

    def __len__(self) -> int:
        return int(self._stops[-1])

    def where(self, index: int) -> str:
        """File and line of a row."""
        source, inner = self._find(index)
        return self.parts[source].where(inner)

    def rows_of(self, source: int) -> range:
        """The numbers of a source's rows."""
        stop = int(self._stops[source])
        return range(stop - len(self.parts[source]), stop)

    def row(self, index: int) -> tuple[dict[str, Any], Shape]:
        """A row as the file has it but for the names of fields, and its shape.

        Raises:
            ZooError: it cannot be read, or is not of its file's shape; names file and line.
        """
        number, inner = self._find(index)
        source, part = self.sources[number], self.parts[number]
        shape = self._shapes[number][part.file_of(inner)]
        row = part[inner]
        try:
            row = renamed(row, source.columns)
            if source.shape is not None:
                check_shape(row, shape)
            elif (found := recognise(row)) != shape:
                raise ZooError(f"expected {shape} as in the first row of the file, found {found}")
        except ZooError as error:
            raise ZooError(f"{self.where(index)}: {error}") from None
        return row, shape

    def example(self, index: int) -> Example:
        """The example of a row.

        Raises:
            TooLong, NothingLearned, RowTooLarge: by the encoder's options it is an error or left out.
            ZooError: it cannot be read or encoded; names file and line.
        """
        row, shape = self.row(index)
        try:
            return self.encoder.encode(row, shape)
        except ZooError as error:
            raise type(error)(f"{self.where(index)}: {error}") from None

    def files_of(self, shape: str) -> list[str]:
        """The files that have rows of a shape."""
        return [
            str(file.path)
            for part, shapes in zip(self.parts, self._shapes, strict=True)
            for file, found in zip(part.files, shapes, strict=True)
            if found.name == shape
        ]

    def fingerprint(self) -> str:
        """Says of two datasets whether they have the same examples, without reading their rows.

        By the size and the time of the last change of each file, and by all that decides how rows are encoded.
        """
        paths = [[file.path for file in part.files] for part in self.parts]
        files = [[(str(path.absolute()), *_version(path)) for path in part] for part in paths]
        read = [(source.shape, sorted(source.columns.items())) for source in self.sources]
        encoded = self.encoder.options, self.encoder.tokenizer.fingerprint
        return xxhash.xxh3_128_hexdigest(repr((files, read, encoded)).encode())

    def describe(self) -> list[str]:
        """What is read and how, a line a kind, for people."""
        lines: list[str] = []
        for source, part, shapes in zip(self.sources, self.parts, self._shapes, strict=True):
            weight = "" if source.weight is None else f", weight {source.weight:g}"
            for shape in dict.fromkeys(shapes):
                files = [file for file, found in zip(part.files, shapes, strict=True) if found == shape]
                count = sum(map(len, files))
                lines.append(f"{', '.join(source.paths)}: {count:,} rows{weight}: {self.encoder.describe(shape)}")
        return lines

    def _find(self, index: int) -> tuple[int, int]:
        source = int(np.searchsorted(self._stops, index, side="right"))
        return source, index - self.rows_of(source).start

    def _recognise(self) -> list[list[Shape]]:
        """The shape of each file of each source."""
        found: list[list[Shape]] = []
        wrong: list[str] = []
        for source, part in zip(self.sources, self.parts, strict=True):
            found.append([])
            for file in part.files:
                try:
                    found[-1].append(_shape_of(source, file[0]))
                except ZooError as error:
                    text = str(error)
                    wrong.append(text if text.startswith(file.where(0)) else f"{file.where(0)}: {text}")
        report_all(wrong, "the rows cannot be understood:")
        return found


def _version(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns


def _shape_of(source: Source, row: dict[str, Any]) -> Shape:
    row = renamed(row, source.columns)
    if source.shape is None:
        return recognise(row)
    shape = named_shape(source.shape)
    check_shape(row, shape)
    return shape


def _weights(sources: Sequence[Source]) -> list[float] | None:
    given = [source.weight for source in sources if source.weight is not None]
    if not sources:
        raise ZooError("data: no sources are named")
    if not given:
        return None
    if len(given) != len(sources):
        raise ZooError(f"data: expected a weight for all {len(sources)} sources or for none, found {len(given)}")
    wrong = [f"{weight:g}" for weight in given if not 0 < weight < float("inf")]
    if wrong:
        raise ZooError(f"data: expected weights above 0, found {', '.join(wrong)}")
    return given
