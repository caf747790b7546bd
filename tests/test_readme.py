"""The README's commands and programs, run as they stand there."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.converters.checkpoints import write_checkpoint

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    return [content for name, content in found if name == language]


def run(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_commands_and_programs_run_in_order(tmp_path: Path) -> None:
    """On the real model, as a reader would run them."""
    binaries = Path(sys.executable).parent
    ran: subprocess.CompletedProcess[str] | None = None
    for block in blocks("sh"):
        for command in block.strip().splitlines():
            ran = subprocess.run(
                f'PATH="{binaries}:$PATH" && {command}',
                shell=True,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
            )
            assert ran.returncode == 0, f"{command}\n{ran.stderr}"
    assert ran is not None and "Paris" in ran.stdout
    programs = blocks("python")
    assert len(programs) == 2
    for program, expected in zip(programs, ("Paris", "(576, 9, 64)"), strict=True):
        ran = run(sys.executable, "-c", program, folder=tmp_path)
        assert ran.returncode == 0, ran.stderr
        assert expected in ran.stdout


def test_the_failure_is_the_one_that_is_shown(tmp_path: Path) -> None:
    [shown] = [block for block in blocks("") if "$ zoo" in block]
    command, *expected = shown.strip().splitlines()
    source = write_checkpoint(tmp_path / "broken")
    tensors = load_file(source / "model.safetensors")
    del tensors["model.norm.weight"]
    tensors["model.extra"] = np.ones(3, np.float32)
    save_file(tensors, source / "model.safetensors", {"format": "pt"})
    ran = run(sys.executable, "-m", "zoo.cli", *command.removeprefix("$ zoo ").split(), folder=tmp_path)
    assert ran.returncode == 2 and ran.stdout == ""
    assert ran.stderr.splitlines() == expected


def test_every_command_is_in_the_table() -> None:
    from tests.zoo.test_cli import COMMANDS

    for command in filter(None, COMMANDS):
        assert f"`zoo {command} " in README or f"`zoo {command}`" in README


@pytest.mark.parametrize("link", re.findall(r"\]\((?!http)([^)]+)\)", README))
def test_links_lead_somewhere(link: str) -> None:
    assert (ROOT / link).exists()


def test_make_is_what_the_readme_says() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    assert shutil.which("make")
