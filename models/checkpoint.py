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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from .config import ModelConfig
from .errors import ZooError
from .zarr_array import numpy_dtype, read_array

FORMAT_VERSION = 2
MANIFEST = "zoo.json"
PARAMS = "params"
# Orbax's folder for the one tree of a checkpoint.
TREE = "state"
SIDE_FILES = "hf"
# An unfinished store or export lies beside its destination under this suffix until it is complete.
UNFINISHED = ".unfinished"
# Bytes of parameters that one call into Orbax fetches: a call costs some 10 ms however little it moves.
GROUP_BYTES = 32 << 20


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class TensorRecord(_Record):
    """A source tensor as the store holds it: safetensors' dtype name, shape, and the XXH3-128 digest of its bytes in
    the Hugging Face layout. `source_dtype` differs from `dtype` where the conversion cast it."""

    dtype: str
    source_dtype: str
    shape: tuple[int, ...]
    digest: str


class FileRecord(_Record):
    """A weight file of the source. The header as it stood in the file gives order, offsets and metadata."""

    name: str
    header: str


class ParameterRecord(_Record):
    """A parameter: numpy's name of its element type, its dimensions, and the logical axes they are called by."""

    dtype: str
    shape: tuple[int, ...]
    axes: tuple[str, ...]


class Provenance(_Record):
    source: str
    zoo_version: str


class Manifest(_Record):
    """The content of zoo.json."""

    format_version: int
    family: str
    model: ModelConfig
    provenance: Provenance
    parameters: Mapping[str, ParameterRecord]
    tensors: Mapping[str, TensorRecord]
    redundant: Mapping[str, str]
    files: tuple[FileRecord, ...]
    side_files: Mapping[str, str]

    def write(self, folder: Path) -> None:
        """Writes zoo.json into `folder` so that it is there whole or not at all."""
        temporary = folder / (MANIFEST + ".tmp")
        temporary.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")
        temporary.replace(folder / MANIFEST)


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

    def read(self, path: str) -> np.ndarray:
        """A parameter as stored, in host memory.

        Raises:
            ZooError: the array is missing or damaged.
        """
        record = self.manifest.parameters[path]
        try:
            return read_array(array_folder(self.path, path), record.shape, numpy_dtype(record.dtype))
        except ZooError as error:
            raise ZooError(f"{error}; convert the source again") from None

    def load(
        self, paths: Iterable[str], shardings: Mapping[str, Any] | None = None, dtype: Any = None
    ) -> dict[str, Any]:
        """These parameters as jax arrays, group by group, cast to `dtype` where one is given.

        Args:
            paths: native paths.
            shardings: for each path the sharding to place it in; the default device without.
            dtype: the element type to compute in.
        """
        import jax

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
        except (ValueError, OSError, KeyError) as error:
            raise ZooError(
                f"{self.path / PARAMS}: cannot read {', '.join(list(abstract)[:3])}: {error}; convert the source again"
            ) from error


def array_folder(store: Path, path: str) -> Path:
    """Where Orbax keeps a parameter of a store."""
    return store / PARAMS / TREE / path


def is_store(path: Path) -> bool:
    return (path / MANIFEST).is_file()


def looks_unfinished(path: Path) -> bool:
    """Whether a folder is, or is what is left of, a store without its zoo.json."""
    return not is_store(path) and (path.name.endswith(UNFINISHED) or (path / PARAMS).is_dir())


def open_store(path: Path) -> Store:
    """Opens a finished store.

    Raises:
        ZooError: the folder is no store, is unfinished, or was written by another version of the format.
    """
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
        content = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        version = content.get("format_version")
        if version != FORMAT_VERSION:
            raise ZooError(f"{path / MANIFEST}: format_version is {version!r}, this zoo reads {FORMAT_VERSION}")
        manifest = Manifest.model_validate_json(json.dumps(content))
    except (json.JSONDecodeError, UnicodeDecodeError, AttributeError) as error:
        raise ZooError(f"{path / MANIFEST}: not a JSON object: {error}; convert the source again") from None
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5]]
        raise ZooError(f"{path / MANIFEST}: damaged: {'; '.join(lines)}; convert the source again") from None
    if not (path / PARAMS).is_dir():
        raise ZooError(f"{path}: {PARAMS}/ is missing from the store; convert the source again")
    return Store(path, manifest)
