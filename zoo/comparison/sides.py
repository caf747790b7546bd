"""What `zoo parity` is given, opened: our side and the other one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from zoo.converters.gguf_to_hf import gguf_to_hf
from zoo.converters.hf_dir import open_hf_directory
from zoo.models.checkpoint import Store, is_store, open_store
from zoo.models.errors import ZooError
from zoo.models.json_file import read_json
from zoo.models.tokenizer import Tokenizer

from .. import __version__
from ..catalog import resolve
from ..model import TOKENIZER_FILES
from ..sources import Source, open_source
from .native import Native
from .reference import Reference, need_torch
from .side import Side
from .tolerance import TOLERANCES, Tolerance

# Element types of weights, the coarsest first.
PRECISIONS = ("bfloat16", "float16", "float32")


@dataclass(frozen=True)
class Ours:
    """Our side, opened."""

    name: str
    path: Path
    source: Source
    native: Native
    store: Store | None
    dtype: str


def open_ours(model: str, dtype: str, stack: ExitStack) -> Ours:
    path = resolve(model)
    source = stack.enter_context(open_source(path))
    store = open_store(path) if is_store(path) else None
    native = Native(source, dtype, f"zoo {__version__}, {dtype}: {path}")
    return Ours(model, path, source, native, store, dtype)


@dataclass(frozen=True)
class Other:
    """The other side: where it is, where its tokenizer is, and what makes it."""

    path: Path
    tokenizer_folder: Path
    make: Callable[[], Side]


def tolerance_between(ours: Ours, other: Other) -> tuple[Tolerance, str]:
    """How much may differ, and our dtype in words: weights that one side has rounded are not the other's."""
    left, right = _precision(ours.path), _precision(other.path)
    if ours.dtype != "float32" or left is None or right is None or left == right:
        return TOLERANCES[ours.dtype], ours.dtype
    row = min(left, right, key=PRECISIONS.index)
    return TOLERANCES[row], f"{ours.dtype}, weights rounded to {row}"


def _precision(path: Path) -> str | None:
    """The least precise element type among a checkpoint's tensors; None for files of blocks."""
    if path.is_file():
        return None
    if is_store(path):
        found = {tensor.dtype for tensor in open_store(path).manifest.tensors.values()}
    else:
        found = {header.dtype for header in open_hf_directory(path).headers.values()}
    return next((name for name, short in zip(PRECISIONS, ("BF16", "F16", "F32"), strict=True) if short in found), None)


def open_reference(ours: Ours, against: str | Path | None, stack: ExitStack) -> Other:
    """The other side, or transformers on what ours came from."""
    if against is not None:
        path = resolve(str(against))
        if path.is_file() or is_store(path):
            other = stack.enter_context(open_source(path))
            described = f"zoo {__version__}, float32: {path}"
            return Other(path, other.tokenizer_folder, lambda: Native(other, "float32", described))
        need_torch()
        return Other(path, path, lambda: Reference(path))
    need_torch()
    if ours.store is not None:
        recorded = Path(ours.store.manifest.provenance.source)
        if not (recorded / "config.json").is_file():
            raise ZooError(
                f"{ours.path}: its source, {recorded}, is gone; give where it is now: --against HF_DIR, or compare "
                "with another model by --against STORE"
            )
        return Other(recorded, recorded, lambda: Reference(recorded))
    if ours.path.is_file():
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="zoo-parity-"))) / "hf"
        gguf_to_hf(ours.path, folder, dtype="float32")
        return Other(folder, folder, lambda: Reference(folder))
    return Other(ours.path, ours.path, lambda: Reference(ours.path))


def tokenizer_of(folder: Path) -> Tokenizer | None:
    return Tokenizer.load(folder) if any((folder / name).is_file() for name in TOKENIZER_FILES) else None


def special_ids(folder: Path) -> frozenset[int]:
    """Ids that config.json gives a meaning of their own: ends of texts, places of images."""
    if not (folder / "config.json").is_file():
        return frozenset()
    found: set[int] = set()

    def visit(values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if isinstance(value, Mapping):
                visit(value)
            elif name.endswith(("token_id", "token_index")):
                found.update(item for item in (value if isinstance(value, list) else [value]) if isinstance(item, int))

    visit(read_json(folder / "config.json"))
    return frozenset(found)
