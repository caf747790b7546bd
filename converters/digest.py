"""sha256 of arrays and files."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

BLOCK = 4 << 20


def array_sha256(array: np.ndarray) -> str:
    """Of the array's bytes in C order."""
    contiguous = np.ascontiguousarray(array)
    return hashlib.sha256(contiguous.reshape(-1).view(np.uint8)).hexdigest()


def file_sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copy_with_digest(source: Path, destination: Path) -> str:
    """Copies a file's bytes and returns their sha256."""
    digest = hashlib.sha256()
    with open(source, "rb") as reader, open(destination, "wb") as writer:
        while block := reader.read(BLOCK):
            digest.update(block)
            writer.write(block)
    return digest.hexdigest()
