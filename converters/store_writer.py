"""Writes a store group by group, so that a run that was killed continues where it stopped.

Each group of parameters is one partial save of Orbax, which appears whole or not at all; the journal gets a line after
it. A group that was saved and not journaled is thrown away on resuming, for Orbax does not save a parameter twice.
"""

from __future__ import annotations

import shutil
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from zoo.models.checkpoint import CHUNK_BYTES, PARAMS, TensorRecord

from .staging import Staging

# Orbax's names for the folders of a partial save.
PARTIAL = PARAMS + ".partial_save"
PENDING = "*.pending_*"


class StoreWriter:
    """The parameters of one store, being written into a staging folder.

    `tensors` are the records of the source tensors whose parameters are saved, those of an earlier run included.
    """

    def __init__(self, staging: Staging, job: Mapping[str, Any]) -> None:
        self._staging = staging
        self._path = staging.path / PARAMS
        if any("finalizing" in entry for entry in staging.entries) and not self._path.exists():
            # Killed while Orbax merged the groups, which it cannot continue.
            staging.start_over(job)
        saved = [entry["saved"] for entry in staging.entries if "saved" in entry]
        if not self._path.exists() and not self._drop_unrecorded(len(saved)):
            staging.start_over(job)
            saved = []
        self.tensors: dict[str, TensorRecord] = {
            name: TensorRecord.model_validate(record, strict=False) for group in saved for name, record in group.items()
        }

    def _drop_unrecorded(self, count: int) -> bool:
        """Removes groups the journal does not know; False if one that it knows is gone."""
        partial = self._staging.path / PARTIAL
        # Their names carry the time of their making.
        pending = sorted(partial.glob(PENDING), key=lambda folder: folder.name)
        for folder in pending[count:]:
            shutil.rmtree(folder)
        shutil.rmtree(self._staging.path / (PARTIAL + ".orbax-checkpoint-tmp"), ignore_errors=True)
        return len(pending) >= count

    def save(self, parameters: Mapping[str, np.ndarray], tensors: Mapping[str, TensorRecord]) -> None:
        """Saves a group of parameters, and records the source tensors they came from."""
        from orbax.checkpoint import v1 as ocp

        with _saving_context():
            ocp.partial.save(str(self._path.absolute()), dict(parameters))
        self._staging.record({"saved": {name: record.model_dump(mode="json") for name, record in tensors.items()}})
        self.tensors.update(tensors)

    def finalize(self) -> None:
        """Makes the saved groups one Orbax checkpoint."""
        from orbax.checkpoint import v1 as ocp

        if self._path.exists():
            return
        self._staging.record({"finalizing": True})
        with _saving_context():
            ocp.partial.finalize(str(self._path.absolute()))


@contextmanager
def _saving_context() -> Generator[None]:
    from orbax.checkpoint import v1 as ocp

    context = ocp.Context()
    saving = context.array.saving
    # Weights hardly compress, and compressing them costs more time than writing them.
    saving.use_compression = False
    saving.storage_options.chunk_byte_size = CHUNK_BYTES
    # A group is already bounded; one data file for each spares a copy.
    saving.ocdbt_target_data_file_size = 0
    # The store's parameters have no device layout: they are placed when they are loaded.
    saving.enable_write_sharding_file = False
    with context:
        yield


def copy_side_files(source: Path, destination: Path, names: Sequence[str]) -> dict[str, str]:
    """Copies files byte for byte, keeping their folders; returns the sha256 of each."""
    from .digest import copy_with_digest

    digests: dict[str, str] = {}
    for name in names:
        target = destination / name
        target.parent.mkdir(parents=True, exist_ok=True)
        digests[name] = copy_with_digest(source / name, target)
    return digests
