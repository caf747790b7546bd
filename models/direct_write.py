"""Writes large buffers past the page cache.

Weights are written once and read much later, if at all: in the page cache they would push out what other processes
use, take a page of memory each and be copied once more (measured: half of a conversion's processor time).
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import threading

import numpy as np

# What positions, sizes and addresses of direct writes are multiples of, on every disk in use.
ALIGNMENT = 4096
# Copied to aligned memory at a time; each writing thread has one.
BLOCK_BYTES = 4 << 20
# Below this the cache is quicker, for it gathers small writes.
MINIMUM_BYTES = 1 << 20

_thread = threading.local()


def write_at(descriptor: int, position: int, data: memoryview) -> None:
    """Writes bytes at a position of a file; whole blocks of them past the page cache, where the system can.

    Nothing else may write through the same descriptor meanwhile. The bytes are on disk once the file is synced.
    """
    if len(data) >= MINIMUM_BYTES:
        head = -position % ALIGNMENT
        position, data = _write(descriptor, position, data, head)
        position, data = _write_direct(descriptor, position, data)
    _write(descriptor, position, data, len(data))


def _write(descriptor: int, position: int, data: memoryview, count: int) -> tuple[int, memoryview]:
    """Writes the first `count` bytes; returns the position after them, and the rest."""
    end = position + count
    while position < end:
        written = os.pwrite(descriptor, data[: end - position], position)
        position, data = position + written, data[written:]
    return position, data


def _write_direct(descriptor: int, position: int, data: memoryview) -> tuple[int, memoryview]:
    """Writes whole blocks until a short write or one that the file system refuses; returns what is left to write."""
    if not _set_direct(descriptor, True):
        return position, data
    if not hasattr(_thread, "block"):
        _thread.block = mmap.mmap(-1, BLOCK_BYTES)
    aligned = np.frombuffer(_thread.block, np.uint8)
    source = np.frombuffer(data, np.uint8)
    done = 0
    try:
        while count := min(len(data) - done, BLOCK_BYTES) // ALIGNMENT * ALIGNMENT:
            aligned[:count] = source[done : done + count]
            written = os.pwrite(descriptor, aligned[:count].data, position + done)
            done += written
            if written < count:
                break
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        _set_direct(descriptor, False)
    return position + done, data[done:]


def _set_direct(descriptor: int, direct: bool) -> bool:
    """Whether the file's descriptor could be brought into the mode."""
    if not hasattr(os, "O_DIRECT"):
        return False
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT if direct else flags & ~os.O_DIRECT)
    except OSError:
        return False
    return True
