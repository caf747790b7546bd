"""`zoo decode` as people and programs meet it, on a tiny model with a byte-level tokenizer and a chat template."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import zoo
import zoo.decoding
from tests.converters.checkpoints import write_checkpoint
from zoo.cli import main
from zoo.converters.hf_to_orbax import hf_to_orbax
from zoo.decoding import Prompt, read_prompts
from zoo.models.errors import ZooError

TEMPLATE = "{% for m in messages %}<user>{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<bot>{% endif %}"
SPECIAL = ["<end>", "<user>", "<bot>"]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    folder = tmp_path_factory.mktemp("decode") / "source"
    write_checkpoint(folder, dtype="float32", vocab_size=259, eos_token_id=256, pad_token_id=256)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text("{}")
    return folder


@pytest.fixture
def decode(source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    # It sets the whole process up, which a command may do and a test may not.
    monkeypatch.setattr(zoo.decoding, "keep_compiled_programs", lambda: None)

    def run(*arguments: str, model: Path = source) -> str:
        main(["decode", str(model), "--max-new-tokens", "12", *arguments])
        captured = capsys.readouterr()
        assert captured.err == ""
        return captured.out

    return run


def test_stdout_has_the_text_and_nothing_else(decode: Callable[..., str], source: Path, tmp_path: Path) -> None:
    [expected] = zoo.load(source).generate(["hello"], max_new_tokens=12)
    assert decode("--prompt", "hello") == expected.text + "\n"
    hf_to_orbax(source, tmp_path / "store")
    assert decode("--prompt", "hello", model=tmp_path / "store") == expected.text + "\n"


def test_the_template_is_used_unless_raw(decode: Callable[..., str], source: Path) -> None:
    model = zoo.load(source)
    text = model.encode("hello", raw=True)
    for options, prompt in (([], [257, *text, 258]), (["--raw"], text)):
        [expected] = model.generate([prompt], max_new_tokens=12)
        found = json.loads(decode("--prompt", "hello", "--json", *options))
        assert found["tokens"] == expected.tokens and found["prompt_tokens"] == len(prompt)


def test_a_file_of_prompts_gives_a_line_for_each(decode: Callable[..., str], tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    lines = [
        {"prompt": "a"},
        {"messages": [{"role": "user", "content": "much longer than the other"}]},
        {"prompt": "é"},
    ]
    file.write_text("\n\n".join(map(json.dumps, lines)))
    found = [json.loads(line) for line in decode("--prompts", str(file), "--json").splitlines()]
    assert [line["index"] for line in found] == [0, 1, 2]
    for line, prompt in zip(found, ("a", "much longer than the other", "é"), strict=True):
        assert line["tokens"] == json.loads(decode("--prompt", prompt, "--json"))["tokens"]
    texts = decode("--prompts", str(file))
    assert texts.startswith(f"[1] {found[0]['text']}\n[2] ") and texts.endswith(f"[3] {found[2]['text']}\n")


def test_a_stop_text_ends_before_it(decode: Callable[..., str]) -> None:
    full = json.loads(decode("--prompt", "hello", "--json"))
    cut = full["text"][3:5]
    found = json.loads(decode("--prompt", "hello", "--stop", cut, "--json"))
    assert found["text"] == full["text"][: full["text"].index(cut)] and found["finish_reason"] == "stop"


def test_equal_seeds_make_equal_samples(decode: Callable[..., str]) -> None:
    options = ("--prompt", "hello", "--temperature", "2", "--top-k", "50", "--top-p", "0.99", "--min-p", "0.0001")
    samples = [decode(*options, "--seed", seed) for seed in ("1", "1", "2")]
    assert samples[0] == samples[1] != samples[2]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: not JSON"),
        ("[]", "line 2: expected"),
        ('{"prompt": 3}', "line 2: expected"),
        ('{"messages": []}', "line 2: expected"),
        ('{"messages": [{"role": "user"}]}', "line 2: expected"),
        ('{"prompt": "a", "messages": []}', "line 2: expected"),
    ],
)
def test_a_bad_line_is_named(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, message: str
) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "fine"}\n' + line)
    with pytest.raises(SystemExit) as left:
        main(["decode", str(source), "--prompts", str(file)])
    assert left.value.code == 2 and message in capsys.readouterr().err


def test_every_bad_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": 3}\n{"prompt": "fine"}\n{')
    with pytest.raises(ZooError, match=r"(?s)bad prompts:\n  - line 1: expected.*\n  - line 3: not JSON"):
        read_prompts(file)


def test_only_newlines_end_a_line(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    text = "one\u2028two\x85three"
    file.write_bytes(json.dumps({"prompt": text}, ensure_ascii=False).encode() + b"\r\n")
    assert read_prompts(file) == [Prompt(text=text)]


def test_a_second_run_finds_the_compiled_programs(source: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "zoo.cli", "decode", str(source), "--prompt", "hello", "--max-new-tokens", "3"]
    folder = tmp_path / "cache"
    runs: list[tuple[str, set[Path]]] = []
    for _ in range(2):
        ran = subprocess.run(command, env={**os.environ, "ZOO_CACHE": str(folder)}, capture_output=True, check=True)
        assert ran.stderr == b""
        programs = {path for path in folder.rglob("*") if path.is_file() and not path.name.endswith("-atime")}
        runs.append((ran.stdout.decode(), programs))
    assert runs[0] == runs[1] and len(runs[0][1]) >= 3
    assert all(path.parent.stat().st_mode & 0o077 == 0 for path in runs[0][1])
