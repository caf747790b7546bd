"""The decoder over stacked layers: the same layers, scanned, for training and for models that are deep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax import numpy as jnp
from jaxtyping import Array, Float, Int

from .config import ModelConfig, shared_layer
from .context import Context, make_context
from .decoder import Decoder
from .names import collected
from .parameters import fill
from .stacking import Run, find_runs, run_prefix

Params = Mapping[str, jax.Array]
Body = Callable[..., Any]
# What `jax.checkpoint` does, or nothing.
Remat = Callable[[Body], Body]
# Says where activations lie on a mesh.
Constrain = Callable[[jax.Array], jax.Array]


def hidden(
    config: ModelConfig,
    params: Params,
    tokens: Int[Array, "batch seq"],
    positions: Int[Array, "batch seq"],
    segment_ids: Int[Array, "batch seq"],
    *,
    remat: Remat = lambda body: body,
    constrain: Constrain = lambda x: x,
    wanted: frozenset[str] = frozenset(),
) -> tuple[Float[Array, "batch seq embed"], dict[str, list[jax.Array]]]:
    """The last block's output, and named values of blocks.

    Args:
        params: the stacked model's parameters; see `stacking.stack`.
        tokens, positions, segment_ids: as `Decoder` takes them.
        remat: what each block, or each period of a scan, is wrapped in.
        constrain: applied to the activations between blocks.
        wanted: names of values to return (see `names.py`): for each, one array [repeats, ...] for every position of a
            period that has it.
    """
    context = make_context(config, positions, segment_ids, None, None)
    outside = {path: array for path, array in params.items() if not path.startswith("layers.")}
    x, given = fill(Decoder(config), outside, partly=True).embedded(tokens, positions)
    x = constrain(x)
    found: dict[str, list[jax.Array]] = {name: [] for name in sorted(wanted)}
    memories: dict[int, Any] = {}
    for run in find_runs(config):
        own = _parameters_of(run, params)
        if run.repeats == 1:
            x, inside = _once(config, run, own, x, given, context, memories, remat, wanted)
        else:
            x, inside = _scanned(config, run, own, x, given, context, remat, constrain, wanted)
        x = constrain(x)
        for name, value in inside:
            found[name].append(value)
    return x, found


def _parameters_of(run: Run, params: Params) -> list[dict[str, jax.Array]]:
    """The parameters of each position in the period, under the names of a network of that block alone."""
    return [
        {"layers.0." + path.removeprefix(prefix): array for path, array in params.items() if path.startswith(prefix)}
        for prefix in (run_prefix(run, position) for position in range(run.period))
    ]


def _block(
    config: ModelConfig,
    index: int,
    params: Params,
    x: jax.Array,
    given: jax.Array | None,
    context: Context,
    held: Any,
    wanted: frozenset[str],
) -> tuple[jax.Array, Any, dict[str, jax.Array]]:
    one = config.model_copy(update={"layers": (config.layers[index],)})
    with collected() as found:
        x, memory = fill(Decoder(one), params, partly=True).layers[0](x, context, held, given)
    return x, memory, {name: value for name, value in found.items() if name in wanted}


def _once(
    config: ModelConfig,
    run: Run,
    own: list[dict[str, jax.Array]],
    x: jax.Array,
    given: jax.Array | None,
    context: Context,
    memories: dict[int, Any],
    remat: Remat,
    wanted: frozenset[str],
) -> tuple[jax.Array, list[tuple[str, jax.Array]]]:
    index = run.start
    source = shared_layer(config.layers[index].attn)
    held = None if source is None else memories[source]

    def body(params: Params, x: jax.Array, given: Any, held: Any) -> Any:
        return _block(config, index, params, x, given, context, held, wanted)

    x, memory, inside = remat(body)(own[0], x, None if given is None else given[:, :, index], held)
    if any(shared_layer(layer.attn) == index for layer in config.layers):
        memories[index] = memory
    return x, [(name, value[None]) for name, value in inside.items()]


def _scanned(
    config: ModelConfig,
    run: Run,
    own: list[dict[str, jax.Array]],
    x: jax.Array,
    given: jax.Array | None,
    context: Context,
    remat: Remat,
    constrain: Constrain,
    wanted: frozenset[str],
) -> tuple[jax.Array, list[tuple[str, jax.Array]]]:
    def body(x: jax.Array, period: Any) -> Any:
        params, given = period
        values: list[dict[str, jax.Array]] = []
        for position in range(run.period):
            its = None if given is None else given[position]
            x, _, inside = _block(config, run.start + position, params[position], x, its, context, None, wanted)
            x = constrain(x)
            values.append(inside)
        return x, values

    x, values = jax.lax.scan(remat(body), x, (own, _given_of(run, given)))
    return x, [(name, value) for inside in values for name, value in inside.items()]


def _given_of(run: Run, given: jax.Array | None) -> jax.Array | None:
    """The layers' own inputs, [repeats, period, batch, seq, layer_input]."""
    if given is None:
        return None
    some = jnp.moveaxis(given[:, :, run.start : run.stop], 2, 0)
    return some.reshape(run.repeats, run.period, *some.shape[1:])
