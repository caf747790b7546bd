"""Stop strings: nothing is given out that would have to be taken back, and nothing is kept for no reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.models.errors import ZooError
from zoo.serve.stop import StopStrings

texts = st.text("ab", max_size=30)


@given(
    pieces=st.lists(st.text("ab", max_size=5), max_size=12),
    stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
)
def test_pieces_add_up_to_the_text_before_the_first_stop(pieces: list[str], stops: list[str]) -> None:
    filter_ = StopStrings(stops)
    given_out, seen = "", ""
    for piece in pieces:
        given_out += filter_.push(piece)
        seen += piece
        assert seen.startswith(given_out)
        if not filter_.stopped:
            # What is held back begins a stop string, so it is shorter than the longest of them.
            assert len(seen) - len(given_out) < max(map(len, stops), default=1)
        if filter_.stopped:
            break
    given_out += filter_.finish()
    found = [seen.find(stop) for stop in stops if stop in seen]
    assert filter_.stopped == bool(found)
    assert given_out == (seen[: min(found)] if found else seen)


def test_after_a_stop_nothing_more_comes() -> None:
    filter_ = StopStrings(["END"])
    assert [filter_.push(piece) for piece in ("one EN", "D two", "three")] == ["one ", "", ""]
    assert filter_.stopped and filter_.finish() == ""


def test_an_empty_stop_is_refused() -> None:
    with pytest.raises(ZooError, match="empty"):
        StopStrings(["a", ""])
