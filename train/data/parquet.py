"""Rows of a parquet file, read by index.

Parquet is compressed by groups of rows, often a million each, so a shuffled order would decompress a group for each
row. The file is therefore copied once, a thousand rows at a time, into an uncompressed temporary file that is mapped
into memory: a row is then a few pages.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from zoo.models.errors import ZooError

from .lines import check_row_bytes

BATCH = 1024


class ParquetFile:
    """The rows of a parquet file; columns that are null in a row are absent from it."""

    def __init__(self, path: Path):
        """
        Raises:
            ZooError: the file cannot be read, or has no rows.
        """
        # Heavy, and not needed where there is no parquet.
        import pyarrow as arrow

        self.path = path
        try:
            self._table = _mapped(path)
        except (arrow.ArrowException, OSError) as error:
            raise ZooError(f"{path}: cannot read as parquet: {error}") from None
        if not self._table.num_rows:
            raise ZooError(f"{path}: no rows")

    def __len__(self) -> int:
        return self._table.num_rows

    def where(self, index: int) -> str:
        return f"{self.path}: row {index + 1}"

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = self._table.slice(index, 1)
        check_row_bytes(row.nbytes, self.where(index))
        [values] = row.to_pylist()
        return _without_nulls(values)


def _mapped(path: Path) -> Any:
    """The file's table, in memory that the system may take back at any time."""
    import pyarrow as arrow
    from pyarrow import ipc, parquet

    # The name is gone once the file is mapped; the space is, once the map is.
    with tempfile.NamedTemporaryFile(prefix="zoo-rows-") as spool, parquet.ParquetFile(path) as source:
        with ipc.new_file(spool.name, source.schema_arrow) as sink:
            for batch in source.iter_batches(batch_size=BATCH):
                sink.write_batch(batch)
        return ipc.open_file(arrow.memory_map(spool.name)).read_all()


def _without_nulls(value: Any) -> Any:
    """Parquet gives every message of a list every field that any of them has, with nulls."""
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
