"""Stacked layers: the same parameters, the same logits and gradients, whatever layers alternate."""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st
from jax import numpy as jnp

from zoo.converters.family import families
from zoo.models.config import ModelConfig
from zoo.models.decoder import Decoder
from zoo.models.parameters import fill, merge, split
from zoo.models.scanned import hidden
from zoo.models.stacking import Run, find_runs, stack, stacked_parameters, unstack

# One of each kind of layer, and of each way in which they alternate.
NAMES = [
    "llama",
    "gemma2",
    "gemma3_text",
    "gpt2",
    "cohere2",
    "mixtral",
    "deepseek_v3",
    "llama4_text",
    "lfm2",
    "gpt_oss",
]
FAMILIES = [pytest.param(family, id=family.model_type) for family in families() if family.model_type in NAMES]


def deeper(config: ModelConfig, times: int) -> ModelConfig:
    """The layers again and again, but not where one attends to what another remembers."""
    return config.model_copy(update={"layers": config.layers * times})


@pytest.mark.parametrize("family", FAMILIES)
def test_the_scanned_model_computes_what_the_decoder_does(family: Any) -> None:
    config = family.config(json.loads(json.dumps(family.tiny)))
    if all(run.repeats == 1 for run in find_runs(deeper(config, 2))):
        return
    config = deeper(config, 2)
    params = split(Decoder(config, rngs=nnx.Rngs(0)))
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, config.vocab, (2, 12)))
    segment_ids = jnp.asarray([[1] * 5 + [2] * 7, [1] * 10 + [0] * 2])
    positions = jnp.asarray([[*range(5), *range(7)], [*range(10), 0, 0]])
    expected, _ = jax.jit(lambda p: merge(config, p)(tokens, positions, segment_ids))(params)

    @jax.jit
    def scanned(stacked: dict[str, jax.Array]) -> jax.Array:
        x, _ = hidden(config, stacked, tokens, positions, segment_ids, remat=jax.checkpoint)
        outside = {path: array for path, array in stacked.items() if not path.startswith("layers.")}
        return fill(Decoder(config), outside, partly=True).logits(x)

    stacked = stack(config, params)
    assert {path: array.shape for path, array in stacked.items()} == {
        path: parameter.shape for path, parameter in stacked_parameters(config).items()
    }
    np.testing.assert_allclose(scanned(stacked), expected, rtol=1e-4, atol=1e-4)
    back = unstack(config, stacked)
    assert back.keys() == params.keys()
    assert all(np.array_equal(back[path], params[path]) for path in params)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=40))
def test_runs_cover_every_layer_once_and_in_order(kinds: list[int]) -> None:
    from zoo.converters.family import family_of

    llama = family_of({"model_type": "llama"}, "")
    config = llama.config(dict(llama.tiny))
    some = [config.layers[0].model_copy(update={"residual_multiplier": 1.0 + kind}) for kind in range(3)]
    config = config.model_copy(update={"layers": tuple(some[kind] for kind in kinds)})
    covered: list[int] = []
    for run in find_runs(config):
        covered += range(run.start, run.stop)
        for position in range(run.period):
            assert len({kinds[i] for i in range(run.start + position, run.stop, run.period)}) == 1
    assert covered == list(range(len(kinds)))


def test_layers_that_alternate_after_others_are_one_run() -> None:
    from zoo.converters.family import family_of

    llama = family_of({"model_type": "llama"}, "")
    config = llama.config(dict(llama.tiny))
    some = [config.layers[0].model_copy(update={"residual_multiplier": 1.0 + kind}) for kind in range(3)]
    layers = (some[0], *[some[1], some[1], some[2]] * 4, some[1])
    runs = find_runs(config.model_copy(update={"layers": layers}))
    assert runs == (Run(0, 1, 1), Run(1, 3, 4), Run(13, 1, 1))
