"""The table engine: patterns against einops, the round trip of distinct integers, and each law with what breaks it."""

import einops
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.converters.family import Family, families
from zoo.converters.layout import Pattern, Row, bind, contiguous, fill, match
from zoo.models.abstract import AbstractParameter
from zoo.models.parameters import abstract_parameters


@st.composite
def patterns(draw: st.DrawFn) -> tuple[str, dict[str, int]]:
    """A random pattern over up to five axes, with their sizes."""
    sizes = {name: draw(st.integers(1, 5)) for name in "abcde"[: draw(st.integers(1, 5))]}

    def side(axes: list[str]) -> str:
        groups: list[list[str]] = []
        for axis in axes:
            if groups and draw(st.booleans()):
                groups[-1].append(axis)
            else:
                groups.append([axis])
        return " ".join(g[0] if len(g) == 1 else f"({' '.join(g)})" for g in groups)

    return f"{side(list(sizes))} -> {side(draw(st.permutations(list(sizes))))}", sizes


@given(patterns())
def test_patterns_mean_what_einops_says_and_invert(case: tuple[str, dict[str, int]]) -> None:
    text, sizes = case
    pattern = Pattern.parse(text)
    array = np.arange(np.prod(list(sizes.values()))).reshape(pattern.left_shape(sizes))
    result = pattern.forward(array, sizes)
    np.testing.assert_array_equal(result, einops.rearrange(array, text, **sizes))
    np.testing.assert_array_equal(pattern.backward(result, sizes), array)


@pytest.mark.parametrize(
    "text", ["a b", "a -> b", "a a -> a a", "a -> a -> a", "a (b -> a b", "a ... -> a ...", "a -> a a"]
)
def test_malformed_patterns_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        Pattern.parse(text)


@pytest.mark.parametrize("dtype", ["u1", "u2", "f4", "f8", "c16"])
@pytest.mark.parametrize("shape", [(37, 50), (50, 37), (3, 1, 65), (40, 5, 33), (1, 1)])
def test_contiguous_copies_every_element(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    for axes in {tuple(range(len(shape)))[::-1], (*range(1, len(shape)), 0)}:
        view = array.transpose(axes)
        np.testing.assert_array_equal(contiguous(view), view)
        assert contiguous(view).flags.c_contiguous


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_templates_invert(i: int, e: int) -> None:
    template = "layers.{i}.experts.{e}.w"
    assert match(template, fill(template, {"i": i, "e": e})) == {"i": i, "e": e}


@pytest.mark.parametrize(
    "name", ["layers.01.w", "layers.-1.w", "layers.x.w", "layers.1.w ", "layersx1.w", "layers.\u0661.w"]
)
def test_a_template_matches_numbers_as_they_are_printed_only(name: str) -> None:
    assert match("layers.{i}.w", name) is None


def distinct(shape: tuple[int, ...], start: int) -> np.ndarray:
    return np.arange(start, start + int(np.prod(shape)), dtype=np.int64).reshape(shape)


def round_trip(rows: list[Row], parameters: dict[str, AbstractParameter]) -> None:
    """Fills the sources with integers no two of which are equal, imports, exports, and finds the same again."""
    bindings, problems = bind(rows, parameters)
    assert problems == []
    sources: dict[str, np.ndarray] = {}
    start = 0
    for binding in bindings:
        for name in binding.sources:
            sources[name] = distinct(binding.source_shape, start)
            start += sources[name].size
    native: dict[str, np.ndarray] = {}
    for binding in bindings:
        native.update(zip(binding.natives, binding.import_([sources[n] for n in binding.sources]), strict=True))
    assert {path: array.shape for path, array in native.items()} == {p: a.shape for p, a in parameters.items()}
    everything = np.sort(np.concatenate([array.reshape(-1) for array in native.values()]))
    np.testing.assert_array_equal(everything, np.arange(start))  # each integer arrived, once
    for binding in bindings:
        exported = binding.export([native[path] for path in binding.natives])
        for name, array in zip(binding.sources, exported, strict=True):
            np.testing.assert_array_equal(array, sources[name])


@pytest.mark.parametrize("family", families(), ids=lambda family: family.model_type)
def test_distinct_integers_survive_the_round_trip_through_every_family(family: Family) -> None:
    for table in family.tables:
        round_trip(list(table), dict(abstract_parameters(family.config(family.tiny))))


@pytest.mark.parametrize(
    ("row", "parameters"),
    [
        (
            Row("h.{i}.experts.{e}.up.weight", "layers.{i}.up.kernel", "experts ffn embed -> experts embed ffn"),
            {"layers.0.up.kernel": AbstractParameter((4, 3, 5), ("experts", "embed", "ffn"))},
        ),
        (
            Row(
                "h.{i}.qkv.weight",
                ("layers.{i}.q.kernel", "layers.{i}.k.kernel"),
                (
                    "[heads head_dim] embed -> embed heads head_dim",
                    "[kv_heads head_dim] embed -> embed kv_heads head_dim",
                ),
            ),
            {
                "layers.0.q.kernel": AbstractParameter((6, 4, 2), ("embed", "heads", "head_dim")),
                "layers.0.k.kernel": AbstractParameter((6, 1, 2), ("embed", "kv_heads", "head_dim")),
            },
        ),
        (
            Row(
                "h.{i}.gate_up",
                ("layers.{i}.gate.kernel", "layers.{i}.up.kernel"),
                ("experts embed (ffn []) -> experts embed ffn",) * 2,
            ),
            {
                "layers.0.gate.kernel": AbstractParameter((4, 3, 5), ("experts", "embed", "ffn")),
                "layers.0.up.kernel": AbstractParameter((4, 3, 5), ("experts", "embed", "ffn")),
            },
        ),
        (
            Row(
                "h.{i}.qkv.weight",
                ("layers.{i}.q.kernel", "layers.{i}.k.kernel", "layers.{i}.v.kernel"),
                (
                    "(kv_heads [group head_dim]) embed -> embed (kv_heads group) head_dim",
                    "(kv_heads [head_dim]) embed -> embed kv_heads head_dim",
                    "(kv_heads [head_dim]) embed -> embed kv_heads head_dim",
                ),
            ),
            {
                "layers.0.q.kernel": AbstractParameter((5, 6, 4), ("embed", "heads", "head_dim")),
                "layers.0.k.kernel": AbstractParameter((5, 2, 4), ("embed", "kv_heads", "head_dim")),
                "layers.0.v.kernel": AbstractParameter((5, 2, 4), ("embed", "kv_heads", "head_dim")),
            },
        ),
        (
            Row(
                "h.{i}.experts.{e}.gate_up",
                ("layers.{i}.gate.kernel", "layers.{i}.up.kernel"),
                ("experts [ffn] embed -> experts embed ffn",) * 2,
            ),
            {
                "layers.0.gate.kernel": AbstractParameter((4, 3, 5), ("experts", "embed", "ffn")),
                "layers.0.up.kernel": AbstractParameter((4, 3, 5), ("experts", "embed", "ffn")),
            },
        ),
    ],
    ids=["stacked", "concatenated unequal parts", "interleaved", "grouped", "stacked parts"],
)
def test_distinct_integers_survive_stacks_parts_and_interleaving(
    row: Row, parameters: dict[str, AbstractParameter]
) -> None:
    round_trip([row], parameters)


WEIGHT = {"layers.0.w": AbstractParameter((2, 3), ("embed", "ffn")), "norm": AbstractParameter((2,), ("embed",))}
NORM = Row("norm.weight", "norm", "embed -> embed")
MATRIX = Row("h.{i}.weight", "layers.{i}.w", "ffn embed -> embed ffn")


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([MATRIX], "no row binds the parameter norm [2]"),
        ([MATRIX, NORM, NORM], "native parameter norm is claimed by 2 rows"),
        ([MATRIX, NORM, Row("other.weight", "norm", "embed -> embed")], "native parameter norm is claimed by 2 rows"),
        ([MATRIX, Row("h.0.weight", "norm", "embed -> embed")], "source tensor h.0.weight is claimed by 2 rows"),
        ([NORM, Row("h.{i}.weight", "layers.{i}.w", "a b -> b a")], "axes ['b', 'a'] are not those"),
        ([NORM, Row("h.{i}.weight", "layers.{i}.w", "embed ffn -> ffn embed")], "axes ['ffn', 'embed'] are not those"),
        (
            [NORM, Row("h.{i}.weight", ("layers.{i}.w", "layers.{i}.v"), ("embed ffn -> embed ffn",) * 2)],
            "no parameter layers.0.v",
        ),
        ([NORM, Row("h.{i}.{e}.{f}", "layers.{i}.w", "embed ffn -> embed ffn")], "one index at most"),
    ],
)
def test_a_row_that_breaks_a_law_is_named(rows: list[Row], problem: str) -> None:
    _, problems = bind(rows, WEIGHT)
    assert any(problem in line for line in problems), problems


@pytest.mark.parametrize("text", ["[a b -> b a", "[a] [b] -> a b", "(a [b) c] -> a b c", "[a] b -> b"])
def test_brackets_that_enclose_nothing_whole_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        Pattern.parse(text)
