"""Layers that are alike as one stacked array a parameter, for a scan over them.

Files and the tree have layers one by one; a program over stacked ones is compiled once for all that are alike, however
deep the model. Layers may alternate: a *run* is a period of layers, repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import jax
from jax import numpy as jnp

from .abstract import AbstractParameter
from .config import Layer, ModelConfig, shared_layer
from .parameters import abstract_parameters

# The longest period that is looked for.
LONGEST_PERIOD = 16


@dataclass(frozen=True)
class Run:
    """Layers `start` to `start + period * repeats`, of which those a period apart are alike."""

    start: int
    period: int
    repeats: int

    @property
    def stop(self) -> int:
        return self.start + self.period * self.repeats


def find_runs(config: ModelConfig) -> tuple[Run, ...]:
    """All layers as runs, in order; a layer that is like none of its neighbours is a run by itself.

    Layers that attend to what another remembers are not stacked, nor are those beside them.
    """
    layers = config.layers
    if any(shared_layer(layer.attn) is not None for layer in layers):
        return tuple(Run(index, 1, 1) for index in range(len(layers)))
    runs: list[Run] = []
    while (start := runs[-1].stop if runs else 0) < len(layers):
        runs.append(_longest_run(layers, start))
    return tuple(runs)


def _longest_run(layers: Sequence[Layer], start: int) -> Run:
    found = [Run(start, 1, 1)]
    for period in range(1, min(LONGEST_PERIOD, (len(layers) - start) // 2) + 1):
        alike = start + period
        while alike < len(layers) and layers[alike] == layers[alike - period]:
            alike += 1
        if (repeats := (alike - start) // period) > 1:
            found.append(Run(start, period, repeats))
    # Of equally long ones the shortest period, which compiles fastest.
    return max(found, key=lambda run: (run.stop, -run.period))


def stacked_paths(config: ModelConfig) -> dict[str, tuple[str, ...]]:
    """For each parameter of the stacked model the paths of its parts.

    `layers.4+2x3.attn.q.kernel` has those of layers 4, 6 and 8.
    """
    every = list(abstract_parameters(config))
    rest = {path: (path,) for path in every if not path.startswith("layers.")}
    by_layer: dict[int, list[str]] = {}
    for path in every:
        if path.startswith("layers."):
            _, index, name = path.split(".", 2)
            by_layer.setdefault(int(index), []).append(name)
    stacked: dict[str, tuple[str, ...]] = {}
    for run in find_runs(config):
        for position in range(run.period):
            first = run.start + position
            for name in by_layer.get(first, []):
                parts = tuple(f"layers.{i}.{name}" for i in range(first, run.stop, run.period))
                stacked[f"{run_prefix(run, position)}{name}"] = parts
    return {**rest, **stacked}


def run_prefix(run: Run, position: int) -> str:
    """How the stacked parameters of a position in the period begin: as the layer itself where nothing repeats."""
    first = run.start + position
    return f"layers.{first}." if run.repeats == 1 else f"layers.{first}+{run.period}x{run.repeats}."


def stacked_parameters(config: ModelConfig) -> dict[str, AbstractParameter]:
    """Shapes and logical axes of the stacked model's parameters; the first axis of a stack is `layers`."""
    single = abstract_parameters(config)
    return {path: _stacked(single[parts[0]], len(parts)) for path, parts in stacked_paths(config).items()}


def _stacked(one: AbstractParameter, count: int) -> AbstractParameter:
    return one if count == 1 else AbstractParameter((count, *one.shape), ("layers", *one.axes))


def stack(config: ModelConfig, params: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """The stacked model's parameters, of those that files have."""
    return {
        path: params[parts[0]] if len(parts) == 1 else jnp.stack([params[part] for part in parts])
        for path, parts in stacked_paths(config).items()
    }


def unstack(config: ModelConfig, params: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """The inverse of `stack`."""
    return dict(_unstacked(config, params))


def _unstacked(config: ModelConfig, params: Mapping[str, jax.Array]) -> Iterator[tuple[str, jax.Array]]:
    for path, parts in stacked_paths(config).items():
        if len(parts) == 1:
            yield parts[0], params[path]
        else:
            yield from ((part, params[path][index]) for index, part in enumerate(parts))
