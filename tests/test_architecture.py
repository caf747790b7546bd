"""What may import what, and what the folders look like (see docs/decisions/0010-packaging.md)."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# A folder, and the folders it may import besides itself.
ARROWS = {
    "models": set[str](),
    "converters": {"models"},
    "train": {"models"},
    "serve": {"models"},
    "zoo": {"models", "converters", "train", "serve"},
}
TESTS = ("tests", "parity_tests", "benchmarks")
SOURCES = [path for folder in ARROWS for path in sorted((ROOT / folder).rglob("*.py"))]
EVERYTHING = SOURCES + [path for folder in TESTS for path in sorted((ROOT / folder).rglob("*.py"))]

HEAVY = ("jax", "numpy", "transformers", "orbax", "flax", "pydantic", "torch", "safetensors", "gguf")

each_source = pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
each_file = pytest.mark.parametrize("path", EVERYTHING, ids=lambda path: str(path.relative_to(ROOT)))


def imports(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Line, full dotted name, and whether it was written relative, of each import anywhere in the file."""
    folder, *inner = path.relative_to(ROOT).parent.parts
    package = ["zoo", *inner] if folder == "zoo" else ["zoo", folder, *inner]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name, False) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*parents, *filter(None, [node.module])])
            yield from ((node.lineno, f"{base}.{name.name}", bool(node.level)) for name in node.names)


def folder_of(module: str) -> str | None:
    """The folder of ours that holds a module."""
    top, *rest = module.split(".")
    if top != "zoo":
        return None
    return rest[0] if rest and rest[0] in ARROWS else "zoo"


@each_source
def test_imports_follow_the_arrows(path: Path) -> None:
    home = path.relative_to(ROOT).parts[0]
    wrong = [(line, name) for line, name, _ in imports(path) if folder_of(name) not in {None, home, *ARROWS[home]}]
    assert not wrong, f"{home} may import only {sorted(ARROWS[home])}"


@each_source
def test_imports_are_relative_within_a_folder_and_absolute_across(path: Path) -> None:
    home = path.relative_to(ROOT).parts[0]
    ours = [(line, name, relative) for line, name, relative in imports(path) if folder_of(name)]
    assert not [found for found in ours if found[2] != (folder_of(found[1]) == home)]


@each_file
def test_folders_are_imported_by_their_installed_names(path: Path) -> None:
    # `import models` works in the repository's root and nowhere else.
    bare = ARROWS.keys() - {"zoo"}
    assert not [(line, name) for line, name, _ in imports(path) if name.split(".")[0] in bare]


@each_file
def test_files_have_a_subject_and_a_readable_length(path: Path) -> None:
    assert path.name != "utils.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 450


def test_the_command_line_starts_without_heavy_imports() -> None:
    code = f"import sys, zoo, zoo.cli; print([name for name in {HEAVY} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
