"""Parameters for the decoder straight from a checkpoint in a foreign layout, without converting it first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .hf_to_orbax import BUDGET_BYTES
from .layout import Binding
from .passengers import PASSENGER
from .pipeline import in_order
from .plan import Plan
from .source import TensorSource


def load_parameters(
    plan: Plan,
    source: TensorSource,
    dtype: Any,
    shardings: Mapping[str, Any] | None = None,
    paths: Iterable[str] | None = None,
) -> dict[str, Any]:
    """The native parameters as jax arrays of element type `dtype`, each put into its sharding as it is read.

    Args:
        plan: a checked plan of `source`.
        dtype: the element type to compute in; None keeps the source's.
        shardings: for each native path the sharding to place it in; the default device without.
        paths: the native paths to load; all without.
    """
    import jax

    wanted = None if paths is None else frozenset(paths)
    bindings = [
        binding
        for binding in plan.bindings
        if not binding.natives[0].startswith(PASSENGER) and (wanted is None or not wanted.isdisjoint(binding.natives))
    ]

    def cost(binding: Binding) -> int:
        return sum(source.headers[name].nbytes for name in binding.sources)

    def work(binding: Binding) -> list[np.ndarray]:
        parts = binding.import_([source.read(name) for name in binding.sources])
        return [part if dtype is None else part.astype(dtype, copy=False) for part in parts]

    result: dict[str, Any] = {}
    for binding, parts in zip(bindings, in_order(bindings, work, cost, BUDGET_BYTES), strict=True):
        for path, part in zip(binding.natives, parts, strict=True):
            if wanted is None or path in wanted:
                result[path] = jax.device_put(part, shardings[path] if shardings else None)
    return result
