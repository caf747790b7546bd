"""Files of one row a line (JSON lines, plain text), read by index through the offsets of their lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from zoo.models.errors import ZooError
from zoo.models.json_file import parse_json

CHUNK = 1 << 22
BLANK = np.frombuffer(b" \t\r\n\v\f", np.uint8)
BOM = b"\xef\xbb\xbf"
# Parsed JSON takes several times its bytes; a row beyond this is a mistake in the making of the file.
MOST_ROW_BYTES = 64 << 20


class RowTooLarge(ZooError):
    """One row is too large to be read at all; where long rows are dropped, it is dropped."""


class LineFile:
    """The lines of a file that are not blank, read one by one.

    Only where they start is held in memory, 16 bytes a line.
    """

    def __init__(self, path: Path):
        """Reads through the file once, in pieces.

        Raises:
            ZooError: the file cannot be read, or has no line that is not blank.
        """
        self.path = path
        try:
            self._starts, self._numbers, self._size = _index(path)
        except OSError as error:
            raise ZooError(f"{path}: cannot read: {error.strerror or error}") from None
        if not len(self._numbers):
            raise ZooError(f"{path}: no rows: expected one a line, found an empty file")

    def __len__(self) -> int:
        return len(self._numbers)

    def where(self, index: int) -> str:
        """File and line of a row, as an editor counts them."""
        return f"{self.path}: line {self._numbers[index] + 1}"

    def line(self, index: int) -> str:
        """The text of a line, without its end.

        Raises:
            RowTooLarge: it has more than `MOST_ROW_BYTES`.
            ZooError: it is not UTF-8, or the file has changed or gone.
        """
        number = int(self._numbers[index])
        start = int(self._starts[number])
        stop = int(self._starts[number + 1]) if number + 1 < len(self._starts) else self._size
        check_row_bytes(stop - start, self.where(index))
        try:
            with self.path.open("rb") as file:
                file.seek(start)
                data = file.read(stop - start)
        except OSError as error:
            raise ZooError(f"{self.path}: cannot read: {error.strerror or error}") from None
        if len(data) != stop - start:
            raise ZooError(f"{self.where(index)}: the file became shorter while it was read")
        try:
            return (data.removeprefix(BOM) if start == 0 else data).rstrip(b"\r\n").decode()
        except UnicodeDecodeError as error:
            raise ZooError(f"{self.where(index)}: not UTF-8: byte {error.start + 1}; convert it to UTF-8") from None


class JsonLines(LineFile):
    """A JSON object a line."""

    def __init__(self, path: Path):
        """
        Raises:
            ZooError: as for any file of lines, or the file is one JSON array.
        """
        super().__init__(path)
        start = int(self._starts[self._numbers[0]])
        with path.open("rb") as file:
            file.seek(start)
            first = file.read(64).removeprefix(BOM).lstrip()
        if first.startswith(b"["):
            raise ZooError(
                f"{path}: expected a JSON object a line, found one JSON array; "
                f"make lines of it: jq -c '.[]' {path.name} > {path.stem}.jsonl"
            )

    def __getitem__(self, index: int) -> dict[str, Any]:
        where = self.where(index)
        value = parse_json(self.line(index), where)
        if not isinstance(value, dict):
            raise ZooError(f"{where}: expected a JSON object, found {type(value).__name__}")
        return value


class TextLines(LineFile):
    """A text a line."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"text": self.line(index)}


def check_row_bytes(size: int, where: str) -> None:
    """
    Raises:
        RowTooLarge: a row has more than `MOST_ROW_BYTES`.
    """
    if size > MOST_ROW_BYTES:
        raise RowTooLarge(
            f"{where}: the row holds {size >> 20} MiB; at most {MOST_ROW_BYTES >> 20} MiB are read as one row: "
            "divide it, or drop rows that are too long"
        )


def _index(path: Path) -> tuple[np.ndarray, np.ndarray, int]:
    """Where each line starts, int64 [lines]; the numbers of those not blank, int64 [rows]; and the file's size."""
    starts: list[np.ndarray] = [np.zeros(1, np.int64)]
    filled: list[np.ndarray] = []
    size = lines = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            data = np.frombuffer(chunk, np.uint8)
            ends = np.flatnonzero(data == ord("\n"))
            begins = np.concatenate([np.zeros(1, np.int64), ends + 1])
            inside = begins[begins < len(data)]
            visible = np.logical_or.reduceat(~np.isin(data, BLANK), inside)
            filled.append(lines + np.flatnonzero(visible))
            starts.append(size + ends + 1)
            size += len(chunk)
            lines += len(ends)
    # A line that goes over several pieces may be filled in each of them.
    numbers = np.unique(np.concatenate(filled)) if filled else np.zeros(0, np.int64)
    return np.concatenate(starts), numbers.astype(np.int64), size
