"""Documents in rows: all of them, each apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.train.data_files import documents
from zoo.models.errors import ZooError
from zoo.train.data.examples import Example
from zoo.train.data.packing import fill, pack, pad

SEQ = 12
lengths = st.lists(st.integers(1, SEQ), max_size=60)


def example(number: int, places: int) -> Example:
    """A document of which every token says which document and which place it is; every second is learned."""
    tokens = np.arange(places + 1, dtype=np.int32) + 100 * (number + 1)
    return Example(tokens, np.arange(places + 1) % 2 == 1)


def filled(plan, places: list[int]):  # pyright: ignore
    examples = [example(number, count) for number, count in enumerate(places)]
    return fill([[examples[number] for number in plan[row]] for row in range(len(plan))], SEQ)


@given(lengths, st.integers(1, 6))
def test_each_document_is_in_the_batch_once_and_whole(places: list[int], lookahead: int) -> None:
    plan = pack(np.array(places, np.int32), SEQ, lookahead=lookahead)
    batch = filled(plan, places)
    found = documents(batch.tokens, batch.targets, batch.segment_ids)
    expected = [tuple(example(number, count).tokens.tolist()) for number, count in enumerate(places)]
    assert sorted(found) == sorted(expected)


@given(lengths)
def test_nothing_joins_one_document_to_another(places: list[int]) -> None:
    """TRN-04: targets, positions and weights are those that each document has alone."""
    plan = pack(np.array(places, np.int32), SEQ)
    batch = filled(plan, places)
    there = batch.segment_ids > 0
    assert np.array_equal(batch.targets[there], batch.tokens[there] + 1)
    assert np.array_equal(batch.positions[there], batch.tokens[there] % 100)
    assert np.array_equal(batch.weights[there], (batch.targets[there] % 100 % 2).astype(np.float32))
    for array in (batch.tokens, batch.targets, batch.positions, batch.weights):
        assert not array[~there].any()
    starts = np.diff(batch.segment_ids, axis=1) > 0
    assert not batch.positions[:, 1:][starts].any()


@given(lengths)
def test_packed_and_padded_batches_weigh_the_same(places: list[int]) -> None:
    array = np.array(places, np.int32)
    packed, padded = filled(pack(array, SEQ), places), filled(pad(array, SEQ), places)
    assert packed.weights.sum() == padded.weights.sum()
    assert len(padded.tokens) == len(places) >= len(packed.tokens)
    assert not padded.segment_ids.size or padded.segment_ids.max() == 1


@given(lengths, st.integers(1, 6))
def test_first_fit_leaves_no_row_for_what_an_open_one_could_hold(places: list[int], lookahead: int) -> None:
    plan = pack(np.array(places, np.int32), SEQ, lookahead=lookahead)
    used = [sum(places[number] for number in plan[row]) for row in range(len(plan))]
    assert all(0 < total <= SEQ for total in used)
    # Whatever began a row fitted in none of the rows before it that were still open.
    for row in range(1, len(plan)):
        first = plan[row][0]
        before = sum(places[number] for number in plan[row - 1] if number < first)
        assert before + places[first] > SEQ


def test_types_and_padding_rows() -> None:
    batch = fill([[example(0, 5), example(1, 7)], []], SEQ)
    for array in (batch.tokens, batch.targets, batch.positions, batch.segment_ids):
        assert array.dtype == np.int32 and array.shape == (2, SEQ)
    assert batch.weights.dtype == np.float32
    assert batch.segment_ids[0].tolist() == [1] * 5 + [2] * 7 and not batch.segment_ids[1].any()
    assert not batch.weights[1].any()


@pytest.mark.parametrize("places", [[3, SEQ + 1], [0, 3]])
def test_documents_that_do_not_fit_are_an_error(places: list[int]) -> None:
    for arrange in (pack, pad):
        with pytest.raises(ZooError, match=f"expected documents of 2 to {SEQ + 1} tokens in rows of {SEQ}"):
            arrange(np.array(places), SEQ)
