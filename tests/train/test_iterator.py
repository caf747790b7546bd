"""The order of rows: decided by the seed, continued exactly, and the same on any number of processes."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.train.data_files import (
    CHATML,
    batches,
    byte_level,
    dataset,
    documents,
    encoder,
    turns,
    write_jsonl,
    write_texts,
)
from zoo.models.errors import ZooError
from zoo.train.data.examples import Example
from zoo.train.data.iterator import Batches, BatchOptions
from zoo.train.data.order import draws, epoch_order, permutation
from zoo.train.data.packing import Batch
from zoo.train.data.preview import preview
from zoo.train.data.sources import Source
from zoo.train.data.survey import Survey


class Numbers:
    """A dataset of rows of given lengths that are their own numbers, without files."""

    def __init__(self, lengths: list[list[int]], weights: list[float] | None = None):
        self.weights = weights
        self.sources = [Source(()) for _ in lengths]
        self.parts = lengths
        self._stops = np.cumsum(list(map(len, lengths)))
        self.places = np.array([length for part in lengths for length in part], np.int32)
        self.read: list[int] = []

    def rows_of(self, source: int) -> range:
        stop = int(self._stops[source])
        return range(stop - len(self.parts[source]), stop)

    def where(self, index: int) -> str:
        return f"row {index}"

    def example(self, index: int) -> Example:
        self.read.append(index)
        count = self.places[index] + 1
        return Example(np.full(count, index, np.int32), np.arange(count) > 0)


def stream(
    lengths: list[int] | list[list[int]],
    batch_size: int,
    seq_len: int = 8,
    *,
    epochs: int | None = None,
    weights: list[float] | None = None,
    process: tuple[int, int] = (0, 1),
    **options: Any,
) -> Batches:
    parts: Any = lengths if lengths and isinstance(lengths[0], list) else [lengths]
    data: Any = Numbers(parts, weights)
    found = Survey(data.places, data.places, 0, 0, 0, 0)
    made = BatchOptions(batch_size, seq_len, **options)
    return Batches(data, found, made, epochs=epochs, process_index=process[0], process_count=process[1])


def equal(one: list[Batch], other: list[Batch]) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for a, b in zip(one, other, strict=True)
        for name in ("tokens", "targets", "positions", "segment_ids", "weights")
    )


def seen(found: list[Batch]) -> list[int]:
    return [document[0] for batch in found for document in documents(batch.tokens, batch.targets, batch.segment_ids)]


runs = st.fixed_dictionaries(
    {
        "lengths": st.lists(st.integers(1, 8), min_size=1, max_size=30),
        "batch_size": st.sampled_from([1, 2, 4, 8]),
        "pack": st.booleans(),
        "shuffle": st.booleans(),
        "seed": st.integers(0, 2**32),
        "epochs": st.integers(1, 3),
    }
)


@given(runs)
def test_each_epoch_has_each_row_once(run: dict[str, Any]) -> None:
    found = list(stream(**run))
    assert Counter(seen(found)) == dict.fromkeys(range(len(run["lengths"])), run["epochs"])
    assert all(len(batch.tokens) == run["batch_size"] for batch in found)
    assert len(found) == stream(**run).total_steps()


@given(runs, st.data())
def test_a_stream_that_was_stopped_goes_on_as_if_it_had_not_been(run: dict[str, Any], data: st.DataObject) -> None:
    """RES-01, for a stop anywhere in any epoch."""
    unbroken = list(stream(**run))
    stop = data.draw(st.integers(0, len(unbroken)))
    first = stream(**run)
    before = [next(first) for _ in range(stop)]
    second = stream(**run)
    second.restore(json.loads(json.dumps(first.state())))
    assert equal(before + list(second), unbroken)


@given(runs, st.data())
def test_batches_are_the_same_on_any_number_of_processes(run: dict[str, Any], data: st.DataObject) -> None:
    """RES-07: stopped on some, continued on others; and each reads its own rows alone."""
    counts = [count for count in (1, 2, 4, 8) if run["batch_size"] % count == 0]
    whole = list(stream(**run))
    stop = data.draw(st.integers(0, len(whole)))
    state: dict[str, Any] | None = None
    joined: list[Batch] = []
    for _ in range(2):
        count = data.draw(st.sampled_from(counts))
        processes = [stream(**run, process=(index, count)) for index in range(count)]
        if state is not None:
            for process in processes:
                process.restore(state)
        steps = stop if state is None else len(whole) - stop
        for _ in range(steps):
            parts = [next(process) for process in processes]
            joined.append(
                Batch(*(np.concatenate([getattr(part, name) for part in parts]) for name in Batch.__annotations__))
            )
        read = [index for process in processes for index in process._dataset.read]  # pyright: ignore
        assert Counter(read) == Counter(seen(joined[-steps:] if steps else []))
        states = [process.state() for process in processes]
        assert all(found == states[0] for found in states)
        state = states[0]
    assert equal(joined, whole)


def test_ten_rows_stopped_in_the_second_epoch() -> None:
    """RES-01, as reported."""
    run: dict[str, Any] = {"lengths": [1] * 10, "batch_size": 2, "epochs": 3, "seq_len": 1}
    whole = seen(list(stream(**run)))
    first = stream(**run)
    before = seen([next(first) for _ in range(7)])
    second = stream(**run)
    second.restore(first.state())
    assert before + seen(list(second)) == whole
    epochs = [whole[start : start + 10] for start in (0, 10, 20)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs) and len(set(map(tuple, epochs))) == 3


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize(("rows", "steps"), [(3, 1), (9, 2), (16, 2)])
def test_rows_that_fill_no_batch_are_used(rows: int, steps: int, pack: bool) -> None:
    """DAT-04, DAT-06: with the weights of their tokens, and none for padding."""
    found = list(stream([8] * rows, 8, epochs=2, pack=pack))
    assert len(found) == 2 * steps
    assert sum(batch.weights.sum() for batch in found) == 2 * rows * 8
    assert Counter(seen(found)) == dict.fromkeys(range(rows), 2)


def test_padding_adds_nothing_for_any_batch_size() -> None:
    """TRN-10: the sums that an evaluation divides are the same."""
    totals = {
        size: sum(float(batch.weights.sum()) for batch in stream([1, 8] * 5, size, epochs=1, shuffle=False, pack=False))
        for size in (1, 2, 4)
    }
    assert set(totals.values()) == {45.0}


def test_a_batch_that_the_processes_cannot_share_is_refused() -> None:
    """DAT-06"""
    with pytest.raises(ZooError, match="expected a multiple of the 4 processes, found 6"):
        stream([1], 6, process=(0, 4))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"batch_size": 4}, "batch_size: 2 when it was saved, 4 now"),
        ({"seed": 1}, "seed: 0 when it was saved, 1 now"),
        ({"pack": False}, "pack: True when it was saved, False now"),
        ({"lengths": [1, 2, 3, 5]}, "the data: rows"),
        ({"lengths": [1, 2, 3]}, "the data: rows"),
    ],
)
def test_a_state_of_other_data_or_options_is_refused(changed: dict[str, Any], message: str) -> None:
    run: dict[str, Any] = {"lengths": [1, 2, 3, 4], "batch_size": 2, "seed": 0, "pack": True}
    with pytest.raises(ZooError, match=message):
        stream(**(run | changed)).restore(stream(**run).state())
    with pytest.raises(ZooError, match="expected version 1, found None"):
        stream(**run).restore({})


def test_continuing_costs_the_same_however_far_a_run_had_come(tmp_path: Path) -> None:
    """PRF-06: no row is read that an earlier batch had, and the state does not grow."""
    run: dict[str, Any] = {"lengths": [3] * 200_000, "batch_size": 2, "seq_len": 6}
    sizes: list[int] = []
    for step in (9, 9000, 90_000):
        resumed = stream(**run)
        resumed.restore(resumed.state() | {"epoch": step // 50_000, "batch": step % 50_000})
        start = time.perf_counter()
        next(resumed)
        assert len(resumed._dataset.read) == 4  # pyright: ignore
        assert time.perf_counter() - start < 5
        sizes.append(len(json.dumps(resumed.state())))
    assert max(sizes) - min(sizes) < 10


mixtures = st.lists(st.tuples(st.integers(1, 20), st.sampled_from([0.5, 1.0, 3.0])), min_size=1, max_size=3)


@given(mixtures, st.booleans())
def test_a_mixture_has_its_proportions(sources: list[tuple[int, float]], shuffle: bool) -> None:
    sizes, weights = [size for size, _ in sources], [weight for _, weight in sources]
    rows = [np.arange(size) + 100 * number for number, size in enumerate(sizes)]
    counts = draws(sizes, weights)
    scale = max(size / weight for size, weight in sources)
    assert all(abs(count - scale * weight) <= 0.5 for count, weight in zip(counts, weights, strict=True))
    total: Counter[int] = Counter()
    for epoch in range(3):
        order = epoch_order(rows, weights, seed=5, epoch=epoch, shuffle=shuffle)
        assert [int((order // 100 == number).sum()) for number in range(len(sizes))] == counts
        total.update(order.tolist())
    for part in rows:
        # Each row of a source was read as often as any other of it, or once more.
        times = [total[row] for row in part.tolist()]
        assert max(times) - min(times) <= 1


def test_a_mixture_is_even() -> None:
    rows = [np.arange(40), np.arange(10) + 100]
    order = epoch_order(rows, [4, 1], seed=0, epoch=0, shuffle=True)
    assert all((order[start : start + 5] >= 100).sum() == 1 for start in range(0, 50, 5))


def test_the_order_of_a_seed_never_changes() -> None:
    """Else a run that is continued after an upgrade would read rows twice."""
    assert permutation(10, 0, 0, 0).tolist() == PERMUTATION
    assert permutation(10, 0, 0, 1).tolist() != PERMUTATION


PERMUTATION = [3, 2, 1, 8, 6, 0, 7, 4, 5, 9]


def test_a_file_that_changes_during_a_run_is_noticed(tmp_path: Path) -> None:
    path = write_texts(tmp_path / "a.jsonl", [3, 4])
    running = batches(dataset(path), 2, 8)
    write_texts(path, [4, 3])
    with pytest.raises(ZooError, match=r"a.jsonl: line \d: "):
        next(running)


def test_files_become_batches(tmp_path: Path) -> None:
    path = write_texts(tmp_path / "a.jsonl", [3, 4, 5])
    batch = next(batches(dataset(path), 1, 12, shuffle=False))
    text = encoder().tokenizer.written(batch.tokens[0].tolist())
    # The end of text is a target and never read.
    assert text == '!!!""""#####'
    assert batch.positions[0].tolist() == [0, 1, 2, 0, 1, 2, 3, 0, 1, 2, 3, 4]
    assert batch.weights.sum() == 12


def test_a_preview_tells_the_learned_tokens_apart_with_and_without_colour(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"messages": turns("häh?", "é\n[b]")}] * 5)
    shown = list(preview(dataset(path), count=2))
    assert [line.plain for line in shown[1:6]] == [
        f"{path}: line 1: 32 tokens, 8 learned",
        "<|im_start|>user",
        "häh?<|im_end|>",
        "<|im_start|>assistant",
        "⟦é",
    ]
    assert shown[6].plain == "[b]<|im_end|>" and shown[7].plain == "⟧"
    assert any("green" in str(span.style) for span in shown[6].spans)


def test_a_template_that_writes_another_date_is_noticed(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"messages": turns("a", "b")}])
    variables = {"today": "9 May"}
    running = batches(dataset(path, tokenizer=byte_level("{{ today }} " + CHATML), variables=variables), 1, 200)
    variables["today"] = "10 May"
    with pytest.raises(ZooError, match=r"line 1: the row has other tokens.*today's date, which can be set"):
        next(running)
