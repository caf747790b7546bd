"""The native checkpoint, called a store.

    STORE/
      params/     an Orbax checkpoint (v1 API): one flat {native path: array}, layers unstacked
      hf/         every file of the source that holds no weights, byte for byte
      zoo.json    written last: what the store is, and all that is needed to write the source's files again

A folder without `zoo.json` is not a store. Loading puts each parameter straight into its sharding.
"""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from .config import ModelConfig
from .errors import ZooError, report_all
from .json_file import read_json
from .manifest import FORMAT_VERSION, MANIFEST, Manifest
from .zarr_array import check_array, numpy_dtype, read_array

PARAMS = "params"
# Orbax's folder for the one tree of a checkpoint.
TREE = "state"
SIDE_FILES = "hf"
# An unfinished store or export lies beside its destination under this suffix until it is complete.
UNFINISHED = ".unfinished"
# In there, what tells how far the conversion came.
JOURNAL = "journal.jsonl"
# Bytes of parameters that one call into Orbax fetches: a call costs some 10 ms however little it moves.
GROUP_BYTES = 32 << 20


@dataclass(frozen=True)
class Store:
    """An opened store. Nothing but `zoo.json` has been read."""

    path: Path
    manifest: Manifest

    @property
    def config(self) -> ModelConfig:
        return self.manifest.model

    @property
    def side_files(self) -> Path:
        """The folder with the source's config.json, tokenizer and so on."""
        return self.path / SIDE_FILES

    def read(self, path: str, rows: tuple[int, int] | None = None) -> np.ndarray:
        """A parameter as stored, in host memory, or its rows from the one to before the other.

        Raises:
            ZooError: the array is missing or damaged.
        """
        record = self.manifest.parameters[path]
        with _advice():
            return read_array(array_folder(self.path, path), record.shape, numpy_dtype(record.dtype), rows)

    def load(
        self, paths: Iterable[str], shardings: Mapping[str, Any] | None = None, dtype: Any = None
    ) -> dict[str, Any]:
        """These parameters as jax arrays, group by group, cast to `dtype` where one is given.

        Args:
            paths: native paths.
            shardings: for each path the sharding to place it in; the default device without.
            dtype: the element type to compute in.

        Raises:
            ZooError: a parameter is not in the store, or what is there is damaged.
        """
        import jax

        paths = list(paths)
        absent = (f"{path}: not in the store" for path in paths if path not in self.manifest.parameters)
        report_all(absent, f"{self.path / MANIFEST}: parameters of the model are missing; convert the source again:")
        for path in paths:
            record = self.manifest.parameters[path]
            with _advice():
                check_array(array_folder(self.path, path), record.shape, numpy_dtype(record.dtype))

        def abstract(path: str) -> jax.ShapeDtypeStruct:
            stored = self.manifest.parameters[path]
            sharding = shardings[path] if shardings else jax.sharding.SingleDeviceSharding(jax.devices()[0])
            return jax.ShapeDtypeStruct(stored.shape, dtype or numpy_dtype(stored.dtype), sharding=sharding)

        result: dict[str, Any] = {}
        for group in self._groups(paths):
            result.update(self._load({path: abstract(path) for path in group}))
        return result

    def _groups(self, paths: Iterable[str]) -> Iterable[list[str]]:
        """`paths` in order, in groups of about GROUP_BYTES."""
        group: list[str] = []
        size = 0
        for path in paths:
            record = self.manifest.parameters[path]
            nbytes = math.prod(record.shape) * numpy_dtype(record.dtype).itemsize
            if group and size + nbytes > GROUP_BYTES:
                yield group
                group, size = [], 0
            group.append(path)
            size += nbytes
        if group:
            yield group

    def _load(self, abstract: dict[str, Any]) -> dict[str, Any]:
        from orbax.checkpoint import v1 as ocp

        context = ocp.Context()
        context.pytree.loading.partial_load = True
        try:
            with context:
                # Orbax takes absolute paths only.
                return ocp.load(str((self.path / PARAMS).absolute()), abstract)
        except Exception as error:  # Orbax raises what its many parts raise
            raise ZooError(
                f"{self.path / PARAMS}: cannot read {', '.join(list(abstract)[:3])}: {error}; convert the source again"
            ) from error


@contextmanager
def _advice() -> Generator[None]:
    try:
        yield
    except ZooError as error:
        raise ZooError(f"{error}; convert the source again") from None


def array_folder(store: Path, path: str) -> Path:
    """Where Orbax keeps a parameter of a store."""
    return store / PARAMS / TREE / path


def is_store(path: Path) -> bool:
    return (path / MANIFEST).is_file()


def looks_unfinished(path: Path) -> bool:
    """Whether a folder is, or is what is left of, a store without its zoo.json."""
    if is_store(path) or (path / "config.json").exists():
        return False
    return path.name.endswith(UNFINISHED) or (path / PARAMS / TREE).is_dir()


def refuse_unfinished(path: Path) -> None:
    """Refuses a folder that a conversion is still making, or was when it was interrupted."""
    for parent in (path.absolute(), *path.absolute().parents):
        if parent.name.endswith(UNFINISHED) and (parent / JOURNAL).exists():
            raise ZooError(f"{path}: unfinished: run the conversion to {parent.name.removesuffix(UNFINISHED)} again")


def open_store(path: Path) -> Store:
    """Opens a finished store.

    Raises:
        ZooError: the folder is no store, is unfinished, or was written by another version of the format.
    """
    refuse_unfinished(path)
    if not path.is_dir():
        unfinished = path.with_name(path.name + UNFINISHED)
        hint = (
            f"; an unfinished conversion lies in {unfinished}: run the same command again"
            if unfinished.exists()
            else ""
        )
        raise ZooError(f"{path}: expected a store, found {'a file' if path.exists() else 'nothing'}{hint}")
    if not is_store(path):
        what = "an unfinished store" if looks_unfinished(path) else "no store"
        raise ZooError(f"{path}: {what}: it has no {MANIFEST}; run `zoo convert hf-to-orbax` to make one")
    try:
        content = read_json(path / MANIFEST)
        version = content.get("format_version")
        if version != FORMAT_VERSION:
            raise ZooError(f"{path / MANIFEST}: format_version is {version!r}, this zoo reads {FORMAT_VERSION}")
        manifest = Manifest.model_validate_json(json.dumps(content))
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5]]
        raise ZooError(f"{path / MANIFEST}: damaged: {'; '.join(lines)}; convert the source again") from None
    if not (path / PARAMS).is_dir():
        raise ZooError(f"{path}: {PARAMS}/ is missing from the store; convert the source again")
    return Store(path, manifest)
