"""Experts are one parameter in a store: it is written and read in parts, and never held whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zoo.converters import hf_to_orbax as importing
from zoo.converters.hf_to_orbax import hf_to_orbax
from zoo.converters.layout import Binding
from zoo.converters.orbax_to_hf import orbax_to_hf
from zoo.converters.verify import verify
from zoo.models import zarr_array
from zoo.models.checkpoint import Store, open_store

from .checkpoints import write_checkpoint

EXPERTS, CHUNKED = 11, 2
MIXTURE: dict[str, Any] = {
    **{"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "vocab_size": 16, "hidden_size": 8},
    **{"intermediate_size": 6, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1},
    **{"num_local_experts": EXPERTS, "num_experts_per_tok": 2, "max_position_embeddings": 32, "sliding_window": None},
}


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mixture whose stacks have chunks of two experts, the last of one."""
    write_checkpoint(tmp_path / "hf", dtype="float32", base=MIXTURE)
    monkeypatch.setattr(zarr_array, "CHUNK_BYTES", CHUNKED * 8 * 6 * 4)
    return tmp_path / "hf"


def spied(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, note: Callable[..., None]) -> None:
    original = getattr(owner, name)

    def spy(*values: Any, **options: Any) -> Any:
        note(*values, **options)
        return original(*values, **options)

    monkeypatch.setattr(owner, name, spy)


def test_a_stack_comes_back_with_its_bytes(source: Path, tmp_path: Path) -> None:
    hf_to_orbax(source, tmp_path / "store")
    assert verify(tmp_path / "store", source).problems == []
    orbax_to_hf(tmp_path / "store", tmp_path / "back")
    weights = "model.safetensors"
    assert (tmp_path / "back" / weights).read_bytes() == (source / weights).read_bytes()
    # Orbax reads what was written part by part.
    store = open_store(tmp_path / "store")
    path = "layers.0.mlp.experts.gate.kernel"
    whole = store.read(path)
    assert np.array_equal(np.asarray(store.load([path])[path]), whole)
    for rows in ((0, 1), (1, 4), (EXPERTS - 1, EXPERTS), (0, EXPERTS)):
        assert np.array_equal(store.read(path, rows), whole[slice(*rows)])


def test_no_more_of_a_stack_is_held_than_a_chunk(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    spied(monkeypatch, Binding, "import_", lambda binding, tensors: held.append(len(tensors)))
    hf_to_orbax(source, tmp_path / "store")
    assert max(held) == CHUNKED and sum(held) == len(open_store(tmp_path / "store").manifest.tensors)


def test_each_byte_of_a_stack_is_read_once_whatever_the_order_of_its_members(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a file the experts' matrices take turns."""
    hf_to_orbax(source, tmp_path / "store")
    rows_read: dict[str, list[int]] = {}

    def note(store: Store, path: str, rows: tuple[int, int] | None = None) -> None:
        if ".experts." in path:
            assert rows is not None
            rows_read.setdefault(path, []).extend(range(*rows))

    spied(monkeypatch, Store, "read", note)
    orbax_to_hf(tmp_path / "store", tmp_path / "back")
    assert len(rows_read) == 3 and all(sorted(rows) == list(range(EXPERTS)) for rows in rows_read.values())


def test_a_stack_that_was_interrupted_is_written_again(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = importing.StoreWriter.write_rows

    def fail(writer: Any, path: str, start: int, *rest: Any) -> None:
        if start:
            raise OSError(28, "No space left on device", path)
        original(writer, path, start, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(importing.StoreWriter, "write_rows", fail)
        with pytest.raises(Exception, match="no space left"):
            hf_to_orbax(source, tmp_path / "store")
    hf_to_orbax(source, tmp_path / "store")
    assert verify(tmp_path / "store", source).problems == []
