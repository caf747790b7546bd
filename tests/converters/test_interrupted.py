"""A conversion killed with SIGKILL at any point leaves nothing that is accepted, and the same command finishes it."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from zoo.converters import hf_to_orbax as hf_to_orbax_module
from zoo.converters import hf_writer, store_writer
from zoo.converters import orbax_to_hf as orbax_to_hf_module
from zoo.converters.hf_to_orbax import hf_to_orbax
from zoo.converters.orbax_to_hf import orbax_to_hf
from zoo.converters.staging import Staging
from zoo.converters.verify import verify
from zoo.models.errors import ZooError

from .checkpoints import LLAMA, tensors_of, write_checkpoint
from .test_round_trip import digests

# A line of the journal every few tensors, so that a tiny model is written in many steps.
CONVERT = """
import sys
from pathlib import Path
from typing import Any
from zoo.converters import hf_to_orbax, orbax_to_hf, hf_writer
hf_to_orbax.RECORD_BYTES = 4096
hf_writer.CHECKPOINT_BYTES = 4096
command = {"in": hf_to_orbax.hf_to_orbax, "out": orbax_to_hf.orbax_to_hf}[sys.argv[1]]
print("ready", flush=True)
report = command(Path(sys.argv[2]), Path(sys.argv[3]))
print("done", report.notes, flush=True)
"""


def start(direction: str, source: Path, destination: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", CONVERT, direction, str(source), str(destination)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def kill_until_done(direction: str, source: Path, destination: Path, delays: list[float]) -> int:
    """Runs the conversion again and again, killed after each delay, until one run gets through; returns the kills."""
    kills = 0
    for delay in [*delays, 120.0]:
        process = start(direction, source, destination)
        try:
            output, errors = process.communicate(timeout=delay)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills += 1
            if destination.exists():  # killed after the last step
                return kills
            continue
        assert process.returncode == 0, errors
        assert "done" in output
        return kills
    raise AssertionError("never finished")


@pytest.mark.parametrize("seed", [0, 1])
def test_killed_at_any_point_it_continues_and_the_files_are_equal(tmp_path: Path, seed: int) -> None:
    source = write_checkpoint(tmp_path / "source", shards=2, num_hidden_layers=6)
    delays = random.Random(seed)
    into = kill_until_done("in", source, tmp_path / "store", [delays.uniform(0.05, 1.2) for _ in range(4)])
    out = kill_until_done("out", tmp_path / "store", tmp_path / "back", [delays.uniform(0.02, 0.5) for _ in range(4)])
    assert into + out > 0
    assert digests(tmp_path / "back") == digests(source)
    assert verify(tmp_path / "store", source).ok
    assert {"back", "source", "store"} <= {p.name for p in tmp_path.iterdir()}


class Killed(BaseException):
    """Stands in for a kill at an exact place; like one, nothing catches it."""


@pytest.mark.parametrize("saves", range(5))
def test_killed_between_a_save_and_its_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saves: int) -> None:
    """The arrays are there, the journal does not say so: they are written again."""
    source = write_checkpoint(tmp_path / "source")
    monkeypatch.setattr(hf_to_orbax_module, "RECORD_BYTES", 4096)
    count = 0

    def dying(self: Staging, entry: dict[str, Any]) -> None:
        nonlocal count
        if "saved" in entry:
            count += 1
            if count > saves:
                raise Killed
        return record(self, entry)

    with monkeypatch.context() as patch:
        record = Staging.record
        patch.setattr(Staging, "record", dying)
        with pytest.raises(Killed):
            hf_to_orbax(source, tmp_path / "store")
    assert not (tmp_path / "store").exists()
    report = hf_to_orbax(source, tmp_path / "store")
    assert ("continued an earlier run that was interrupted" in report.notes) == (saves > 0)
    assert verify(tmp_path / "store", source).ok


@pytest.mark.parametrize("step", ["_lay_out", "write_array", "copy_side_files", "write", "publish"])
def test_killed_in_the_last_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    source = write_checkpoint(tmp_path / "source")

    def die(*_: object, **__: object) -> None:
        raise Killed

    owner = {
        "_lay_out": store_writer,
        "write_array": store_writer,
        "copy_side_files": hf_to_orbax_module,
        "write": hf_to_orbax_module.Manifest,
        "publish": Staging,
    }[step]
    with monkeypatch.context() as patch:
        patch.setattr(owner, step, die)
        with pytest.raises(Killed):
            hf_to_orbax(source, tmp_path / "store")
    assert not (tmp_path / "store").exists()
    hf_to_orbax(source, tmp_path / "store")
    assert verify(tmp_path / "store", source).ok


def test_what_was_written_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_checkpoint(tmp_path / "source", shards=2)
    hf_to_orbax(source, tmp_path / "store")
    monkeypatch.setattr(hf_writer, "CHECKPOINT_BYTES", 4096)
    monkeypatch.setattr(orbax_to_hf_module, "BUDGET_BYTES", 16384)
    written: list[int] = []
    original = hf_writer._put  # pyright: ignore[reportPrivateUsage]

    def counting(path: Path, position: int, array: Any) -> None:
        written.append(array.nbytes)
        if len(written) == 12:
            raise Killed
        original(path, position, array)

    monkeypatch.setattr(hf_writer, "_put", counting)
    with pytest.raises(Killed):
        orbax_to_hf(tmp_path / "store", tmp_path / "back")
    first = len(written)
    orbax_to_hf(tmp_path / "store", tmp_path / "back")
    tensors = len(tensors_of(dict(LLAMA.tiny)))
    # The second run wrote what was missing, and what was under way when the first ended.
    assert tensors < len(written) and len(written) - first < tensors
    assert digests(tmp_path / "back") == digests(source)


def test_two_at_once_one_is_refused(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source", num_hidden_layers=6)
    first = start("in", source, tmp_path / "store")
    # The journal is opened once the lock is held.
    while not (tmp_path / "store.unfinished" / "journal.jsonl").exists() and first.poll() is None:
        time.sleep(0.001)
    os.kill(first.pid, signal.SIGSTOP)
    try:
        with pytest.raises(ZooError, match="another process is writing this destination"):
            hf_to_orbax(source, tmp_path / "store")
    finally:
        os.kill(first.pid, signal.SIGCONT)
    _, errors = first.communicate()
    assert first.returncode == 0, errors
    assert verify(tmp_path / "store", source).ok


def test_an_unfinished_conversion_of_something_else_is_not_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_checkpoint(tmp_path / "source")
    other = write_checkpoint(tmp_path / "other", tensors={})
    for name in ("config.json", "model.safetensors"):
        (other / name).write_bytes((source / name).read_bytes())

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Staging, "publish", die)
        with pytest.raises(Killed):
            hf_to_orbax(source, tmp_path / "store")
    for from_, dtype in ((other, "keep"), (source, "float32")):
        with pytest.raises(ZooError, match="unfinished conversion of another source or with other options"):
            hf_to_orbax(from_, tmp_path / "store", dtype=dtype)
    hf_to_orbax(other, tmp_path / "store", overwrite=True)
    assert verify(tmp_path / "store", other).ok
