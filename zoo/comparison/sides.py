"""What `zoo parity` is given, opened: our side and the other one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from zoo.converters.gguf_to_hf import gguf_to_hf
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


@dataclass(frozen=True)
class Ours:
    """Our side, opened."""

    name: str
    path: Path
    source: Source
    native: Native
    store: Store | None
    dtype: str
    tolerance: Tolerance
    described_dtype: str


def open_ours(model: str, dtype: str, stack: ExitStack) -> Ours:
    path = resolve(model)
    source = stack.enter_context(open_source(path))
    store = open_store(path) if is_store(path) else None
    cast = {
        tensor.dtype
        for tensor in (store.manifest.tensors.values() if store else ())
        if tensor.dtype != tensor.source_dtype and tensor.dtype in ("BF16", "F16")
    }
    row, described = dtype, dtype
    if cast and dtype == "float32":
        # Rounded weights are not the source's, whatever is computed with them.
        row = "bfloat16" if "BF16" in cast else "float16"
        described = f"{dtype}, weights rounded to {row}"
    native = Native(source, dtype, f"zoo {__version__}, {dtype}: {path}")
    return Ours(model, path, source, native, store, dtype, TOLERANCES[row], described)


def open_reference(ours: Ours, against: str | Path | None, stack: ExitStack) -> tuple[Path, Callable[[], Side]]:
    """Where the other side's tokenizer is, and what makes that side."""
    if against is not None:
        path = resolve(str(against))
        if path.is_file() or is_store(path):
            other = stack.enter_context(open_source(path))
            return other.tokenizer_folder, lambda: Native(other, "float32", f"zoo {__version__}, float32: {path}")
        need_torch()
        return path, lambda: Reference(path)
    need_torch()
    if ours.store is not None:
        recorded = Path(ours.store.manifest.provenance.source)
        if not (recorded / "config.json").is_file():
            raise ZooError(
                f"{ours.path}: its source, {recorded}, is gone; give where it is now: --against HF_DIR, or compare "
                "with another model by --against STORE"
            )
        return recorded, lambda: Reference(recorded)
    if ours.path.is_file():
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="zoo-parity-"))) / "hf"
        gguf_to_hf(ours.path, folder, dtype="float32")
        return folder, lambda: Reference(folder)
    return ours.path, lambda: Reference(ours.path)


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
