"""`zoo parity` as people and CI meet it: reports, exit codes, other sides, and what is said of bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers

import zoo
from zoo.cli import main
from zoo.comparison import greedy, reference
from zoo.comparison.report import SCHEMA_VERSION, Report
from zoo.converters.hf_to_orbax import hf_to_orbax
from zoo.models.errors import ZooError

from .browser import measured
from .reference import write_checkpoint

WEIGHTS = "model.safetensors"
Change = Callable[[dict[str, np.ndarray]], object]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parity") / "source"
    write_checkpoint(folder, vocab_size=259)
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def store(source: Path) -> Path:
    hf_to_orbax(source, source.parent / "store")
    return source.parent / "store"


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A model whose second block has other weights than the source."""
    folder = tmp_path / "broken"
    write_checkpoint(folder, vocab_size=259)
    write_tokenizer(folder)
    change(folder, lambda tensors: tensors["model.layers.1.mlp.up_proj.weight"].__imul__(1.1))
    return folder


def write_tokenizer(folder: Path, tokens: list[str] | None = None) -> None:
    """One of bytes."""
    tokens = sorted(pre_tokenizers.ByteLevel.alphabet()) if tokens is None else tokens
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')


def change(folder: Path, edit: Change) -> None:
    tensors = load_file(folder / WEIGHTS)
    edit(tensors)
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})


def run(*arguments: object) -> int:
    try:
        main(["parity", *map(str, arguments), "--longest", "64"])
    except SystemExit as exit_:
        return int(exit_.code or 0)
    return 0


def failed(report: Report) -> list[str]:
    return [check.name for check in report.checks if not check.passed]


def test_a_store_is_compared_with_its_source_and_the_report_is_written(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "hello there"}\n')
    code = run(store, "--report", tmp_path / "new" / "report", "--prompts", tmp_path / "prompts.jsonl", "--json")
    assert code == 0
    printed = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    folder = tmp_path / "new" / "report"
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "report.json", "report.md"]
    saved = json.loads((folder / "report.json").read_text(), parse_constant=pytest.fail)
    assert saved == printed and saved["schema_version"] == SCHEMA_VERSION
    report = Report.model_validate(saved)
    assert report.passed and report.family == "llama" and report.culprit is None
    names = [document.name for document in report.documents]
    assert {"short", "random", "long", "prose", "code", "scripts", "prompt 1", "prose, continued"} <= set(names)
    assert report.greedy[-1].agreed == report.greedy[-1].tokens == greedy.NEW_TOKENS
    markdown = (folder / "report.md").read_text()
    # The most that a comment on a pull request may have.
    assert len(markdown) < 65536 and "✅" in markdown and "❌" not in markdown


def test_the_schema_is_the_one_that_is_documented() -> None:
    """A changed field needs a new version and a word in docs/parity.md."""
    documented = (Path(__file__).parent.parent / "docs" / "parity.md").read_text(encoding="utf-8")
    missing = [name for name in Report.model_fields if f"`{name}`" not in documented]
    assert not missing and f"version {SCHEMA_VERSION}" in documented


@pytest.mark.parametrize("flagged", [False, True])
def test_the_page_is_readable_on_a_phone_without_network_or_scripts(
    store: Path, broken: Path, tmp_path: Path, flagged: bool
) -> None:
    run(broken if flagged else store, *(["--against", store] if flagged else []), "--report", tmp_path)
    content = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not [word for word in ("<script", "http://", "https://", "src=", "@import", "url(") if word in content]
    script = """page => ({width: page.documentElement.scrollWidth, shown: page.documentElement.clientWidth,
      charts: [...page.querySelectorAll("svg")].map(chart => chart.getBoundingClientRect().height),
      title: page.title, text: page.body.innerText})"""
    found: dict[str, Any] = json.loads(measured(tmp_path / "report.html", script, tmp_path))
    assert found["width"] <= found["shown"] <= 390
    assert len(found["charts"]) == 3 and min(found["charts"]) > 80
    assert found["title"].startswith("Failed" if flagged else "Passed")
    assert ("layers.1.mlp.up.kernel" in found["text"]) == flagged


def test_two_models_of_ours_are_compared_and_the_tensor_is_named(
    store: Path, broken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(store, "--against", store) == 0
    capsys.readouterr()
    assert run(broken, "--against", store) == 1
    out = capsys.readouterr().out
    assert "layers.1" in out and "NOT EQUAL" in out
    report = zoo.parity(broken, store, longest=64)
    assert report.culprit is not None
    [tensor] = report.culprit.tensors
    assert (report.culprit.stage, report.culprit.value) == ("layers.1", "up")
    assert (tensor.native, tensor.equal) == ("layers.1.mlp.up.kernel", False)


def test_against_a_directory_the_row_and_both_names_are_told(source: Path, broken: Path) -> None:
    report = zoo.parity(broken, source, longest=64)
    assert report.culprit is not None
    [tensor] = report.culprit.tensors
    assert tensor.source == "model.layers.1.mlp.up_proj.weight" and tensor.row is not None and tensor.equal is False


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_computing_or_keeping_in_low_precision_has_its_own_tolerance(source: Path, tmp_path: Path, dtype: str) -> None:
    report = zoo.parity(source, dtype=dtype, longest=64)
    assert report.passed and report.dtype == dtype
    hf_to_orbax(source, tmp_path / "cast", dtype=dtype)
    rounded = zoo.parity(tmp_path / "cast", longest=64)
    assert rounded.passed and rounded.dtype == f"float32, weights rounded to {dtype}"
    assert rounded.tolerance == report.tolerance
    # Whichever side was rounded.
    assert zoo.parity(source, tmp_path / "cast", longest=64).passed


def test_a_store_that_was_cast_is_its_own_equal(source: Path, tmp_path: Path) -> None:
    hf_to_orbax(source, tmp_path / "cast", dtype="bfloat16")
    report = zoo.parity(tmp_path / "cast", tmp_path / "cast", longest=64)
    assert report.passed and report.dtype == "float32"


def test_a_tokenizer_of_another_model_beside_the_weights_is_said(source: Path, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, vocab_size=131)
    write_tokenizer(tmp_path)
    report = zoo.parity(tmp_path, longest=64)
    assert any(line.startswith("text 'prose': the tokenizer makes token ") for line in report.not_covered)
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "a b"}\n')
    with pytest.raises(ZooError, match=r"prompt 1: the tokenizer makes token \d+ of it, but .* has 131 tokens"):
        zoo.parity(tmp_path, prompts=tmp_path / "prompts.jsonl", longest=64)


def test_a_prompt_longer_than_the_positions_is_said(source: Path, tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"prompt": "a" * 70}) + "\n")
    with pytest.raises(ZooError, match=r"prompt 1: 70 tokens; .* has 64 positions"):
        zoo.parity(source, prompts=tmp_path / "prompts.jsonl", longest=64)


def test_another_tokenizer_is_said(source: Path, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, vocab_size=259)
    write_tokenizer(tmp_path, sorted(pre_tokenizers.ByteLevel.alphabet(), reverse=True))
    assert failed(zoo.parity(tmp_path, source, longest=64)) == ["tokenizer"]
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer_config.json").unlink()
    report = zoo.parity(source, tmp_path, longest=64)
    assert [c.detail for c in report.checks if not c.passed] == ["the reference has none"]


def test_what_is_no_number_in_the_reference_is_said_of_it(source: Path, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, vocab_size=259)
    write_tokenizer(tmp_path)
    change(tmp_path, lambda tensors: tensors["model.norm.weight"].__setitem__(3, np.nan))
    report = zoo.parity(source, tmp_path, longest=64)
    details = [c.detail for c in report.checks if c.name.startswith("logits are numbers")]
    assert len(details) == 3 and all(detail.startswith("the reference's: ") for detail in details)


@pytest.mark.parametrize("where", ["ours", "the reference"])
def test_another_vocabulary_is_said_with_both_sizes(source: Path, tmp_path: Path, where: str) -> None:
    write_checkpoint(tmp_path, vocab_size=131)
    sides = (tmp_path, source) if where == "ours" else (source, tmp_path)
    with pytest.raises(ZooError, match=r"vocabularies differ: .* (131|259) logits, .* (131|259)"):
        zoo.parity(*sides, longest=64)


@pytest.mark.parametrize(("changes", "words"), [({"num_hidden_layers": 1}, "depths"), ({"hidden_size": 32}, "widths")])
@pytest.mark.parametrize("kind", ["directory", "store"])
def test_another_network_is_refused(
    source: Path, tmp_path: Path, changes: dict[str, Any], words: str, kind: str
) -> None:
    write_checkpoint(tmp_path / "other", vocab_size=259, **changes)
    if kind == "store":
        hf_to_orbax(tmp_path / "other", tmp_path / "store")
    other = tmp_path / ("store" if kind == "store" else "other")
    for sides in ((source, other), (other, source)):
        with pytest.raises(ZooError, match=f"the {words} differ"):
            zoo.parity(*sides, longest=64)


def test_what_is_no_number_agrees_with_nothing(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    change(tmp_path, lambda tensors: tensors["model.layers.1.mlp.up_proj.weight"].__setitem__((3, 3), np.nan))
    report = zoo.parity(tmp_path, longest=64)
    some = report.statistics["padding after"]
    assert (some.top_1, some.kl_largest, some.perplexity) == (0.0, np.inf, np.inf)
    assert not [check for check in report.checks if check.passed and check.name.startswith(("logits", "greedy"))]
    assert report.culprit is not None and report.culprit.advice == "NaN or infinity in: layers.1.mlp.up.kernel"
    [tensor] = report.culprit.tensors
    assert tensor.equal


def test_a_source_that_is_gone_is_said_with_the_remedy(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "source")
    hf_to_orbax(tmp_path / "source", tmp_path / "store")
    (tmp_path / "source").rename(tmp_path / "moved")
    with pytest.raises(ZooError, match="is gone; give where it is now: --against HF_DIR"):
        zoo.parity(tmp_path / "store")
    assert zoo.parity(tmp_path / "store", tmp_path / "moved", longest=64).passed


def test_without_torch_the_extra_is_named_and_models_of_ours_are_still_compared(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = reference.find_spec
    monkeypatch.setattr(reference, "find_spec", lambda name: None if name == "torch" else find(name))
    assert run(store) == 2
    assert "pip install 'zoo-jax[parity]'" in capsys.readouterr().err
    assert run(store, "--against", store) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dtype", "int8"], "unknown dtype"),
        (["--prompts", "missing.jsonl"], "missing.jsonl"),
        (["--against", "nowhere"], "nowhere"),
        (["--report", "file"], "expected a folder, found a file"),
        (["--report", "theirs"], "is none of zoo's"),
        (["--report", "folders"], "report.html is a folder"),
        (["--report", "model"], "a model is there"),
        (["--longest", "3"], "at least 8"),
    ],
)
def test_bad_options_are_said_before_the_work(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "folders" / "report.html").mkdir(parents=True)
    (tmp_path / "model").symlink_to(source)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "report.json").write_text("{}")
    with pytest.raises(SystemExit) as exit_:
        main(["parity", str(source), *options])
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


def test_windows_and_lengths_that_no_document_reaches_are_told(tmp_path: Path) -> None:
    from zoo.converters.family import family_of

    mistral = family_of({"model_type": "mistral"}, "")
    write_checkpoint(tmp_path, mistral.tiny, sliding_window=200, max_position_embeddings=512)
    report = zoo.parity(tmp_path, longest=64)
    assert report.passed
    assert any(line.startswith("window 200") for line in report.not_covered)
    assert not any(line.startswith("window") for line in zoo.parity(tmp_path, longest=256).not_covered)


MEMORY = """
import resource, sys
from pathlib import Path
from zoo.allocator import return_freed_memory
return_freed_memory()
import zoo
from zoo.comparison import check
check.continue_greedily = lambda *_: []
peaks = []
for folder in sys.argv[1:]:
    assert zoo.parity(folder, longest=32).passed
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
print(*peaks)
"""


def test_one_block_is_in_memory_at_a_time(tmp_path: Path) -> None:
    """Of a model ten times as deep the peak is hardly higher."""
    wide: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 4096, "tie_word_embeddings": True}
    for name, depth in (("shallow", 2), ("deep", 20)):
        write_checkpoint(tmp_path / name, num_hidden_layers=depth, **wide)
    size = (tmp_path / "deep" / WEIGHTS).stat().st_size
    folders = [str(tmp_path / name) for name in ("shallow", "deep")]
    ran = subprocess.run([sys.executable, "-c", MEMORY, *folders], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    shallow, deep = map(int, ran.stdout.split())
    assert deep - shallow < size / 4
