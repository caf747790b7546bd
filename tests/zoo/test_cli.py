"""The command line as a person meets it: exit codes, what goes to which stream, and the frozen set of options."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.converters.checkpoints import write_checkpoint
from zoo.cli import app, main
from zoo.converters.digest import file_sha256

COMMANDS = {
    "": {"--version", "--debug"},
    "list": {"--json"},
    "inspect": {"path", "--json"},
    "convert hf-to-orbax": {"source", "destination", "--dtype", "--plan", "--overwrite", "--json"},
    "convert orbax-to-hf": {"source", "destination", "--dtype", "--max-shard-size", "--overwrite", "--json"},
    "convert gguf-to-hf": {"source", "destination", "--dtype", "--overwrite", "--json"},
    "verify": {"store", "--against", "--json"},
    "parity": {"model", "--against", "--report", "--prompts", "--dtype", "--longest", "--json"},
    "decode": {
        "model", "--prompt", "--prompts", "--raw", "--max-new-tokens", "--temperature", "--top-k", "--top-p", "--min-p",
        "--seed", "--stop", "--dtype", "--json",
    },
}  # fmt: skip


def test_the_command_line_is_frozen() -> None:
    """It may grow; what is here may not change."""
    found: dict[str, set[str]] = {}

    def walk(command: Any, name: str) -> None:
        found[name] = {parameter.opts[0] for parameter in command.params if parameter.opts[0] != "--help"}
        for child, inner in getattr(command, "commands", {}).items():
            walk(inner, f"{name} {child}".strip())

    walk(typer.main.get_command(app), "")
    assert {name: options for name, options in found.items() if options} == COMMANDS


class Ran:
    """What a command printed and how it ended."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: object) -> None:
        self.code = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as exit_:
            self.code = exit_.code
        captured = capsys.readouterr()
        self.out, self.err = captured.out, captured.err


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return lambda *arguments: Ran(capsys, *arguments)


def test_there_and_back_with_json_only_on_stdout(tmp_path: Path, run: Run) -> None:
    source = write_checkpoint(tmp_path / "source")
    for arguments in (
        ["convert", "hf-to-orbax", source, tmp_path / "store", "--plan"],
        ["convert", "hf-to-orbax", source, tmp_path / "store"],
        ["verify", tmp_path / "store", "--against", source],
        ["inspect", tmp_path / "store"],
        ["inspect", source],
        ["convert", "orbax-to-hf", tmp_path / "store", tmp_path / "back"],
        ["list"],
    ):
        ran = run(*arguments, "--json")
        assert ran.code == 0, ran.err
        assert ran.out.count("\n") == 1 and json.loads(ran.out)
        assert ran.err == ""
    assert file_sha256(source / "model.safetensors") == file_sha256(tmp_path / "back" / "model.safetensors")


def test_people_get_lines(tmp_path: Path, run: Run) -> None:
    source = write_checkpoint(tmp_path / "source")
    assert "fit the layout table" in run("convert", "hf-to-orbax", source, tmp_path / "store", "--plan").out
    assert not (tmp_path / "store").exists()
    assert "family llama" in run("convert", "hf-to-orbax", source, tmp_path / "store").out
    assert "equal their digests" in run("verify", tmp_path / "store").out
    assert "layers.1.attn.q.kernel" in run("inspect", tmp_path / "store").out
    assert "smollm2-135m-instruct" in run("list").out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", "nowhere"], "nowhere: no such path, and no name in the catalog"),
        (["inspect", "smollm2-135m-instuct"], "the nearest name is 'smollm2-135m-instruct'"),
        (["inspect", "meta-llama/Llama-3.2-1B"], "must be downloaded first"),
        (["inspect", "llama3.1-8b"], "hf download meta-llama/Llama-3.1-8B --local-dir Llama-3.1-8B"),
        (["decode", "llama3.1-8b", "--prompt", "x"], "its weights do not come with the catalog; download them"),
        (["inspect", "./nowhere"], "nowhere: no such file or directory"),
        (["verify", "nowhere"], "expected a store, found nothing"),
        (["convert", "hf-to-orbax", "nowhere", "store"], "nowhere: no such path"),
        (["convert", "orbax-to-hf", "nowhere", "back"], "expected a store, found nothing"),
        (["convert", "orbax-to-hf", "nowhere", "back", "--max-shard-size", "huge"], "expected a size such as 5GB"),
        (["convert", "gguf-to-hf", "nowhere.gguf", "back"], "nowhere.gguf: no such file"),
        (["convert", "hf-to-orbax", "./a", "b", "--dtype", "int4"], "unknown dtype 'int4'; expected one of keep"),
        (["convert", "hf-to-orbax", "a"], "Missing argument"),
        (["convert", "nonsense"], "No such command"),
        (["nonsense"], "No such command 'nonsense'"),
        (["inspect", "a", "--jsn"], "No such option"),
        (["decode", "nowhere", "--prompt", "x"], "no such path"),
        (["decode", "nowhere"], "expected either --prompt TEXT or --prompts FILE.jsonl"),
        (["decode", "nowhere", "--prompt", "x", "--prompts", "y"], "expected either --prompt TEXT or --prompts"),
        (["decode", "nowhere", "--prompts", "nofile"], "nofile: cannot read prompts: No such file"),
        (["decode", "nowhere", "--prompt", "x", "--max-new-tokens", "many"], "Invalid value for '--max-new-tokens'"),
    ],
)
def test_bad_usage_is_one_error_and_exit_2(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run(*arguments)
    assert ran.code == 2
    assert message in ran.err and ran.err.startswith("error: ") and "Traceback" not in ran.err
    assert ran.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_failed_check_is_exit_1(tmp_path: Path, run: Run) -> None:
    source = write_checkpoint(tmp_path / "source")
    run("convert", "hf-to-orbax", source, tmp_path / "store")
    (tmp_path / "store" / "hf" / "config.json").write_text("{}")
    ran = run("verify", tmp_path / "store", "--json")
    assert ran.code == 1 and json.loads(ran.out)["ok"] is False


def test_a_fault_of_our_own_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import zoo.listing

    monkeypatch.setattr(zoo.listing, "families", lambda: 1 / 0)
    ran = run("list")
    assert ran.code == 70 and "internal: ZeroDivisionError" in ran.err and "Traceback" not in ran.err
    assert "Traceback" in run("list", "--debug").err


def test_a_full_disk_is_an_error_with_advice(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import zoo.converters.hf_to_orbax as module

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    source = write_checkpoint(tmp_path / "source")
    with monkeypatch.context() as patch:
        patch.setattr(module, "copy_side_files", full)
        ran = run("convert", "hf-to-orbax", source, tmp_path / "store")
    assert ran.code == 2 and "no space left" in ran.err and not (tmp_path / "store").exists()
    assert "continued an earlier run" in run("convert", "hf-to-orbax", source, tmp_path / "store").out


def test_a_place_that_cannot_be_written(tmp_path: Path, run: Run) -> None:
    source = write_checkpoint(tmp_path / "source")
    (tmp_path / "file").write_text("")
    ran = run("convert", "hf-to-orbax", source, tmp_path / "file" / "store")
    assert ran.code == 2 and "cannot write the destination" in ran.err


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys, zoo, zoo.cli\n"
        "heavy = {'jax', 'numpy', 'flax', 'orbax', 'transformers', 'pydantic', 'torch', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_is_130_and_the_next_run_continues(tmp_path: Path, run: Run, signal_: signal.Signals) -> None:
    source = write_checkpoint(tmp_path / "source", num_hidden_layers=24)
    slow = (
        "import zoo.converters.hf_to_orbax as m, zoo.converters.store_writer as w, time\n"
        "m.RECORD_BYTES = 4096\n"
        "save = w.StoreWriter.record\n"
        "def slowly(self, *a):\n    save(self, *a); print('saved', flush=True); time.sleep(0.2)\n"
        "w.StoreWriter.record = slowly\n"
        # A shell's background job ignores it, and so would what it starts.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from zoo.cli import main\n"
        f"main(['convert', 'hf-to-orbax', {str(source)!r}, {str(tmp_path / 'store')!r}])\n"
    )
    process = subprocess.Popen([sys.executable, "-c", slow], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(3):
        assert process.stdout.readline() == "saved\n"
    os.kill(process.pid, signal_)
    _, errors = process.communicate(timeout=60)
    assert (
        process.returncode == 130
        and "store is unfinished; run the same command again" in errors
        and "Traceback" not in errors
    )
    assert not (tmp_path / "store").exists()
    assert "continued an earlier run" in run("convert", "hf-to-orbax", source, tmp_path / "store").out


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source", num_hidden_layers=24)
    command = [sys.executable, "-m", "zoo.cli", "inspect", str(source)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 0
