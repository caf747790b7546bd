"""What `zoo.json` says: the network, its parameters, and all that is needed to write the source's files again.

Whoever opens a store takes nothing in it on trust: names stay inside their folders, types and sizes are known ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from .config import ModelConfig
from .zarr_array import numpy_dtype

FORMAT_VERSION = 2
MANIFEST = "zoo.json"
# safetensors' names of element types.
SAFETENSORS_DTYPES = frozenset(
    ["F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL"]
)


def is_file_name(name: str) -> bool:
    """Whether a file could be called so anywhere: not empty, UTF-8, without a zero byte."""
    try:
        return bool(name) and "\0" not in name and bool(name.encode())
    except UnicodeEncodeError:
        return False


def leaves_its_folder(name: str) -> bool:
    """Whether a relative file name leads out of the folder that it is relative to."""
    return PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\\" in name


def _inside(name: str) -> str:
    if not is_file_name(name) or leaves_its_folder(name) or str(PurePosixPath(name)) != name:
        raise ValueError(f"{name!r} is no name of a file in the folder")
    return name


def _flat(name: str) -> str:
    if "/" in name:
        raise ValueError(f"{name!r} is no name of an array")
    return name


def _known_dtype(name: str) -> str:
    try:
        numpy_dtype(name)
    except TypeError as error:
        raise ValueError(f"unknown element type {name!r}") from error
    return name


def _safetensors_dtype(name: str) -> str:
    if name not in SAFETENSORS_DTYPES:
        raise ValueError(f"unknown element type {name!r}")
    return name


# The name of a file in a folder, which it never leaves.
FileName = Annotated[str, AfterValidator(_inside)]
# The name of an array's folder.
ArrayName = Annotated[FileName, AfterValidator(_flat)]
SafetensorsDtype = Annotated[str, AfterValidator(_safetensors_dtype)]
Shape = tuple[Annotated[int, Field(ge=0, lt=2**48)], ...]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class TensorRecord(_Record):
    """A source tensor as the store holds it: safetensors' dtype name, shape, and the XXH3-128 digest of its bytes in
    the Hugging Face layout. `source_dtype` differs from `dtype` where the conversion cast it."""

    dtype: SafetensorsDtype
    source_dtype: SafetensorsDtype
    shape: Shape
    digest: str


class FileRecord(_Record):
    """A weight file of the source. The header as it stood in the file gives order, offsets and metadata."""

    name: FileName
    header: str


class ParameterRecord(_Record):
    """A parameter: numpy's name of its element type, its dimensions, and the logical axes they are called by."""

    dtype: Annotated[str, AfterValidator(_known_dtype)]
    shape: Shape
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
    parameters: Mapping[ArrayName, ParameterRecord]
    tensors: Mapping[str, TensorRecord]
    redundant: Mapping[str, str]
    files: tuple[FileRecord, ...]
    side_files: Mapping[FileName, str]

    @model_validator(mode="after")
    def _consistent(self) -> Manifest:
        names = [*(file.name for file in self.files), *self.side_files]
        twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
        lost = sorted(set(self.redundant.values()) - set(self.tensors))
        problems = [f"two files are called {name}" for name in twice]
        problems += [f"{name} is to be redundant, and is not in the store" for name in lost]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def write(self, folder: Path) -> None:
        """Writes zoo.json into `folder` so that it is there whole or not at all."""
        temporary = folder / (MANIFEST + ".tmp")
        temporary.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")
        temporary.replace(folder / MANIFEST)
