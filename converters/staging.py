"""A destination is made beside its place and moved there whole.

Everything is written into `DESTINATION.unfinished/content`, with a journal of what is done beside it. A run that was
killed continues there; one command at a time may hold it. Only the last step, a rename, makes the destination appear,
so whatever stands at the destination's name is complete, and an existing one is untouched until its successor is.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from zoo.models.checkpoint import JOURNAL, UNFINISHED
from zoo.models.errors import ZooError
from zoo.models.manifest import is_file_name

from .report import size_text

LOCK = "lock"
CONTENT = "content"


@dataclass
class Staging:
    """A destination being made: `path` is what will be moved to its place, `folder` holds it and the journal.

    `entries` are the journal's lines of the run being continued.
    """

    folder: Path
    destination: Path
    entries: list[dict[str, Any]]
    _journal: TextIO

    @property
    def path(self) -> Path:
        return self.folder / CONTENT

    @property
    def resumed(self) -> bool:
        return bool(self.entries)

    def record(self, entry: Mapping[str, Any]) -> None:
        """Adds a line to the journal; it is on disk when this returns."""
        self._journal.write(json.dumps(entry) + "\n")
        self._journal.flush()
        os.fsync(self._journal.fileno())

    def start_over(self, job: Mapping[str, Any]) -> None:
        """Forgets an earlier run's work."""
        self._journal.truncate(0)
        self._journal.seek(0)
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir()
        self.entries = []
        self.record(job)

    def publish(self, overwrite: bool) -> None:
        """Moves the finished content to its place."""
        if overwrite and self.destination.exists():
            with tempfile.TemporaryDirectory(prefix=".replaced-", dir=self.destination.parent) as old:
                os.rename(self.destination, Path(old) / "old")
                os.rename(self.path, self.destination)
        else:
            os.rename(self.path, self.destination)
        discard(self)


@contextmanager
def stage(
    source: Path, destination: Path, job: Mapping[str, Any], *, overwrite: bool, needed_bytes: int
) -> Generator[Staging]:
    """Opens the staging folder of a destination, or continues the one an earlier run of the same job left.

    Args:
        source: what it is made of, which the destination may neither be, hold nor lie in.
        job: what is being made, of what, and how; a journal of another job is not continued.
        overwrite: replace an existing destination, and drop the unfinished work of another job.
        needed_bytes: what the destination will take on disk.

    Raises:
        ZooError: the destination is not apart from the source, it exists, its folder cannot be written, the disk is
            too full, another process holds the staging folder, or it belongs to another job.
    """
    check_destination(source, destination, overwrite=overwrite)
    folder = unfinished_folder(destination)
    _check_own(folder)
    with _locked(folder), open(folder / JOURNAL, "a+") as journal:
        staging = Staging(folder, destination, _entries(journal), journal)
        if not _continues(staging, job, overwrite):
            staging.start_over(job)
        staging.entries = staging.entries[1:]
        _check_space(staging, needed_bytes)
        try:
            yield staging
        except ZooError:
            # The source or the destination is at fault: there is nothing to continue.
            discard(staging)
            raise
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise ZooError(_no_space(staging, needed_bytes)) from error
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"{destination} is unfinished; run the same command again to continue") from None


def unfinished_folder(destination: Path) -> Path:
    """Where a destination is made."""
    return destination.with_name(destination.name + UNFINISHED)


def check_destination(source: Path, destination: Path, *, overwrite: bool) -> None:
    """Refuses a destination that cannot be made, is there already, would replace its source, or end up in it."""
    for path in (source, destination):
        if not is_file_name(str(path)) or not path.absolute().name:
            raise ZooError(f"{str(path)!a}: expected a path in UTF-8, of something other than the root")
    _check_apart(source, destination)
    if not destination.name or destination.name == "..":
        raise ZooError(f"{destination}: names a folder that is there; choose a destination that is not")
    _check_apart(source, unfinished_folder(destination))
    if os.path.lexists(destination) and (not overwrite or not destination.exists()):
        what = "already exists" if destination.exists() else "is a link to nothing"
        raise ZooError(f"{destination}: {what}; choose another destination or pass --overwrite to replace it")


def _check_apart(source: Path, place: Path) -> None:
    one, other = source.resolve(), place.resolve()
    if one == other or one in other.parents or other in one.parents:
        raise ZooError(f"{place}: is, holds or lies in the source {source}; choose a destination apart from it")


def _check_own(folder: Path) -> None:
    """Refuses a folder at the place of the staging folder that no conversion made."""
    if not os.path.lexists(folder):
        return
    own = (LOCK, JOURNAL, CONTENT)
    strange = [path.name for path in folder.iterdir() if path.name not in own] if folder.is_dir() else [folder.name]
    if strange:
        raise ZooError(
            f"{folder}: is where an unfinished conversion would lie, and holds something else ({strange[0]}); "
            "move it away or choose another destination"
        )


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    """Makes the folder and holds it against other processes."""
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(open(folder / LOCK, "w"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ZooError(f"{folder}: another process is writing this destination; wait for it to end") from None
        except OSError as error:
            raise ZooError(f"{folder}: cannot write the destination: {error.strerror}") from None
        yield


def _entries(journal: TextIO) -> list[dict[str, Any]]:
    """The journal's whole lines; one cut short by a kill was not yet recorded."""
    journal.seek(0)
    entries: list[dict[str, Any]] = []
    end = 0
    for line in journal.read().splitlines(keepends=True):
        try:
            if not line.endswith("\n"):
                break
            entries.append(json.loads(line))
        except json.JSONDecodeError:
            break
        end += len(line)
    journal.seek(end)
    journal.truncate()
    return entries


def _continues(staging: Staging, job: Mapping[str, Any], overwrite: bool) -> bool:
    if not staging.entries or not staging.path.is_dir():
        return False
    if staging.entries[0] == json.loads(json.dumps(job)):
        return True
    if overwrite:
        return False
    raise ZooError(
        f"{staging.folder}: holds an unfinished conversion of another source or with other options; "
        "finish that one, remove the folder, or pass --overwrite to start over"
    )


def _check_space(staging: Staging, needed_bytes: int) -> None:
    done = sum(p.stat().st_size for p in staging.path.rglob("*") if p.is_file()) if staging.resumed else 0
    if shutil.disk_usage(staging.folder).free >= needed_bytes - done:
        return
    message = _no_space(staging, needed_bytes)
    if not staging.resumed:
        discard(staging)
    raise ZooError(message)


def _no_space(staging: Staging, needed_bytes: int) -> str:
    free = shutil.disk_usage(staging.folder).free
    return (
        f"{staging.destination}: no space left: {size_text(needed_bytes)} are needed in all, "
        f"{size_text(free)} are free; free some space and run the same command again"
    )


def discard(staging: Staging) -> None:
    """Removes the staging folder."""
    shutil.rmtree(staging.folder, ignore_errors=True)
