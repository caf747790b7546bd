"""How this process's allocator treats large buffers."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

# glibc's mallopt parameters.
TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8


def reuse_freed_memory(keep_bytes: int = 256 << 20) -> None:
    """Lets freed buffers serve the next ones, instead of going back to the kernel each time.

    A conversion frees and allocates as many bytes as the model has, several times over. Fresh pages for each took most
    of its time (measured: 6.6 s of system time of a 2 GB export fell to 2.4 s). At most `keep_bytes` of freed memory
    are kept. Does nothing where the allocator is not glibc's.
    """
    _set({ARENA_MAX: 1, MMAP_THRESHOLD: (1 << 31) - 1, TRIM_THRESHOLD: keep_bytes})


def return_freed_memory() -> None:
    """Lets freed buffers go back to the kernel at once, where memory is what is short.

    By itself glibc keeps blocks of up to 32 MB for later, which after a model has been freed is most of the model
    (measured: 520 MB of 590).
    """
    _set({ARENA_MAX: 2, MMAP_THRESHOLD: 256 << 10, TRIM_THRESHOLD: 1 << 20})


def trim() -> None:
    """Gives the kernel back what glibc still holds, as it does for other threads whatever the thresholds are."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        return


def _set(values: Mapping[int, int]) -> None:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    for parameter, value in values.items():
        mallopt(parameter, value)
