"""The wheel holds what the repository holds, under the names that are imported."""

from __future__ import annotations

import ast
import email
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def files() -> list[PurePosixPath]:
    """What git has or would take; so caches and leftovers are out, and a file not yet added is in."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [PurePosixPath(name) for name in listed.split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def wheel(files: list[PurePosixPath], tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    # From a copy, since setuptools builds inside the tree and would pack what an earlier build left there.
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    for name in files:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tree / name)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--wheel-dir", str(out), str(tree)], check=True)
    [path] = out.iterdir()
    return zipfile.ZipFile(path)


def metadata(wheel: zipfile.ZipFile, name: str) -> str:
    [path] = [path for path in wheel.namelist() if path.endswith(f".dist-info/{name}")]
    return wheel.read(path).decode()


def test_every_file_is_in_the_wheel_and_nothing_else(wheel: zipfile.ZipFile, files: list[PurePosixPath]) -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {folder: package.replace(".", "/") for package, folder in setuptools["package-dir"].items()}
    expected = {
        str(PurePosixPath(folders[name.parts[0]], *name.parts[1:])) for name in files if name.parts[0] in folders
    }
    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == expected


def test_metadata(wheel: zipfile.ZipFile) -> None:
    fields = email.message_from_string(metadata(wheel, "METADATA"))
    assert fields["Name"] == "zoo-jax"
    assert fields["License-Expression"] == "Apache-2.0"
    assert "Version 2.0, January 2004" in metadata(wheel, "licenses/LICENSE")
    assert "zoo = zoo.cli:main" in metadata(wheel, "entry_points.txt")


def test_what_is_imported_is_asked_for(wheel: zipfile.ZipFile) -> None:
    """A package that only came along with another one, or with those for the tests, would be missing for a user."""
    fields = email.message_from_string(metadata(wheel, "METADATA"))
    extra = re.compile(r"extra == .(\w+).")
    asked_for = [(line, extra.search(line)) for line in fields.get_all("Requires-Dist", [])]
    needed = [line for line, match in asked_for if match is None or match[1] != "test"]
    asked = {_normal(re.split(r"[^\w.-]", line)[0]) for line in needed}
    sources = [wheel.read(name) for name in wheel.namelist() if name.endswith(".py")]
    modules = {module.split(".")[0] for source in sources for module in _imported(source)}
    distributions = packages_distributions()
    imported = {_normal(distributions[module][0]) for module in modules - sys.stdlib_module_names - {"zoo"}}
    # jaxlib and jinja2 are used through jax and transformers.
    assert asked == imported | {"jaxlib", "jinja2"}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _imported(source: bytes) -> set[str]:
    nodes = list(ast.walk(ast.parse(source)))
    plain = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    return plain | {
        node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level
    }
