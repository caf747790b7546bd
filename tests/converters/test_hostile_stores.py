"""A store that somebody has changed: nothing in it is taken on trust, nothing outside of it is touched."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import zoo
from zoo.converters.hf_to_orbax import hf_to_orbax, plan_hf_to_orbax
from zoo.converters.inspect import inspect
from zoo.converters.orbax_to_hf import orbax_to_hf
from zoo.converters.source import DTYPES
from zoo.converters.verify import verify
from zoo.models.errors import CheckFailed, ZooError
from zoo.models.manifest import SAFETENSORS_DTYPES, Manifest

from .checkpoints import write_checkpoint


@pytest.fixture
def store(tmp_path: Path) -> Path:
    hf_to_orbax(write_checkpoint(tmp_path / "source"), tmp_path / "store")
    return tmp_path / "store"


def edit(store: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads((store / "zoo.json").read_text())
    change(content)
    (store / "zoo.json").write_text(json.dumps(content))


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def header(content: dict[str, Any], change: Callable[[dict[str, Any]], object]) -> None:
    entries = json.loads(content["files"][0]["header"])
    change(entries)
    content["files"][0]["header"] = json.dumps(entries)


NAMES = ["../../evil.safetensors", "/tmp/evil.safetensors", "a/../../evil", "", "nul\0", "config.json", "./x", "a\\b"]
DAMAGE: dict[str, Callable[[dict[str, Any]], object]] = {
    **{f"file name {name!r}": lambda c, name=name: c["files"][0].update(name=name) for name in NAMES},
    **{f"side file {name!r}": lambda c, name=name: c["side_files"].update({name: "00"}) for name in NAMES[:5]},
    "a header that is no JSON": lambda c: c["files"][0].update(header="{"),
    "a header that is a list": lambda c: c["files"][0].update(header="[]"),
    "a header deeper than anything": lambda c: c["files"][0].update(header="[" * 100_000),
    "a tensor less in the header": lambda c: header(c, lambda h: h.pop("model.norm.weight")),
    "another type in the header": lambda c: header(c, lambda h: h["model.norm.weight"].update(dtype="F16")),
    "no files": lambda c: c.update(files=[]),
    "files twice": lambda c: c.update(files=c["files"] * 2),
    "a tensor of an unknown type": lambda c: c["tensors"]["model.norm.weight"].update(dtype="banana"),
    "a parameter of an unknown type": lambda c: c["parameters"]["final_norm.scale"].update(dtype="banana"),
    "a size beyond any": lambda c: c["parameters"]["final_norm.scale"].update(shape=[2**70]),
    "redundant of nothing": lambda c: c.update(redundant={"foo": "bar"}),
    "a parameter that leaves": lambda c: c["parameters"].update({"../x": c["parameters"]["final_norm.scale"]}),
    "a parameter less": lambda c: c["parameters"].pop("final_norm.scale"),
}


def _verified(store: Path) -> bool:
    try:
        return verify(store).ok
    except ZooError:
        return False


@pytest.mark.parametrize("name", DAMAGE)
def test_a_changed_zoo_json_is_refused_and_nothing_is_touched(tmp_path: Path, store: Path, name: str) -> None:
    edit(store, DAMAGE[name])
    before = everything(tmp_path)
    with pytest.raises(ZooError):
        orbax_to_hf(store, tmp_path / "deep" / "back")
    assert not _verified(store)
    assert everything(tmp_path) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["model"]["layers"][0]["attn"]["rope"].update(theta=5.0),
        lambda c: c["model"]["layers"][1]["mlp"].update(activation="relu"),
        lambda c: c["model"]["final_norm"].update(epsilon=0.5),
    ],
    ids=["theta", "activation", "epsilon"],
)
def test_verify_finds_a_model_that_is_not_the_sources(store: Path, change: Callable[[dict[str, Any]], object]) -> None:
    edit(store, change)
    assert any("the model is not the one" in problem for problem in verify(store).problems)


def test_verify_finds_files_that_are_missing_or_too_many(store: Path) -> None:
    (store / "params" / "_CHECKPOINT_METADATA").unlink()
    (store / "hf" / "surprise.txt").write_text("")
    problems = verify(store).problems
    assert problems == ["hf/surprise.txt: not in the source", "params/_CHECKPOINT_METADATA: missing"]


@pytest.mark.parametrize("damage", ["missing", "short", "separator", "chunks", "deep"])
def test_a_damaged_array_is_named_by_whoever_loads_it(
    store: Path, damage: str, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = store / "params" / "state" / "layers.1.mlp.up.kernel"
    metadata = json.loads((folder / ".zarray").read_text())
    if damage == "missing":
        (folder / "0.0").unlink()
    elif damage == "short":
        (folder / "0.0").write_bytes(b"1234")
    elif damage == "deep":
        (folder / ".zarray").write_text("[" * 100_000)
    else:
        changed = {"separator": {"dimension_separator": "/"}, "chunks": {"chunks": None}}[damage]
        (folder / ".zarray").write_text(json.dumps({**metadata, **changed}))
    with pytest.raises(ZooError, match=r"layers\.1\.mlp\.up\.kernel.*convert the source again"):
        zoo.load(str(store))
    assert "Traceback" not in capfd.readouterr().err


def test_a_side_file_that_is_gone_is_named_and_nothing_is_left(tmp_path: Path, store: Path) -> None:
    (store / "hf" / "generation_config.json").unlink()
    with pytest.raises(CheckFailed, match=r"generation_config\.json: missing"):
        orbax_to_hf(store, tmp_path / "back")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["source", "store"]


def test_a_folder_that_no_conversion_made_is_never_removed(tmp_path: Path, store: Path) -> None:
    mine = tmp_path / "mine.unfinished"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    with pytest.raises(ZooError, match=r"holds something else \(thesis\.txt\)"):
        orbax_to_hf(store, tmp_path / "mine")
    source = shutil.copytree(tmp_path / "source", tmp_path / "model.unfinished")
    with pytest.raises(ZooError, match="is, holds or lies in the source"):
        hf_to_orbax(source, tmp_path / "model")
    assert (mine / "thesis.txt").read_text() == "years of work" and (source / "config.json").exists()


def test_what_is_being_made_is_accepted_by_no_command(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("zoo.converters.staging.Staging.publish", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            orbax_to_hf(store, tmp_path / "back")
    content = tmp_path / "back.unfinished" / "content"
    assert (content / "config.json").exists()
    for command in (inspect, lambda path: zoo.load(str(path)), lambda path: hf_to_orbax(path, tmp_path / "again")):
        with pytest.raises(ZooError, match="unfinished"):
            command(content)


def test_a_side_file_gone_between_two_runs_is_not_in_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_checkpoint(tmp_path / "source")
    (source / "old.txt").write_text("")
    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "write", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            hf_to_orbax(source, tmp_path / "store")
    (source / "old.txt").unlink()
    hf_to_orbax(source, tmp_path / "store")
    assert not (tmp_path / "store" / "hf" / "old.txt").exists() and verify(tmp_path / "store", source).ok


def test_destinations_that_cannot_be(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name, message in {"link": "link to nothing", "\udcff": "UTF-8", "source": "is, holds or lies"}.items():
        with pytest.raises(ZooError, match=message):
            plan_hf_to_orbax(source, tmp_path / name)


def test_a_tokenizers_own_code_is_not_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = write_checkpoint(tmp_path / "source")
    content = {"auto_map": {"AutoTokenizer": ["evil.Evil", None]}, "tokenizer_class": "Evil"}
    (source / "tokenizer_config.json").write_text(json.dumps(content))
    (source / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil:\n    pass\n")
    with pytest.raises(ZooError, match="cannot load a tokenizer"):
        zoo.load(str(source))
    assert not (tmp_path / "ran").exists() and "[y/N]" not in capfd.readouterr().out


def test_a_store_and_a_source_know_the_same_element_types() -> None:
    assert set(DTYPES) == SAFETENSORS_DTYPES
