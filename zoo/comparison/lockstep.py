"""Both sides through the network together, and every difference on the way.

After each block of the reference ours computes the same block twice: on its own activations of all arrangements, as it
would in use, and alone, on what the reference's block was given. The first shows how differences grow, the second whose
they are: in float32 a block alone agrees to some 1e-6, so even a small fault stands out.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from tempfile import TemporaryFile

import jax
import numpy as np
from jax import numpy as jnp

from ..allocator import trim
from .native import Native, comparable
from .probe import ARRANGEMENTS, Arrangement, Group, Probe
from .side import Side, Stage
from .statistics import Difference, Scores, likeliest
from .tolerance import Tolerance

# Logits computed at a time; statistics are in float64, and take some ten arrays of that size.
LOGITS = 1 << 19
WORST = 10
OUTPUT = "output"
# Values that a router's choice is in.
AFTER_ROUTER = frozenset({"router", "experts", "mlp", "mlp_post_norm"})


@dataclass(frozen=True)
class Alone:
    """How a value differs where the block was given the reference's activations, and the root mean square allowed."""

    difference: Difference
    allowed: float

    @property
    def excess(self) -> float:
        """Above 1 it is too much."""
        return self.difference.rms / self.allowed


@dataclass
class StageResult:
    """How a block, or the embedding, differs.

    Attributes:
        used: its output, as activations come to it in use.
        alone: its values and its output, by name, in the order of their making; of all documents the worst.
    """

    used: Difference | None = None
    alone: dict[str, Alone] = field(default_factory=dict[str, Alone])


@dataclass(frozen=True)
class Position:
    """A position at which the distributions differ much, with the likeliest tokens of both and their probabilities."""

    kl: float
    document: int
    index: int
    ours: list[tuple[int, float]]
    reference: list[tuple[int, float]]


@dataclass
class Comparison:
    """What two sides differ in.

    Attributes:
        stages: by name, in the order of the network.
        scores: of every document, in each arrangement.
        worst: the positions of the largest divergence.
    """

    stages: dict[str, StageResult] = field(default_factory=dict[str, StageResult])
    scores: dict[Arrangement, dict[int, Scores]] = field(default_factory=dict[Arrangement, dict[int, Scores]])
    worst: list[Position] = field(default_factory=list[Position])

    def joined(self, arrangement: Arrangement) -> Scores:
        """The scores of all documents one after the other."""
        return Scores.joined(list(self.scores[arrangement].values()))


def compare_layers(
    ours: Native,
    reference: Side,
    probe: Probe,
    tolerance: Tolerance,
    on_progress: Callable[[str], None] | None = None,
) -> Comparison:
    """Compares a model of ours with another implementation of it, or with another model of ours.

    Args:
        ours: our side.
        reference: the other one.
        probe: what both are given.
        tolerance: how much a block alone may differ.
        on_progress: called with a few words as the work goes on.
    """
    result = Comparison(scores={arrangement: {} for arrangement in ARRANGEMENTS})
    heap: list[tuple[float, int, int, Position]] = []
    for group in probe.groups:
        _Pass(ours, reference, probe, group, tolerance, result, heap, on_progress or (lambda _: None)).run()
    result.worst = [entry[-1] for entry in sorted(heap, reverse=True)]
    return result


class _Pass:
    """One group of documents on its way."""

    def __init__(
        self,
        ours: Native,
        reference: Side,
        probe: Probe,
        group: Group,
        tolerance: Tolerance,
        result: Comparison,
        heap: list[tuple[float, int, int, Position]],
        on_progress: Callable[[str], None],
    ):
        self._ours, self._reference = ours, reference
        self._probe, self._group = probe, group
        self._allowed = tolerance.of_values(max(probe.documents[number].end for number in group.documents))
        self._ties = tolerance.ties
        self._step = max(4, min(64, LOGITS // ours.vocab))
        self._result, self._heap = result, heap
        self._progress = on_progress
        self._real = group.alone.segment_ids != 0
        self._places = {(place.arrangement, place.document): (place.row, place.column) for place in group.placements}

    def run(self) -> None:
        self._used = self._ours.begin(self._group.arranged)
        self._alone = self._ours.begin(self._group.alone)
        hidden = self._reference.run(self._group.alone, self._watch)
        trim()
        self._progress("logits")
        self._compare_logits(hidden)
        self._ours.close()
        self._reference.close()
        trim()

    def _watch(self, stage: Stage) -> None:
        """Takes ours through what the reference has just gone through."""
        self._progress(stage.name)
        result = self._result.stages.setdefault(stage.name, StageResult())
        values: Mapping[str, np.ndarray] = {}
        if stage.layer is not None:
            params = self._ours.block_parameters(stage.layer)
            self._ours.block(self._used, stage.layer, params=params)
            self._alone.x = jnp.asarray(stage.inputs, self._alone.x.dtype)
            inside = self._ours.block(self._alone, stage.layer, params=params, values=True)
            values = comparable(inside, self._ours.config, stage.layer, self._real.shape)
        decided = self._real & ~self._tied(values, stage.values)
        found = {
            name: Difference.of(value, stage.values[name], decided if name in AFTER_ROUTER else self._real)
            for name, value in values.items()
            if name in stage.values
        }
        different = max(1e-3, self._allowed)
        if any(name in found and found[name].rms > different for name in ("queries", "keys")):
            attn = self._ours.config.layers[stage.layer or 0].attn
            _judge_by_products(found, values, stage.values, attn, different)
        found[OUTPUT] = Difference.of(np.asarray(self._alone.x, np.float32), stage.outputs, decided)
        for name, difference in found.items():
            now, before = Alone(difference, self._allowed), result.alone.get(name)
            result.alone[name] = now if before is None or now.excess > before.excess else before
        result.used = Difference.of(self._padded_after(self._used.x), stage.outputs, self._real).worse(result.used)

    def _tied(self, ours: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray]) -> np.ndarray:
        """Tokens for which the sides chose other experts, where those are as few as rounding may decide."""
        none = np.zeros_like(self._real)
        if not self._ties or "router_logits" not in ours:
            return none
        # Some references tell their router's choice, the others its logits.
        if "router" in ours and "router" in reference:
            left, right = ours["router"] != 0, reference["router"] != 0
        elif "router_logits" in reference and "router" in ours:
            count = int((ours["router"] != 0).sum(axis=-1).max())
            left, right = ours["router"] != 0, _among_largest(reference["router_logits"], count)
        else:
            return none
        tied = (left != right).any(axis=-1) & self._real
        return tied if tied.sum() <= self._ties * self._real.sum() else none

    def _padded_after(self, x: jax.Array) -> np.ndarray:
        """Of a batch with every arrangement the documents with padding behind them, as the reference has them."""
        rows, seq = self._real.shape
        return np.asarray(x[:rows, :seq], np.float32)

    def _compare_logits(self, hidden: np.ndarray) -> None:
        """The reference's logits wait in a file, so that only one side's head is in memory at a time."""
        with TemporaryFile(prefix="zoo-parity-") as kept:
            for row, _, start, stop in self._steps():
                kept.write(self._reference.logits(hidden[row : row + 1, start:stop])[0].tobytes())
            self._reference.close()
            trim()
            kept.seek(0)
            parts: dict[tuple[Arrangement, int], list[Scores]] = defaultdict(list)
            for _, number, start, stop in self._steps():
                shape = stop - start, self._ours.vocab
                reference = np.frombuffer(kept.read(4 * shape[0] * shape[1]), np.float32).reshape(shape)
                ours = self._logits(number, start, stop)
                following = np.array([*self._probe.documents[number].ids[1:], -1])[start:stop]
                for arrangement, logits in ours.items():
                    parts[arrangement, number].append(Scores.of(logits, reference, following))
                worst = parts["padding after", number][-1]
                self._keep_worst(number, start, ours["padding after"], reference, worst)
        for (arrangement, number), scores in parts.items():
            self._result.scores[arrangement][number] = Scores.joined(scores)

    def _steps(self) -> Iterator[tuple[int, int, int, int]]:
        """Row of the group, document, and the positions whose logits are computed together."""
        for row, number in enumerate(self._group.documents):
            count = len(self._probe.documents[number].ids)
            for start in range(0, count, self._step):
                yield row, number, start, min(start + self._step, count)

    def _logits(self, number: int, start: int, stop: int) -> dict[Arrangement, np.ndarray]:
        """Ours at some positions of a document, in every arrangement."""
        pieces: list[jax.Array] = []
        for arrangement in ARRANGEMENTS:
            row, column = self._places[arrangement, number]
            piece = self._used.x[row, column + start : column + stop]
            # One shape, so that the head is compiled once.
            pieces.append(jnp.pad(piece, ((0, self._step - (stop - start)), (0, 0))))
        logits = self._ours.logits(jnp.stack(pieces))
        return {name: logits[index, : stop - start] for index, name in enumerate(ARRANGEMENTS)}

    def _keep_worst(self, number: int, start: int, ours: np.ndarray, reference: np.ndarray, scores: Scores) -> None:
        for index in np.argsort(-scores.kl)[:WORST]:
            kl = float(scores.kl[index])
            if len(self._heap) == WORST and kl <= self._heap[0][0]:
                return
            position = Position(kl, number, start + int(index), likeliest(ours[index]), likeliest(reference[index]))
            entry = (kl, -number, -position.index, position)
            (heapq.heappushpop if len(self._heap) == WORST else heapq.heappush)(self._heap, entry)


def _among_largest(values: np.ndarray, count: int) -> np.ndarray:
    """Whether each element is among so many largest of the last axis."""
    return values >= np.sort(values, axis=-1)[..., -count, None]


def _judge_by_products(
    found: dict[str, Difference],
    ours: Mapping[str, np.ndarray],
    reference: Mapping[str, np.ndarray],
    attn: object,
    different: float,
) -> None:
    """Some implementations keep the elements of turned heads in another order, which products of the two do not show.

    Where those agree, so do queries and keys.
    """
    heads, kv_heads = getattr(attn, "heads", 0), getattr(attn, "kv_heads", getattr(attn, "heads", 0))
    if not heads or not {"queries", "keys"} <= ours.keys() & reference.keys():
        return
    if any(ours[name].shape != reference[name].shape for name in ("queries", "keys")):
        return
    left, right = _products(ours, heads, kv_heads), _products(reference, heads, kv_heads)
    difference = Difference.of(left, right, np.ones(left.shape[:2], bool))
    if difference.rms <= different:
        found["queries"] = found["keys"] = difference


def _products(values: Mapping[str, np.ndarray], heads: int, kv_heads: int) -> np.ndarray:
    """Products of the last queries with all keys, [rows, some, heads * seq]."""
    queries, keys = values["queries"][:, -8:], values["keys"]
    grouped = queries.reshape(*queries.shape[:2], kv_heads, heads // kv_heads, -1)
    apart = keys.reshape(*keys.shape[:2], kv_heads, -1)
    return np.einsum("bskgh,btkh->bskgt", grouped, apart).reshape(*queries.shape[:2], -1)
