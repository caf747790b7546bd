"""The table engine: how tensors of one naming and layout become tensors of another, in both directions.

A `Row` is one line of a family's table. Its pattern is einops notation and its own inverse: read left to right it
imports a Hugging Face tensor, reversed it exports one. The algebra is closed under five operations and has no
arithmetic: rename, permute, reshape, stack (an index that only the source's name carries) and concatenate (several
native parameters in one source tensor). Whatever goes in therefore comes out bit for bit.

Templates carry integer indices in braces (`layers.{i}.attn.q.kernel`); unlike regular expressions they invert.
Sizes come from the model's abstract parameters, so a table needs no configuration of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from zoo.models.abstract import AbstractParameter

# Bytes of the elements whose axes XLA exchanges (measured: 2 to 3 times the speed of numpy at its best); wider
# integers would be narrowed by JAX.
XLA_WIDTHS = (1, 2, 4)


@dataclass(frozen=True)
class Gguf:
    """The GGUF column of a row: the tensor's name there, and the pattern from the Hugging Face layout if it differs."""

    name: str
    pattern: str | None = None


@dataclass(frozen=True)
class Row:
    """One line of a layout table.

    `source` and `native` are name templates. A tuple of natives says that the source tensor is their concatenation
    along its first axis, with one pattern each. An index in `source` that no native carries stacks one tensor for
    each value of it on a new first axis, which the left side of the pattern then names.
    """

    source: str
    native: str | tuple[str, ...]
    pattern: str | tuple[str, ...]
    gguf: Gguf | None = None

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
    """A parsed pattern: each side a tuple of groups, each group a tuple of axis names (one per axis of the tensor)."""

    left: tuple[tuple[str, ...], ...]
    right: tuple[tuple[str, ...], ...]

    @staticmethod
    @cache
    def parse(text: str) -> Pattern:
        """Parses einops notation restricted to named axes and parentheses.

        Raises:
            ValueError: the two sides do not name the same axes, once each.
        """
        sides = text.split("->")
        if len(sides) != 2:
            raise ValueError(f"pattern {text!r}: expected one '->'")
        left, right = (_groups(side, text) for side in sides)
        flat_left, flat_right = (sorted(axis for group in side for axis in group) for side in (left, right))
        if flat_left != flat_right or len(set(flat_left)) != len(flat_left):
            raise ValueError(f"pattern {text!r}: both sides must name the same axes, each once")
        return Pattern(left, right)

    @property
    def inverse(self) -> Pattern:
        return Pattern(self.right, self.left)

    @property
    def right_axes(self) -> tuple[str, ...]:
        """The right side's axes by name; a group is one axis, named by its parentheses."""
        return tuple(group[0] if len(group) == 1 else f"({' '.join(group)})" for group in self.right)

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

    def apply(self, array: np.ndarray, sizes: Mapping[str, int]) -> np.ndarray:
        """`array`, laid out as the left side says, rearranged into the right side; a view where the bytes allow."""
        split = [axis for group in self.left for axis in group]
        order = [split.index(axis) for group in self.right for axis in group]
        view = array.reshape([sizes[axis] for axis in split]).transpose(order)
        shape = [math.prod(sizes[axis] for axis in group) for group in self.right]
        return contiguous(view).reshape(shape)


def _groups(side: str, text: str) -> tuple[tuple[str, ...], ...]:
    groups: list[tuple[str, ...]] = []
    position = 0
    for token in re.finditer(r"\s*(?:\(([\w ]*)\)|(\w+))\s*", side):
        if token.start() != position:
            break
        groups.append(tuple(token.group(1).split()) if token.group(2) is None else (token.group(2),))
        position = token.end()
    if position != len(side):
        raise ValueError(f"pattern {text!r}: cannot read {side[position:]!r}")
    return tuple(groups)


def contiguous(view: np.ndarray) -> np.ndarray:
    """A C-contiguous array with the elements of `view`; the view itself where it already is one."""
    width = view.dtype.itemsize
    if view.flags.c_contiguous or width not in XLA_WIDTHS:
        return np.ascontiguousarray(view)
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

    def import_(self, tensors: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Source tensors, in the order of `sources`, to native parameters, in the order of `natives`."""
        whole = tensors[0] if self.row.stacked_index is None else np.stack(tensors)
        parts: list[np.ndarray] = []
        start = 0
        for text, sizes in zip(self.row.patterns, self.sizes, strict=True):
            pattern = Pattern.parse(text)
            rows = pattern.left_shape(sizes)[0]
            part = whole if len(self.natives) == 1 else whole[start : start + rows]
            parts.append(pattern.apply(part, sizes))
            start += rows
        return parts

    def export(self, parameters: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Native parameters, in the order of `natives`, to source tensors, in the order of `sources`."""
        parts = [
            Pattern.parse(text).inverse.apply(parameter, sizes)
            for text, sizes, parameter in zip(self.row.patterns, self.sizes, parameters, strict=True)
        ]
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return [whole] if self.row.stacked_index is None else list(whole)


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
    sizes: list[dict[str, int]] = []
    shapes: list[tuple[int, ...]] = []
    left_shapes: list[tuple[int, ...]] = []
    for native, text in zip(natives, row.patterns, strict=True):
        if native not in parameters:
            raise ValueError(f"the model has no parameter {native}")
        parameter, pattern = parameters[native], Pattern.parse(text)
        if pattern.right_axes != parameter.axes:
            raise ValueError(
                f"axes {list(pattern.right_axes)} are not those the parameter {native} declares, {list(parameter.axes)}"
            )
        sizes.append(pattern.sizes(parameter.shape))
        shapes.append(parameter.shape)
        left_shapes.append(pattern.left_shape(sizes[-1]))
    if len({shape[1:] for shape in left_shapes}) > 1:
        raise ValueError(f"parts of shapes {left_shapes} cannot be concatenated along the first axis")
    whole = (sum(shape[0] for shape in left_shapes), *left_shapes[0][1:])
    stacked = row.stacked_index
    if stacked is None:
        sources, shape = (fill(row.source, values),), whole
    else:
        sources = tuple(fill(row.source, {**values, stacked: index}) for index in range(whole[0]))
        shape = whole[1:]
    return Binding(row, sources, natives, shape, tuple(shapes), tuple(sizes))


def _claimed_twice(what: str, names: Iterable[str]) -> list[str]:
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
    return [f"{what} {name} is claimed by {count} rows" for name, count in seen.items() if count > 1]
