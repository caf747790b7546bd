"""Is a store what it says it is, and is it the model it came from?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zoo.models.checkpoint import PARAMS, SIDE_FILES, TREE, Store, open_store
from zoo.models.errors import ZooError
from zoo.models.json_file import read_json
from zoo.models.manifest import MANIFEST

from .cast import KEEP, cast
from .digest import array_digest, file_sha256
from .family import family_of
from .hf_dir import HfDirectory, open_hf_directory
from .orbax_to_hf import StoreTensors, check_files, header
from .report import Progress, Silent, Stopwatch, size_text


@dataclass
class Verification:
    """What was compared and what differs."""

    store: str
    against: str | None
    tensors: int
    files: int
    nbytes: int
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems

    def as_json(self) -> dict[str, Any]:
        return {
            "store": self.store,
            "against": self.against,
            "ok": self.ok,
            "tensors": self.tensors,
            "files": self.files,
            "bytes": self.nbytes,
            "problems": self.problems,
            "seconds": round(self.seconds, 3),
        }

    def lines(self) -> list[str]:
        what = f"{self.tensors} tensors ({size_text(self.nbytes)}) and {self.files} files"
        against = f" and {self.against}" if self.against else ""
        if self.ok:
            return [f"{self.store}: {what} equal their digests{against}, in {self.seconds:.1f} s"]
        return [f"{self.store}: {len(self.problems)} differences in {what}:", *(f"  - {p}" for p in self.problems)]


def verify(store_path: Path, against: Path | None = None, progress: Progress | None = None) -> Verification:
    """Reads every tensor of a store, in the Hugging Face layout, and compares it with its digest.

    Args:
        against: a model directory to compare with too, tensor by tensor, bit by bit; a tensor that the conversion cast
            is compared with the same cast of the directory's.

    Raises:
        ZooError: one of the two cannot be opened, or zoo.json contradicts itself.
    """
    watch = Stopwatch()
    progress = progress or Silent()
    store = open_store(store_path)
    directory = open_hf_directory(against) if against else None
    manifest = store.manifest
    names = [*manifest.tensors, *manifest.redundant]
    nbytes = sum(header(record).nbytes for record in manifest.tensors.values())
    check_files(store)
    problems = [*_side_file_problems(store), *_model_problems(store), *_layout_problems(store)]
    if directory:
        problems += _name_problems(directory, names)
    progress.start(nbytes, "verifying")
    for name, digest in _digests(store, names, problems):
        record = manifest.tensors[manifest.redundant.get(name, name)]
        if digest != record.digest:
            problems.append(f"{name}: digest {digest}, expected {record.digest}")
        if directory and name in directory.headers:
            original = directory.read(name)
            if original.shape != record.shape or array_digest(cast(original, record.dtype, name)) != digest:
                problems.append(f"{name}: differs from {directory.where(name)}")
        progress.advance(header(record).nbytes)
    progress.finish()
    return Verification(
        str(store_path),
        str(against) if against else None,
        len(names),
        len(manifest.side_files),
        nbytes,
        watch.seconds,
        problems,
    )


def _digests(store: Store, names: list[str], problems: list[str]) -> Iterator[tuple[str, str]]:
    """Each tensor's digest. One that cannot be read is a problem, not a failure to look: the others follow."""
    tensors = StoreTensors.of(store)
    while names:
        done = 0
        try:
            for found in tensors.each(names, KEEP, lambda _name, _tensor: None, check=False):
                done += 1
                yield found
            return
        except ZooError as error:
            problems.append(str(error))
        unread = tensors.binding(names[done])
        names = [name for name in names[done:] if tensors.binding(name) is not unread]


def _side_file_problems(store: Store) -> list[str]:
    problems: list[str] = []
    for name, digest in store.manifest.side_files.items():
        path = store.path / SIDE_FILES / name
        if not path.is_file():
            problems.append(f"{SIDE_FILES}/{name}: missing")
        elif (found := file_sha256(path)) != digest:
            problems.append(f"{SIDE_FILES}/{name}: sha256 {found}, expected {digest}")
    there = (path.relative_to(store.side_files).as_posix() for path in store.side_files.rglob("*") if path.is_file())
    problems += [
        f"{SIDE_FILES}/{name}: not in the source" for name in sorted(there) if name not in store.manifest.side_files
    ]
    return problems


def _model_problems(store: Store) -> list[str]:
    """Whether the network is the one that the source's config.json describes."""
    path = store.side_files / "config.json"
    if not path.is_file():
        return []  # said already
    try:
        expected = family_of(read_json(path), str(path)).config(read_json(path))
    except ZooError as error:
        return [str(error)]
    # A head that the file ties and that differed from the embedding is a parameter of its own.
    if store.config in (expected, expected.model_copy(update={"tied_head": False})):
        return []
    return [f"{MANIFEST}: the model is not the one that {SIDE_FILES}/config.json describes"]


def _layout_problems(store: Store) -> list[str]:
    """Whether Orbax would find its own files."""
    names = ("_CHECKPOINT_METADATA", f"{TREE}/_METADATA")
    return [f"{PARAMS}/{name}: missing" for name in names if not (store.path / PARAMS / name).is_file()]


def _name_problems(directory: HfDirectory, names: list[str]) -> list[str]:
    known = set(names)
    return [f"{name}: in {directory.path}, not in the store" for name in directory.headers if name not in known] + [
        f"{name}: in the store, not in {directory.path}" for name in names if name not in directory.headers
    ]
