"""A Hugging Face model directory: its configuration, its shards and every other file in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zoo.models.checkpoint import is_store, refuse_unfinished
from zoo.models.errors import ZooError, report_all
from zoo.models.json_file import read_json
from zoo.models.manifest import is_file_name, leaves_its_folder

from .safetensors_file import SafetensorsFile, open_safetensors
from .source import TensorHeader

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt")
# Bookkeeping of version control and of downloaders, no part of a model.
LEFT_OUT = (".git", ".cache")


@dataclass(frozen=True)
class HfDirectory:
    """A directory whose headers were read and agree with its index. A `TensorSource`.

    `side_files` are all files that hold no tensors of the model, as paths relative to `path`; `left_out` the folders
    that are not carried along.
    """

    path: Path
    config: Mapping[str, Any]
    shards: tuple[SafetensorsFile, ...]
    headers: Mapping[str, TensorHeader]
    side_files: tuple[str, ...]
    left_out: tuple[str, ...]
    _shard_of: Mapping[str, SafetensorsFile]

    def read(self, name: str) -> np.ndarray:
        return self._shard_of[name].read(name)

    def where(self, name: str) -> str:
        return str(self._shard_of[name].path)


def open_hf_directory(path: Path) -> HfDirectory:
    """Opens a model directory, reading its JSON files and the headers of its shards.

    Raises:
        ZooError: something is missing or contradicts something else; all mistakes of a kind together.
    """
    refuse_unfinished(path)
    config = read_config(path)
    names = _shard_names(path)
    shards = tuple(open_safetensors(path / name) for name in names)
    shard_of = _shard_of(path, shards)
    if (path / INDEX).exists():
        _check_index(path, shards)
    side_files, left_out = _side_files(path, set(names))
    headers = {name: shard.headers[name] for shard in shards for name in shard.order}
    return HfDirectory(path, config, shards, headers, side_files, left_out, shard_of)


def read_config(path: Path) -> dict[str, Any]:
    """The parsed config.json of a model directory."""
    if not path.is_dir():
        hint = "; a .gguf file becomes one by `zoo convert gguf-to-hf`" if path.suffix == ".gguf" else ""
        raise ZooError(f"{path}: expected a model directory, found {'a file' if path.exists() else 'nothing'}{hint}")
    if is_store(path):
        raise ZooError(f"{path}: expected a model directory, found a store; `zoo convert orbax-to-hf` makes one of it")
    if not (path / "config.json").is_file():
        raise ZooError(f"{path}: no config.json; a Hugging Face model directory has one beside its weights")
    return read_json(path / "config.json")


def _shard_names(path: Path) -> list[str]:
    """The weight files, in the order of their names; no file is opened before its name is checked."""
    if (path / INDEX).is_file():
        names = _indexed_names(path)
    elif (path / SINGLE).is_file():
        names = [SINGLE]
    else:
        raise ZooError(_no_weights(path))
    report_all(
        (f"{name}: resolves to a file outside the directory" for name in names if not _inside(path, name)),
        f"{path}: weight files must lie in the directory:",
    )
    absent = [name for name in names if not (path / name).is_file()]
    # Shards beside those in use are a stale index or a stale download; a partial set is never loaded.
    unlisted = sorted(p.name for p in path.glob("model*.safetensors") if p.name not in names)
    problems = [f"listed in the index, not there: {name}" for name in absent]
    problems += [f"there, not listed in the index: {name}" for name in unlisted]
    report_all(problems, f"{path}: the index and the files disagree; fetch the missing files or remove the stale ones:")
    return names


def _indexed_names(path: Path) -> list[str]:
    weight_map = read_json(path / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ZooError(f"{path / INDEX}: expected a weight_map of tensor names to file names, found {weight_map!r}")
    problems: list[str] = []
    for tensor, name in weight_map.items():
        if not isinstance(name, str) or not is_file_name(name):
            problems.append(f"{tensor}: {name!r} is not a file name")
        elif leaves_its_folder(name):
            problems.append(f"{tensor}: {name!r} leaves the directory")
        elif not name.endswith(".safetensors"):
            problems.append(f"{tensor}: {name!r} is not a safetensors file")
    report_all(problems, f"{path / INDEX}: bad file names in the weight_map:")
    return sorted(set(weight_map.values()))


def _inside(path: Path, name: str) -> bool:
    """Whether a file stays in its directory once links are followed; the hub's cache links to its own blobs."""
    target = Path(os.path.realpath(path / name))
    root = Path(os.path.realpath(path))
    roots = [root]
    if root.parent.name == "snapshots":
        roots.append(root.parent.parent / "blobs")
    return any(target.is_relative_to(allowed) for allowed in roots)


def _no_weights(path: Path) -> str:
    pickles = sorted(p.name for p in path.iterdir() if p.suffix in PICKLES)
    if pickles:
        return (
            f"{path}: found only pickled weights ({', '.join(pickles[:3])}), which can run code and are never read; "
            f"expected {SINGLE} or {INDEX}: save the model again with safe serialization"
        )
    others = sorted(p.name for p in path.glob("*.safetensors"))
    if others:
        return f"{path}: expected {SINGLE} or {INDEX}, found {', '.join(others[:3])} without an index; fetch the index"
    return f"{path}: no weights: expected {SINGLE} or {INDEX}"


def _shard_of(path: Path, shards: tuple[SafetensorsFile, ...]) -> dict[str, SafetensorsFile]:
    holders: dict[str, list[SafetensorsFile]] = {}
    for shard in shards:
        for name in shard.headers:
            holders.setdefault(name, []).append(shard)
    report_all(
        (
            f"{name} is in {' and '.join(s.path.name for s in found)}"
            for name, found in holders.items()
            if len(found) > 1
        ),
        f"{path}: duplicate tensors:",
    )
    return {name: found[0] for name, found in holders.items()}


def _check_index(path: Path, shards: tuple[SafetensorsFile, ...]) -> None:
    weight_map: dict[str, str] = read_json(path / INDEX)["weight_map"]
    actual = {name: str(shard.path.relative_to(path)) for shard in shards for name in shard.headers}
    problems = [
        f"{name}: the index says {file}, " + (f"it is in {actual[name]}" if name in actual else "no file has it")
        for name, file in weight_map.items()
        if actual.get(name) != file
    ]
    problems += [f"{name}: in {file}, not in the index" for name, file in actual.items() if name not in weight_map]
    report_all(problems, f"{path / INDEX}: the index and the files disagree:")


def _side_files(path: Path, shards: set[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    found: list[str] = []
    left_out: list[str] = []

    def refuse(error: OSError) -> None:
        raise ZooError(
            f"{error.filename}: cannot be read: {error.strerror}; nothing of a directory is left behind"
        ) from error

    for folder, subfolders, files in os.walk(path, onerror=refuse):
        # Links to folders may lead anywhere, also in circles.
        for name in [n for n in subfolders if n in LEFT_OUT or os.path.islink(os.path.join(folder, n))]:
            subfolders.remove(name)
            left_out.append(os.path.relpath(os.path.join(folder, name), path))
        found += [os.path.relpath(os.path.join(folder, name), path) for name in files]
    side_files = sorted(set(found) - shards)
    report_all(
        (f"{name!a}" for name in side_files if not is_file_name(name)),
        f"{path}: names of files that are not UTF-8; rename them:",
    )
    report_all(
        (f"{name}: not a readable file" for name in side_files if not (path / name).is_file()),
        f"{path}: files that cannot be carried along:",
    )
    report_all(
        (f"{name}: links to a file outside the directory" for name in side_files if not _inside(path, name)),
        f"{path}: files must lie in the directory:",
    )
    return tuple(side_files), tuple(left_out)
