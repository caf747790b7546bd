"""Bytes written past the page cache are the bytes given, wherever they begin, and where the system refuses."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.models import direct_write
from zoo.models.direct_write import ALIGNMENT, BLOCK_BYTES, MINIMUM_BYTES, write_at


def check(folder: Path, position: int, size: int) -> None:
    """Writes random bytes into the midst of a file of ones, and reads the whole file again."""
    path = folder / "file"
    before = np.ones(position + size + 10, np.uint8)
    before.tofile(path)
    data = np.random.default_rng(size).integers(0, 255, size, np.uint8)
    descriptor = os.open(path, os.O_WRONLY)
    try:
        write_at(descriptor, position, data.data)
    finally:
        os.close(descriptor)
    before[position : position + size] = data
    assert path.read_bytes() == before.tobytes()


@given(
    position=st.sampled_from([0, 1, 8, ALIGNMENT - 1, ALIGNMENT, 3 * ALIGNMENT + 17]),
    size=st.sampled_from([0, 1, MINIMUM_BYTES - 1, MINIMUM_BYTES, BLOCK_BYTES, BLOCK_BYTES + ALIGNMENT, 9_000_001]),
)
@settings(max_examples=30, deadline=None)
def test_any_position_and_size(tmp_path_factory: pytest.TempPathFactory, position: int, size: int) -> None:
    check(tmp_path_factory.mktemp("direct"), position, size)


def refused(count: int) -> Callable[..., int]:
    """A `pwrite` whose direct calls fail after the first `count`, as on a file system with other needs."""
    original, direct = os.pwrite, [0]

    def pwrite(descriptor: int, data: Any, position: int) -> int:
        if len(data) % ALIGNMENT == 0 and position % ALIGNMENT == 0 and len(data) > ALIGNMENT:
            direct[0] += 1
            if direct[0] == count + 1:
                raise OSError(errno.EINVAL, "Invalid argument")
        return original(descriptor, data, position)

    return pwrite


@pytest.mark.parametrize("count", [0, 1])
def test_a_file_system_that_refuses_is_written_to_as_usual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(os, "pwrite", refused(count))
    check(tmp_path, 100, 9_000_001)


def test_a_system_without_direct_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "O_DIRECT")
    check(tmp_path, 100, 9_000_001)


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda d, data, position: original(d, data[:100_001], position))
    check(tmp_path, 100, 9_000_001)


def test_other_errors_are_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(direct_write.os, "pwrite", full)
    with pytest.raises(OSError, match="No space left"):
        check(tmp_path, 0, 9_000_001)
