"""Files of rows by index, and errors that say where."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.train.data_files import byte_level, dataset, turns, write_jsonl
from zoo.models.errors import ZooError
from zoo.train.data import lines
from zoo.train.data.lines import JsonLines, RowTooLarge, TextLines
from zoo.train.data.shapes import SHAPES, recognise
from zoo.train.data.sources import Source, open_files
from zoo.train.data.survey import survey

TEXTS = [{"text": "one"}, {"text": "two\u2028 and a half"}, {"text": "three é"}]


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    import pyarrow as arrow
    from pyarrow import parquet

    rows = [{"messages": turns("a", str(number)), "score": None if number % 2 else 1.5} for number in range(3000)]
    rows[0]["messages"] = [*turns("a"), {"role": "assistant", "content": "0", "name": "x"}]
    path = tmp_path / "rows.parquet"
    parquet.write_table(arrow.Table.from_pylist(rows), path, row_group_size=700)
    return path


def test_lines_are_read_by_index_with_the_numbers_of_an_editor(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n \n".join(map(json.dumps, TEXTS)).encode())
    rows = JsonLines(path)
    assert [rows[index] for index in (2, 0, 1)] == [TEXTS[2], TEXTS[0], TEXTS[1]]
    assert rows.where(1) == f"{path}: line 3"


@given(st.lists(st.sampled_from(["", " ", "a", "bc", "\t", "é", "\r"]), max_size=12), st.integers(1, 5), st.booleans())
def test_lines_are_found_whatever_the_size_of_the_pieces(texts: list[str], chunk: int, ended: bool) -> None:
    expected = [(number, text.rstrip("\r")) for number, text in enumerate(texts, 1) if text.strip()]
    with tempfile.NamedTemporaryFile(suffix=".txt") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "CHUNK", chunk)
        path = Path(file.name)
        path.write_bytes(("\n".join(texts) + "\n" * ended).encode())
        if not expected:
            with pytest.raises(ZooError, match="no rows"):
                TextLines(path)
            return
        rows = TextLines(path)
        assert [rows[index]["text"] for index in range(len(rows))] == [text for _, text in expected]
        assert [rows.where(index) for index in range(len(rows))] == [f"{path}: line {number}" for number, _ in expected]


def test_parquet_is_read_by_index_without_the_nulls_of_other_rows(parquet: Path) -> None:
    rows = open_files([str(parquet)])
    assert len(rows) == 3000
    assert rows[2999] == {"messages": turns("a", "2999")}
    assert rows[1500] == {"messages": turns("a", "1500"), "score": 1.5}
    assert rows.where(2999) == f"{parquet}: row 3000"
    assert len(survey(dataset(parquet)).places) == 3000


def test_a_pattern_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        write_jsonl(tmp_path / f"{name}.jsonl", [{"text": name + "1"}, {"text": name + "2"}])
    rows = open_files([str(tmp_path / "*.jsonl")])
    assert [rows[index]["text"] for index in range(6)] == ["a1", "a2", "b1", "b2", "c1", "c2"]
    with pytest.raises(IndexError):
        _ = rows[6]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("*.parquet", r"\*.parquet: no file matches; .* holds a.jsonl, array.json, empty.txt"),
        ("b.jsonl", "b.jsonl: no such file; .* holds a.jsonl"),
        ("", "found a folder; .* holds a.jsonl"),
        ("empty.txt", "empty.txt: no rows: expected one a line"),
        ("array.json", r"array.json: expected a JSON object a line, found one JSON array.*jq -c"),
        ("a.csv", r"a.csv: expected one of .jsonl, .*, found .csv"),
        ("a.jsonl.gz", "compressed files cannot be read by index"),
        ("fake.parquet", "fake.parquet: cannot read as parquet"),
    ],
)
def test_files_that_cannot_be_used_are_named_with_a_remedy(tmp_path: Path, name: str, message: str) -> None:
    write_jsonl(tmp_path / "a.jsonl", TEXTS)
    folder = tmp_path
    (folder / "empty.txt").write_text("\n \n")
    (folder / "array.json").write_text(json.dumps(TEXTS, indent=1))
    (folder / "a.csv").write_text("text\none\n")
    (folder / "a.jsonl.gz").write_bytes(b"\x1f\x8b")
    if name.startswith("fake"):
        (folder / name).write_bytes(b"PAR1 no")
    with pytest.raises(ZooError, match=message):
        open_files([str(folder / name)])


def test_a_file_named_twice_is_an_error(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", TEXTS)
    with pytest.raises(ZooError, match="named twice"):
        open_files([str(path), str(tmp_path / "*.jsonl")])


def test_every_bad_row_is_named_before_training(tmp_path: Path) -> None:
    path = write_jsonl(
        tmp_path / "a.jsonl",
        [TEXTS[0], '{"text": "cut', "[1]", "{}", {"text": None}, {"messages": turns("a", "b")}, {"text": ""}, TEXTS[1]],
    )
    with pytest.raises(ZooError) as caught:
        survey(dataset(path))
    text = str(caught.value)
    for number, problem in [
        (2, "not JSON"),
        (3, "expected a JSON object, found list"),
        (4, "the row is empty"),
        (5, "unknown shape of row: found the fields none"),
        (6, "expected text (text) as in the first row of the file, found chat (messages)"),
        (7, "no token of the example is learned: the text is empty"),
    ]:
        assert f"{path}: line {number}: {problem}" in text
    assert "nothing_learned: skip" in text and "line 1:" not in text and "line 8" not in text


def test_a_survey_of_bad_rows_ends(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [TEXTS[0], *["{"] * 500])
    with pytest.raises(ZooError) as caught:
        survey(dataset(path))
    assert len(str(caught.value).splitlines()) < 110 and "more" in str(caught.value)


def test_bytes_that_are_no_utf8_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "a"}\n{"text": "\xff"}\n')
    with pytest.raises(ZooError, match=r"line 2: not UTF-8: byte 11"):
        JsonLines(path)[1]


def test_a_row_too_large_to_parse_is_never_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MOST_ROW_BYTES", 1 << 20)
    path = write_jsonl(tmp_path / "a.jsonl", [TEXTS[0], {"text": "a" * (1 << 20)}])
    with pytest.raises(RowTooLarge, match="line 2: the row holds 1 MiB"):
        JsonLines(path)[1]
    with pytest.raises(ZooError, match="line 2"):
        survey(dataset(path, too_long="truncate"))
    assert survey(dataset(path, too_long="drop")).dropped == 1


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        (("messages", "prompt", "prompt_id"), "chat"),
        (("conversations", "id"), "conversations"),
        (("prompt", "completion"), "completion"),
        (("instruction", "output"), "instruction"),
        (("text", "meta"), "text"),
        (("chosen", "rejected", "prompt"), "preference"),
    ],
)
def test_shapes_are_recognised_by_their_fields(fields: tuple[str, ...], name: str) -> None:
    assert recognise(dict.fromkeys(fields, "x")) == SHAPES[name]


def test_a_row_of_several_shapes_needs_a_word(tmp_path: Path) -> None:
    rows = [{"instruction": "a", "input": "", "output": "b", "text": "rendered"}]
    path = write_jsonl(tmp_path / "a.jsonl", rows)
    with pytest.raises(ZooError, match=r"line 1: the row can be read as instruction and text.*shape: instruction"):
        dataset(path)
    meant = dataset(Source((str(path),), shape="text"))
    assert meant.row(0)[1] == SHAPES["text"]
    with pytest.raises(ZooError, match=r"expected one of chat, .*, found 'chats'"):
        dataset(Source((str(path),), shape="chats"))


@pytest.mark.parametrize("row", [{"question": "a", "answer": "b"}, {"prompt": "a"}])
def test_unknown_rows_are_told_what_is_known(tmp_path: Path, row: dict[str, Any]) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [row])
    with pytest.raises(ZooError) as caught:
        dataset(path)
    assert f"{path}: line 1: unknown shape" in str(caught.value)
    assert all(str(shape) in str(caught.value) for shape in SHAPES.values())


def test_columns_can_be_renamed(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"question": "a", "answer": "b"}, {"question": "a"}])
    columns = {"prompt": "question", "completion": "answer"}
    data = dataset(Source((str(path),), columns=columns))
    assert data.row(0) == ({"prompt": "a", "completion": "b"}, SHAPES["completion"])
    with pytest.raises(ZooError, match="line 2: columns: answer: no such field; found question"):
        data.row(1)


def test_what_is_read_and_how_is_told(tmp_path: Path) -> None:
    data = dataset(
        Source((str(write_jsonl(tmp_path / "a.jsonl", TEXTS)),), weight=2.0),
        Source((str(write_jsonl(tmp_path / "b.jsonl", [{"messages": turns("a", "b")}])),), weight=1),
    )
    first, second = data.describe()
    assert first.endswith("3 rows, weight 2: text (text), as plain text; learned: every token and the end of text")
    assert "chat (messages), by the chat template; learned: the assistant's turns" in second


def test_what_was_left_out_is_counted(tmp_path: Path) -> None:
    path = write_jsonl(
        tmp_path / "a.jsonl", [{"text": "ab"}, {"text": "a" * 50}, {"text": ""}, {"text": "a<|im_end|>"}]
    )
    found = survey(dataset(path, max_length=20, too_long="drop", nothing_learned="skip"))
    assert found.lines() == [
        "2 of 4 rows, 15 tokens, 13 of them learned",
        "1 rows were dropped, being too long",
        "1 rows were skipped, having nothing to learn",
        "1 rows hold control tokens, which are kept as text",
    ]
    cut = survey(dataset(path, max_length=20, too_long="truncate", nothing_learned="skip"))
    assert cut.truncated == 1 and cut.places.tolist() == [2, 19, 0, 11]


def test_a_source_of_which_nothing_is_left_is_an_error(tmp_path: Path) -> None:
    """DAT-04: never done with nothing learned."""
    good = write_jsonl(tmp_path / "a.jsonl", [{"text": "ab"}])
    long = write_jsonl(tmp_path / "b.jsonl", [{"text": "a" * 50}] * 3)
    with pytest.raises(ZooError, match=r"nothing to train on \(3 rows were dropped.*\n  - .*b.jsonl: none of 3 rows"):
        survey(dataset(good, long, max_length=20, too_long="drop"))


@pytest.mark.parametrize(
    ("weights", "message"), [((1.0, None), "for all 2 sources or for none, found 1"), ((1.0, 0.0), "above 0, found 0")]
)
def test_bad_weights(tmp_path: Path, weights: tuple[float | None, ...], message: str) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", TEXTS)
    with pytest.raises(ZooError, match=message):
        dataset(*(Source((str(path),), weight=weight) for weight in weights))


def test_a_survey_is_kept_while_data_and_options_are_the_same(tmp_path: Path) -> None:
    """PRF-06: a run that is continued need not encode everything once more."""
    path, kept = write_jsonl(tmp_path / "a.jsonl", TEXTS), tmp_path / "survey.npz"
    looked: list[int] = []

    def look(**options: Any) -> int:
        looked.clear()
        found = survey(dataset(path, **options), kept=kept, on_progress=lambda done, _: looked.append(done))
        assert np.array_equal(found.places, survey(dataset(path, **options)).places)
        return len(looked)

    assert look() == 3 and look() == 0
    assert look(max_length=40, too_long="drop") == 3
    assert look(tokenizer=byte_level(merges=[("o", "n")])) == 3
    write_jsonl(path, [*TEXTS, TEXTS[0]])
    assert look() == 4 and look() == 0
    kept.write_bytes(kept.read_bytes()[:100])
    assert look() == 4
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.jsonl", "survey.npz"]


def test_pairs_are_not_imitated(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"prompt": "a", "chosen": "b", "rejected": "c"}] * 5)
    with pytest.raises(ZooError, match=r"expected rows to imitate.*\n  - .*a.jsonl: pairs of preferences"):
        survey(dataset(path))


def test_lines_of_text_are_rows(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\n  two \n")
    rows = open_files([str(tmp_path / "*.txt")])
    assert [rows[0], rows[1]] == [{"text": "one"}, {"text": "  two "}] and rows.where(1).endswith("a.txt: line 3")
