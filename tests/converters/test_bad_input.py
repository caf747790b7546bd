"""Everything that can be wrong with a source or a destination: a clear error, and nothing left behind."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from zoo.converters import hf_to_orbax as hf_to_orbax_module
from zoo.converters import staging
from zoo.converters.hf_to_orbax import hf_to_orbax, plan_hf_to_orbax
from zoo.converters.inspect import inspect
from zoo.converters.orbax_to_hf import orbax_to_hf
from zoo.converters.verify import verify
from zoo.models.checkpoint import array_folder, open_store
from zoo.models.errors import CheckFailed, ZooError

from .checkpoints import LLAMA, tensors_of, write_checkpoint

INDEX = "model.safetensors.index.json"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def edit_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def edit_tensors(path: Path, change: Callable[[dict[str, np.ndarray]], object]) -> None:
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, {"format": "pt"})


def truncate(path: Path, by: int) -> None:
    os.truncate(path, path.stat().st_size - by)


def append(path: Path, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)


def break_header(path: Path, text: bytes) -> None:
    path.write_bytes(len(text).to_bytes(8, "little") + text)


def duplicate_between_shards(folder: Path) -> None:
    name = "model.norm.weight"
    edit_tensors(folder / FIRST, lambda tensors: tensors.setdefault(name, np.ones(32, np.float32)))
    edit_tensors(folder / SECOND, lambda tensors: tensors.setdefault(name, np.ones(32, np.float32)))


def pickled_only(folder: Path) -> None:
    for file in folder.glob("*.safetensors*"):
        file.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"cposix\nsystem\n(S'touch pwned'\ntR.")


def shrink(tensors: dict[str, np.ndarray]) -> None:
    tensors["model.norm.weight"] = tensors["model.norm.weight"][:16]


def set_config(**values: Any) -> Callable[[Path], None]:
    return lambda folder: edit_json(folder / "config.json", lambda config: config.update(values))


def set_shard(value: Any) -> Callable[[Path], None]:
    return lambda folder: edit_json(
        folder / INDEX, lambda index: index["weight_map"].update({"model.norm.weight": value})
    )


SINGLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda f: (f / "config.json").unlink(), "no config.json"),
    "config not JSON": (lambda f: (f / "config.json").write_text("{"), "config.json: not JSON"),
    "config a list": (lambda f: (f / "config.json").write_text("[]"), "expected a JSON object, found list"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "no weights"),
    "only a pickle": (pickled_only, "pickled weights (pytorch_model.bin)"),
    "an empty file": (lambda f: os.truncate(f / "model.safetensors", 0), "truncated"),
    "a file cut in its header": (lambda f: os.truncate(f / "model.safetensors", 100), "truncated"),
    "a file cut in its tensors": (lambda f: truncate(f / "model.safetensors", 10), "truncated: expected"),
    "bytes after the end": (lambda f: append(f / "model.safetensors", bytes(16)), "belong to no tensor"),
    "a header that is not JSON": (lambda f: break_header(f / "model.safetensors", b"{nonsense"), "not JSON"),
    "a header that is a list": (lambda f: break_header(f / "model.safetensors", b"[]"), "not a JSON object"),
    "a header of 2^60 bytes": (
        lambda f: (f / "model.safetensors").write_bytes(b"\0" * 7 + b"\x10"),
        "announces a header",
    ),
    "a duplicate in a header": (
        lambda f: break_header(f / "model.safetensors", b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":1}'),
        "duplicate in the header: a",
    ),
    "an unknown dtype": (
        lambda f: break_header(f / "model.safetensors", b'{"a":{"dtype":"Q9","shape":[0],"data_offsets":[0,0]}}'),
        "unknown dtype 'Q9'",
    ),
    "offsets that do not fit": (
        lambda f: break_header(f / "model.safetensors", b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}'),
        "takes 8 bytes, its offsets span 4",
    ),
    "negative shapes": (
        lambda f: break_header(f / "model.safetensors", b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}'),
        "expected dtype, shape and data_offsets",
    ),
    "a hole between tensors": (
        lambda f: break_header(f / "model.safetensors", b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}'),
        "belong to no tensor",
    ),
    "a missing tensor": (
        lambda f: edit_tensors(f / "model.safetensors", lambda t: t.pop("model.layers.1.input_layernorm.weight")),
        "missing tensor model.layers.1.input_layernorm.weight, expected with shape [32]",
    ),
    "an unknown tensor": (
        lambda f: edit_tensors(f / "model.safetensors", lambda t: t.update({"model.extra": np.ones(3, np.float32)})),
        "unknown tensor model.extra [3]",
    ),
    "a layer too many": (
        set_config(num_hidden_layers=1),
        "unknown tensor model.layers.1.",
    ),
    "a renamed tensor, both sides told": (
        lambda f: edit_tensors(
            f / "model.safetensors", lambda t: t.update({"model.norms.weight": t.pop("model.norm.weight")})
        ),
        "missing tensor model.norm.weight",
    ),
    "a wrong shape": (lambda f: edit_tensors(f / "model.safetensors", shrink), "model.norm.weight has shape [16]"),
    "integers for weights": (
        lambda f: edit_tensors(
            f / "model.safetensors", lambda t: t.update({"model.norm.weight": np.ones(32, np.int8)})
        ),
        "holds I8, expected one of F64, F32, F16, BF16",
    ),
    "a config of other sizes": (set_config(intermediate_size=96), "the configuration asks for [96, 32]"),
    "a head that is missing": (
        lambda f: edit_tensors(f / "model.safetensors", lambda t: t.pop("lm_head.weight")),
        "config.json says tie_word_embeddings is false",
    ),
    "an unknown model_type": (
        set_config(model_type="lama"),
        "the nearest is 'llama'",
    ),
    "no model_type": (
        lambda f: edit_json(f / "config.json", lambda c: c.pop("model_type")),
        "expected a model_type, found none",
    ),
    "an unknown architecture": (set_config(architectures=["LlamaForCausalML"]), "the nearest is 'LlamaForCausalLM'"),
    "a link that leaves": (
        lambda f: (f / "secret.txt").symlink_to("/etc/hostname"),
        "secret.txt: links to a file outside",
    ),
    "a broken link": (lambda f: (f / "gone.txt").symlink_to(f / "nowhere"), "gone.txt: not a readable file"),
}

SHARDED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a missing shard": (lambda f: (f / SECOND).unlink(), f"listed in the index, not there: {SECOND}"),
    "a stale index": (
        lambda f: (f / SECOND).rename(f / "model-b.safetensors"),
        "there, not listed in the index: model-b",
    ),
    "no index": (lambda f: (f / INDEX).unlink(), "without an index"),
    "a truncated shard": (lambda f: truncate(f / SECOND, 1), f"{SECOND}: truncated"),
    "a duplicate between shards": (duplicate_between_shards, f"model.norm.weight is in {FIRST} and {SECOND}"),
    "an index without weight_map": (lambda f: (f / INDEX).write_text("{}"), "expected a weight_map"),
    "the other shard named": (set_shard(FIRST), "the index and the files disagree"),
    "a tensor the index lacks": (
        lambda f: edit_json(f / INDEX, lambda i: i["weight_map"].pop("model.norm.weight")),
        "not in the index",
    ),
    "a tensor the files lack": (
        lambda f: edit_json(f / INDEX, lambda i: i["weight_map"].update({"model.ghost": FIRST})),
        "model.ghost: the index says",
    ),
    "a path upwards": (set_shard("../other/model.safetensors"), "leaves the directory"),
    "a hidden path upwards": (set_shard("a/../../model.safetensors"), "leaves the directory"),
    "an absolute path": (set_shard("/tmp/model.safetensors"), "leaves the directory"),
    "no string": (set_shard({"x": 1}), "is not a file name"),
    "a NUL": (set_shard("model\0.safetensors"), "is not a file name"),
    "a pickle in the index": (set_shard("pytorch_model.bin"), "is not a safetensors file"),
}


@pytest.mark.parametrize(("shards", "case"), [(1, name) for name in SINGLE] + [(2, name) for name in SHARDED])
def test_a_bad_source_is_refused_and_nothing_is_left(tmp_path: Path, shards: int, case: str) -> None:
    source = write_checkpoint(tmp_path / "source", shards=shards)
    spoil, message = (SINGLE if shards == 1 else SHARDED)[case]
    spoil(source)
    for command in (hf_to_orbax, plan_hf_to_orbax):
        with pytest.raises(ZooError) as caught:
            command(source, tmp_path / "store")
        assert message in str(caught.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["source"]
    assert not Path("pwned").exists()


def test_all_mistakes_of_a_kind_come_together(tmp_path: Path) -> None:
    tensors = tensors_of(dict(LLAMA.tiny))
    del tensors["model.layers.0.mlp.up_proj.weight"], tensors["model.layers.1.mlp.up_proj.weight"]
    tensors["left"] = tensors["right"] = np.ones(2, np.float32)
    source = write_checkpoint(tmp_path / "source", tensors=tensors)
    with pytest.raises(ZooError) as caught:
        hf_to_orbax(source, tmp_path / "store")
    for name in ("layers.0.mlp.up_proj", "layers.1.mlp.up_proj", "left [2]", "right [2]", "4 disagreements"):
        assert name in str(caught.value)


def test_a_link_that_leaves_is_refused_for_shards_too_but_not_in_the_hub_cache(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "elsewhere")
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "config.json").write_bytes((source / "config.json").read_bytes())
    (linked / "model.safetensors").symlink_to(source / "model.safetensors")
    with pytest.raises(ZooError, match="resolves to a file outside the directory"):
        hf_to_orbax(linked, tmp_path / "store")
    snapshot = tmp_path / "models--tiny" / "snapshots" / "abc"
    blobs = tmp_path / "models--tiny" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(source / name, blobs / name)
        (snapshot / name).symlink_to(blobs / name)
    hf_to_orbax(snapshot, tmp_path / "store")
    assert verify(tmp_path / "store", source).ok


def test_an_existing_destination_is_untouched_without_overwrite(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "mine.txt").write_text("mine")
    with pytest.raises(ZooError, match=r"already exists.*--overwrite"):
        hf_to_orbax(source, tmp_path / "store")
    assert (tmp_path / "store" / "mine.txt").read_text() == "mine"
    hf_to_orbax(source, tmp_path / "store", overwrite=True)
    assert verify(tmp_path / "store", source).ok and not (tmp_path / "store" / "mine.txt").exists()
    with pytest.raises(ZooError, match=r"already exists.*--overwrite"):
        orbax_to_hf(tmp_path / "store", source)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["source", "store"]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("place", ["source", "source/inside", "."])
def test_a_destination_that_is_not_apart_from_its_source_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, overwrite: bool
) -> None:
    source = write_checkpoint(tmp_path / "source")
    hf_to_orbax(source, tmp_path / "other" / "store")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    for call in (
        lambda: hf_to_orbax(Path("source"), Path(place), overwrite=overwrite),
        lambda: orbax_to_hf(Path("other/store"), Path(place.replace("source", "other/store")), overwrite=overwrite),
    ):
        with pytest.raises(ZooError, match="is, holds or lies in the source"):
            call()
    assert sorted(tmp_path.rglob("*")) == before


def test_linked_folders_are_left_out_and_named(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source")
    (source / "extra").mkdir()
    (source / "extra" / "file").write_text("text")
    (source / "link").symlink_to(source / "extra")
    (source / ".git").mkdir()
    notes = hf_to_orbax(source, tmp_path / "store").notes
    assert {"left out: link", "left out: .git"} <= set(notes)
    assert (tmp_path / "store" / "hf" / "extra" / "file").is_file() and not (
        tmp_path / "store" / "hf" / "link"
    ).exists()


def test_a_store_is_no_model_directory(tmp_path: Path) -> None:
    hf_to_orbax(write_checkpoint(tmp_path / "source"), tmp_path / "store")
    with pytest.raises(ZooError, match="found a store"):
        hf_to_orbax(tmp_path / "store", tmp_path / "again")


def test_no_space_is_said_before_a_byte_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_checkpoint(tmp_path / "source")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(staging.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(ZooError, match="no space left"):
        hf_to_orbax(source, tmp_path / "store")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["source"]


def test_no_space_keeps_the_work_of_an_earlier_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_checkpoint(tmp_path / "source")
    with monkeypatch.context() as patch:
        patch.setattr(hf_to_orbax_module, "copy_side_files", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            hf_to_orbax(source, tmp_path / "store")
    usage = shutil.disk_usage(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(staging.shutil, "disk_usage", lambda _: usage._replace(free=-(1 << 40)))
        with pytest.raises(ZooError, match="no space left"):
            hf_to_orbax(source, tmp_path / "store")
    assert "continued an earlier run that was interrupted" in hf_to_orbax(source, tmp_path / "store").notes


@pytest.mark.parametrize("command", [inspect, verify, lambda path: orbax_to_hf(path, path.with_name("back"))])
def test_an_unfinished_store_is_refused(tmp_path: Path, command: Callable[[Path], object]) -> None:
    source = write_checkpoint(tmp_path / "source")
    hf_to_orbax(source, tmp_path / "store")
    (tmp_path / "store" / "zoo.json").unlink()
    with pytest.raises(ZooError, match="unfinished store"):
        command(tmp_path / "store")
    assert not (tmp_path / "back").exists()


def damage(store: Path) -> None:
    """Flips a bit in the largest data file of a store."""
    path = max((p for p in (store / "params").rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_verify_names_every_array_that_cannot_be_read(tmp_path: Path) -> None:
    store = tmp_path / "store"
    hf_to_orbax(write_checkpoint(tmp_path / "source"), store)
    paths = list(open_store(store).manifest.parameters)
    lost = [paths[0], paths[4], paths[-1]]
    for path in lost:
        shutil.rmtree(array_folder(store, path))
    problems = verify(store).problems
    assert len(problems) == len(lost)
    assert all(any(f"/{path}/" in problem for problem in problems) for path in lost)


def test_a_damaged_store_is_found_by_verify_and_not_exported(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source")
    hf_to_orbax(source, tmp_path / "store")
    damage(tmp_path / "store")
    assert len(verify(tmp_path / "store").problems) == 1
    with pytest.raises((CheckFailed, ZooError)):
        orbax_to_hf(tmp_path / "store", tmp_path / "back")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["source", "store"]


def test_a_changed_side_file_is_found(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source")
    hf_to_orbax(source, tmp_path / "store")
    (tmp_path / "store" / "hf" / "generation_config.json").write_text("{}")
    assert any("generation_config.json" in problem for problem in verify(tmp_path / "store").problems)
    with pytest.raises(CheckFailed, match=r"generation_config\.json"):
        orbax_to_hf(tmp_path / "store", tmp_path / "back")


def test_verify_against_another_model_names_what_differs(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source")
    hf_to_orbax(source, tmp_path / "store")
    tensors = tensors_of(dict(LLAMA.tiny))
    tensors["model.norm.weight"] = tensors["model.norm.weight"] + 1
    other = write_checkpoint(tmp_path / "other", tensors=tensors)
    result = verify(tmp_path / "store", other)
    assert not result.ok and all("model.norm.weight" in problem for problem in result.problems)
