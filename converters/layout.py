"""The table engine: how tensors of one naming and layout become tensors of another, in both directions.

A `Row` is one line of a family's table. Its pattern is einops notation and its own inverse: read left to right it
imports a Hugging Face tensor, reversed it exports one. The algebra is closed under five operations and has no
arithmetic: rename, permute, reshape, stack (an index that only the source's name carries) and concatenate (several
native parameters in one source tensor). Whatever goes in therefore comes out bit for bit.

Concatenation is written with brackets: each parameter's pattern encloses, on the left, the axes that the others'
follow. `[heads head_dim] embed` and `[kv_heads head_dim] embed` lie one below the other; `(heads [head_dim]) embed`
three times are queries, keys and values head by head; `(ffn []) embed` twice are two matrices row by row.

Templates carry integer indices in braces (`layers.{i}.attn.q.kernel`); unlike regular expressions they invert.
Sizes come from the model's abstract parameters, so a table needs no configuration of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate

import numpy as np

from zoo.models.abstract import AbstractParameter

# Bytes of the elements whose axes XLA exchanges (measured: 2 to 3 times the speed of numpy at its best); wider
# integers would be narrowed by JAX.
XLA_WIDTHS = (1, 2, 4)
# Axes that are the product of others, by those: each key head has a group of query heads.
PRODUCTS: Mapping[tuple[str, ...], str] = {("kv_heads", "group"): "heads"}


@dataclass(frozen=True)
class Row:
    """One line of a layout table.

    `source` and `native` are name templates. A tuple of natives says that the source tensor is their concatenation,
    with one pattern each. An index in `source` that no native carries stacks one tensor for each value of it on a new
    first axis, which the left side of the pattern then names.
    """

    source: str
    native: str | tuple[str, ...]
    pattern: str | tuple[str, ...]

    @property
    def natives(self) -> tuple[str, ...]:
        return (self.native,) if isinstance(self.native, str) else self.native

    @property
    def patterns(self) -> tuple[str, ...]:
        return (self.pattern,) if isinstance(self.pattern, str) else self.pattern

    @property
    def stacked_index(self) -> str | None:
        """The index of a stack of sources, or None."""
        extra = [name for name in indices(self.source) if name not in indices(self.natives[0])]
        if len(extra) > 1:
            raise ValueError(f"{self.source}: one index at most may be stacked, found {', '.join(extra)}")
        return extra[0] if extra else None


# ---------------------------------------------------------------------------------------------------- templates


def indices(template: str) -> list[str]:
    """The names of a template's indices, in order."""
    return re.findall(r"\{(\w+)\}", template)


@cache
def _matcher(template: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", template)
    literal, names = parts[0::2], parts[1::2]
    text = re.escape(literal[0])
    for name, after in zip(names, literal[1:], strict=True):
        # An index is a number as Python prints it: `01` is not layer 1, or two names would be one.
        text += rf"(?P<{name}>0|[1-9][0-9]*)" + re.escape(after)
    return re.compile(text)


def match(template: str, name: str) -> dict[str, int] | None:
    """The values of the template's indices in `name`, or None where it does not fit."""
    found = _matcher(template).fullmatch(name)
    return None if found is None else {key: int(value) for key, value in found.groupdict().items()}


def fill(template: str, values: Mapping[str, int]) -> str:
    """The name that `template` makes of `values`."""
    return re.sub(r"\{(\w+)\}", lambda found: str(values[found.group(1)]), template)


# ----------------------------------------------------------------------------------------------------- patterns


@dataclass(frozen=True)
class Pattern:
    """A parsed pattern: each side a tuple of groups, each group a tuple of axis names (one per axis of the tensor).

    `part` says where in the left side other parameters' elements follow: the group, and its axes from where to where.
    """

    left: tuple[tuple[str, ...], ...]
    right: tuple[tuple[str, ...], ...]
    part: tuple[int, int, int] | None = None

    @staticmethod
    @cache
    def parse(text: str) -> Pattern:
        """Parses einops notation restricted to named axes, parentheses, and one pair of brackets on the left.

        Raises:
            ValueError: the two sides do not name the same axes, once each.
        """
        sides = text.split("->")
        if len(sides) != 2:
            raise ValueError(f"pattern {text!r}: expected one '->'")
        left, part = _bracketed(sides[0], text)
        right = _groups(sides[1], text)
        flat_left, flat_right = (sorted(axis for group in side for axis in group) for side in (left, right))
        if flat_left != flat_right or len(set(flat_left)) != len(flat_left):
            raise ValueError(f"pattern {text!r}: both sides must name the same axes, each once")
        return Pattern(left, right, part)

    @property
    def right_axes(self) -> tuple[str, ...]:
        """The right side's axes by name; a group is one axis, named by its parentheses or by what it is."""
        return tuple(
            group[0] if len(group) == 1 else PRODUCTS.get(group, f"({' '.join(group)})") for group in self.right
        )

    @property
    def factors(self) -> tuple[str, ...]:
        """The axes of the right side that are not an axis of the parameter by themselves."""
        return tuple(axis for group in self.right if len(group) > 1 for axis in group)

    def sizes(self, right_shape: Sequence[int], given: Mapping[str, int] | None = None) -> dict[str, int]:
        """The size of every axis, from the shape of the right side and the sizes already known.

        Raises:
            ValueError: the shape has another rank, or does not divide as the groups ask.
        """
        sizes = dict(given or {})
        if len(right_shape) != len(self.right):
            raise ValueError(f"expected {len(self.right)} axes ({' '.join(self.right_axes)}), found {len(right_shape)}")
        for group, size in zip(self.right, right_shape, strict=True):
            known = math.prod(sizes[axis] for axis in group if axis in sizes)
            unknown = [axis for axis in group if axis not in sizes]
            if len(unknown) > 1:
                raise ValueError(f"the sizes of {' and '.join(unknown)} are not determined")
            if unknown:
                if known == 0 or size % known:
                    raise ValueError(f"axis {' '.join(group)} of size {size} is not a multiple of {known}")
                sizes[unknown[0]] = size // known
            elif known != size:
                raise ValueError(f"axis {' '.join(group)} should have size {known}, has {size}")
        return sizes

    def left_shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(math.prod(sizes[axis] for axis in group) for group in self.left)

    def part_shape(self, sizes: Mapping[str, int]) -> tuple[tuple[int, ...], int]:
        """The left side with the bracketed axes as one axis of their own, and which one it is."""
        if self.part is None:
            return self.left_shape(sizes), 0
        number, start, stop = self.part
        group = self.left[number]
        inner = (math.prod(sizes[axis] for axis in axes) for axes in (group[:start], group[start:stop], group[stop:]))
        shape = self.left_shape(sizes)
        return (*shape[:number], *inner, *shape[number + 1 :]), number + 1

    def forward(self, array: np.ndarray, sizes: Mapping[str, int]) -> np.ndarray:
        """`array`, laid out as the left side says, rearranged into the right side; a view where the bytes allow."""
        return _rearrange(array, self.left, self.right, sizes)

    def backward(self, array: np.ndarray, sizes: Mapping[str, int]) -> np.ndarray:
        """The inverse of `forward`."""
        return _rearrange(array, self.right, self.left, sizes)


def _rearrange(
    array: np.ndarray, left: Sequence[tuple[str, ...]], right: Sequence[tuple[str, ...]], sizes: Mapping[str, int]
) -> np.ndarray:
    split = [axis for group in left for axis in group]
    order = [split.index(axis) for group in right for axis in group]
    view = array.reshape([sizes[axis] for axis in split]).transpose(order)
    return contiguous(view).reshape([math.prod(sizes[axis] for axis in group) for group in right])


def _bracketed(side: str, text: str) -> tuple[tuple[tuple[str, ...], ...], tuple[int, int, int] | None]:
    """The groups of a side that may have brackets, and where those are."""
    if "[" not in side:
        return _groups(side, text), None
    # Brackets outside of parentheses enclose a whole axis.
    if not re.search(r"\([^)]*\[", side):
        side = side.replace("[", "([").replace("]", "])")
    found = re.fullmatch(r"([^\[\]]*)\[([\w ]*)\]([^\[\]]*)", side)
    if found is None:
        raise ValueError(f"pattern {text!r}: expected one pair of brackets on the left")
    before, inside, after = found.groups()
    number = len(_groups(before[: before.rindex("(")], text))
    start = len(before[before.rindex("(") + 1 :].split())
    return _groups(f"{before} {inside} {after}", text), (number, start, start + len(inside.split()))


def _groups(side: str, text: str) -> tuple[tuple[str, ...], ...]:
    groups: list[tuple[str, ...]] = []
    position = 0
    for token in re.finditer(r"\s*(?:\(([\w ]*)\)|(\w+))\s*", side):
        if token.start() != position:
            break
        groups.append(tuple(token.group(1).split()) if token.group(2) is None else (token.group(2),))
        position = token.end()
    if side[position:].strip():
        raise ValueError(f"pattern {text!r}: cannot read {side[position:]!r}")
    return tuple(groups)


def contiguous(view: np.ndarray) -> np.ndarray:
    """A C-contiguous array with the elements of `view`; the view itself where it already is one."""
    width = view.dtype.itemsize
    if view.flags.c_contiguous or width not in XLA_WIDTHS:
        return np.asarray(view, order="C")
    import jax

    # Putting a view on a device makes it contiguous, by blocks that fit the caches. Bytes move, numbers do not: as
    # plain integers.
    array = jax.device_put(view.view(f"u{width}"), jax.local_devices(backend="cpu")[0])
    return np.asarray(array).view(view.dtype)


# ----------------------------------------------------------------------------------------------------- bindings


@dataclass(frozen=True)
class Binding:
    """A row with its indices filled in: these source tensors hold these native parameters.

    `sources` has one name, or one for each member of a stack. `source_shape` is the shape of each of them.
    """

    row: Row
    sources: tuple[str, ...]
    natives: tuple[str, ...]
    source_shape: tuple[int, ...]
    native_shapes: tuple[tuple[int, ...], ...]
    sizes: tuple[Mapping[str, int], ...]

    @property
    def native_axes(self) -> tuple[tuple[str, ...], ...]:
        """The logical axes of each native parameter."""
        return tuple(Pattern.parse(text).right_axes for text in self.row.patterns)

    @property
    def is_stack(self) -> bool:
        """Whether each source tensor is a row of the parameter, so that some can be converted without the others."""
        pattern = Pattern.parse(self.row.patterns[0])
        return self.row.stacked_index is not None and len(self.natives) == 1 and pattern.right[0] == pattern.left[0]

    def members(self, start: int, stop: int) -> Binding:
        """The binding of a stack's sources from one to before another, with these rows of the parameter."""
        axis = Pattern.parse(self.row.patterns[0]).left[0][0]
        return replace(
            self,
            sources=self.sources[start:stop],
            native_shapes=((stop - start, *self.native_shapes[0][1:]),),
            sizes=({**self.sizes[0], axis: stop - start},),
        )

    def import_(self, tensors: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Source tensors, in the order of `sources`, to native parameters, in the order of `natives`."""
        whole = tensors[0] if self.row.stacked_index is None else np.stack(tensors)
        patterns = [Pattern.parse(text) for text in self.row.patterns]
        if len(patterns) == 1:
            return [patterns[0].forward(whole, self.sizes[0])]
        shapes = [pattern.part_shape(sizes) for pattern, sizes in zip(patterns, self.sizes, strict=True)]
        axis = shapes[0][1]
        ends = list(accumulate(shape[axis] for shape, _ in shapes))
        joined = whole.reshape(*shapes[0][0][:axis], ends[-1], *shapes[0][0][axis + 1 :])
        parts = np.split(joined, ends[:-1], axis)
        return [pattern.forward(part, sizes) for pattern, part, sizes in zip(patterns, parts, self.sizes, strict=True)]

    def export(self, parameters: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Native parameters, in the order of `natives`, to source tensors, in the order of `sources`."""
        patterns = [Pattern.parse(text) for text in self.row.patterns]
        parts = [
            pattern.backward(parameter, sizes)
            for pattern, sizes, parameter in zip(patterns, self.sizes, parameters, strict=True)
        ]
        if len(parts) > 1:
            shapes = [pattern.part_shape(sizes) for pattern, sizes in zip(patterns, self.sizes, strict=True)]
            split = [part.reshape(shape) for part, (shape, _) in zip(parts, shapes, strict=True)]
            parts = [np.concatenate(split, shapes[0][1])]
        if self.row.stacked_index is not None:
            return list(parts[0].reshape(len(self.sources), *self.source_shape))
        return [parts[0].reshape(self.source_shape)]


def bind(rows: Sequence[Row], parameters: Mapping[str, AbstractParameter]) -> tuple[list[Binding], list[str]]:
    """Fills the rows in for a model, and checks them against its parameters.

    Returns the bindings, in the order of the rows and their indices, and every mistake found: a parameter that no
    row or more than one row binds, a source tensor claimed twice, axes that are not those the parameter declares.
    """
    bindings: list[Binding] = []
    problems: list[str] = []
    for row in rows:
        for path in parameters:
            values = match(row.natives[0], path)
            if values is None:
                continue
            try:
                bindings.append(_bind_row(row, values, parameters))
            except (ValueError, KeyError) as error:
                problems.append(f"row {row.source} -> {path}: {error.args[0]}")
    problems += _claimed_twice("native parameter", (native for b in bindings for native in b.natives))
    problems += _claimed_twice("source tensor", (source for b in bindings for source in b.sources))
    bound = {native for binding in bindings for native in binding.natives}
    if not problems:
        problems += [
            f"no row binds the parameter {path} {list(p.shape)}" for path, p in parameters.items() if path not in bound
        ]
    return bindings, problems


def _bind_row(row: Row, values: dict[str, int], parameters: Mapping[str, AbstractParameter]) -> Binding:
    if len(row.natives) != len(row.patterns):
        raise ValueError(f"{len(row.natives)} parameters need as many patterns, found {len(row.patterns)}")
    natives = tuple(fill(native, values) for native in row.natives)
    patterns = [Pattern.parse(text) for text in row.patterns]
    for native, pattern in zip(natives, patterns, strict=True):
        if native not in parameters:
            raise ValueError(f"the model has no parameter {native}")
        declared = parameters[native].axes
        if pattern.right_axes != declared:
            raise ValueError(
                f"axes {list(pattern.right_axes)} are not those the parameter {native} declares, {list(declared)}"
            )
    shapes = tuple(parameters[native].shape for native in natives)
    single = {
        group[0]: size
        for pattern, shape in zip(patterns, shapes, strict=True)
        for group, size in zip(pattern.right, shape, strict=True)
        if len(group) == 1
    }
    # What a product of axes leaves open, another parameter of the row determines.
    sizes = tuple(
        pattern.sizes(shape, {axis: single[axis] for axis in pattern.factors if axis in single})
        for pattern, shape in zip(patterns, shapes, strict=True)
    )
    whole = _joined_shape(patterns, sizes)
    stacked = row.stacked_index
    if stacked is None:
        sources, shape = (fill(row.source, values),), whole
    else:
        sources = tuple(fill(row.source, {**values, stacked: index}) for index in range(whole[0]))
        shape = whole[1:]
    return Binding(row, sources, natives, shape, shapes, sizes)


def _joined_shape(patterns: Sequence[Pattern], sizes: Sequence[Mapping[str, int]]) -> tuple[int, ...]:
    """The shape of the source tensor of which these are the parts."""
    if len(patterns) == 1:
        return patterns[0].left_shape(sizes[0])
    split = [pattern.part_shape(size) for pattern, size in zip(patterns, sizes, strict=True)]
    first, axis = split[0]
    if any((*shape[:axis], *shape[axis + 1 :], at) != (*first[:axis], *first[axis + 1 :], axis) for shape, at in split):
        raise ValueError(f"parts of shapes {[shape for shape, _ in split]} cannot be concatenated")
    joined = (*first[:axis], sum(shape[axis] for shape, _ in split), *first[axis + 1 :])
    if patterns[0].part is None:
        return joined
    number = patterns[0].part[0]
    return (*joined[:number], math.prod(joined[number : number + 3]), *joined[number + 3 :])


def _claimed_twice(what: str, names: Iterable[str]) -> list[str]:
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
    return [f"{what} {name} is claimed by {count} rows" for name, count in seen.items() if count > 1]
