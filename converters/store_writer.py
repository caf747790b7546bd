"""Writes a store parameter by parameter, so that a run that was killed continues where it stopped.

Orbax lays the checkpoint out, with one element in the place of each array, while the arrays are written beside it; in
the end each is moved to its place. A parameter may be written again, so a run that is continued need not know how far
the one before it came with the last.
"""

from __future__ import annotations

import errno
import logging
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Self

import numpy as np

from zoo.models.checkpoint import PARAMS, array_folder
from zoo.models.errors import CheckFailed, report_all
from zoo.models.manifest import TensorRecord
from zoo.models.zarr_array import create_array, write_array, write_rows

from .digest import copy_with_digest
from .staging import Staging

# Where the arrays are until all are written, in the store's folder.
ARRAYS = "arrays"
# A disk with less than this is full.
MARGIN_BYTES = 1 << 20


class StoreWriter:
    """The parameters of one store, being written into a staging folder.

    `tensors` are the records of the source tensors whose parameters are saved, those of an earlier run included.
    """

    def __init__(self, staging: Staging, dtypes: Mapping[str, np.dtype]) -> None:
        """Begins to lay out a checkpoint with parameters of these native paths and types, unless an earlier run did."""
        self._staging = staging
        self._arrays = staging.path / ARRAYS
        self._executor = ThreadPoolExecutor(1)
        self._layout: Future[None] | None = None
        if not (staging.path / PARAMS).exists():
            self._layout = self._executor.submit(_lay_out, staging.path / PARAMS, dtypes)
        self.tensors: dict[str, TensorRecord] = {
            name: TensorRecord.model_validate(record, strict=False)
            for entry in staging.entries
            for name, record in entry["saved"].items()
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Waits for the layout: nothing is written into the folder once this returns."""
        self._executor.shutdown()

    def write(self, path: str, parameter: np.ndarray) -> None:
        """Writes a parameter; several threads may write different ones. It is on disk when this returns."""
        write_array(self._arrays / path, parameter)

    def write_rows(self, path: str, start: int, rows: np.ndarray, shape: tuple[int, ...]) -> None:
        """Writes rows of a parameter of this shape, as `write` does; those before them are written already."""
        if start == 0:
            create_array(self._arrays / path, shape, rows.dtype)
        write_rows(self._arrays / path, start, rows, shape[0])

    def finish(self) -> None:
        """Moves the arrays to their places in the checkpoint, those that an earlier run had not moved."""
        if self._layout is not None:
            self._layout.result()
        for array in sorted(self._arrays.iterdir()) if self._arrays.exists() else ():
            place = array_folder(self._staging.path, array.name)
            shutil.rmtree(place, ignore_errors=True)
            array.rename(place)
        shutil.rmtree(self._arrays, ignore_errors=True)

    def record(self, tensors: Mapping[str, TensorRecord]) -> None:
        """Notes that all parameters of these source tensors are written."""
        self._staging.record({"saved": {name: record.model_dump(mode="json") for name, record in tensors.items()}})
        self.tensors.update(tensors)


def _lay_out(path: Path, dtypes: Mapping[str, np.dtype]) -> None:
    from orbax.checkpoint import v1 as ocp

    context = ocp.Context()
    saving = context.array.saving
    # One folder an array, in zarr's older version: its chunks are bare bytes, and weights hardly compress.
    saving.use_ocdbt = saving.use_zarr3 = saving.use_compression = False
    # What Orbax would note of the arrays it saved here does not describe those that take their place.
    saving.array_metadata_store = None
    saving.enable_write_sharding_file = False
    # Orbax says on its way that there is nothing to merge, and what fails it says with many tracebacks.
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with context:
            ocp.save(str(path.absolute()), {name: np.zeros(1, dtype) for name, dtype in dtypes.items()})
    except (RuntimeError, ValueError) as error:
        if shutil.disk_usage(path.parent).free < MARGIN_BYTES:
            # Orbax has many ways to say so.
            raise OSError(errno.ENOSPC, "No space left on device", str(path)) from error
        raise
    finally:
        logger.setLevel(level)


def copy_side_files(source: Path, destination: Path, names: Sequence[str]) -> dict[str, str]:
    """Copies files byte for byte, keeping their folders; returns the sha256 of each."""
    digests: dict[str, str] = {}
    missing = (f"{name}: missing" for name in names if not (source / name).is_file())
    report_all(missing, f"{source}: files are gone:", CheckFailed)
    for name in names:
        target = destination / name
        target.parent.mkdir(parents=True, exist_ok=True)
        digests[name] = copy_with_digest(source / name, target)
    return digests
