"""The filters against those of transformers, and the statistics of the draw."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import numpy as jnp
from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from zoo.models.errors import ZooError
from zoo.serve.sampler import NOT_A_NUMBER, Sampling, choose, keep_likely, sampling_rows

VOCAB = 50
_keep = jax.jit(keep_likely)
_choose = jax.jit(choose)

# temperature, top_k, top_p, min_p
samplings = st.tuples(st.floats(0.1, 3), st.integers(0, VOCAB + 5), st.floats(0.01, 1), st.floats(0, 1))


def _reference(logits: np.ndarray, sampling: Sampling) -> np.ndarray:
    """The order in which transformers' `generate` applies them, and its conditions for leaving one out."""
    ids = torch.LongTensor([[0]])  # asked for, and ignored
    scores = TemperatureLogitsWarper(sampling.temperature)(ids, torch.FloatTensor(logits)[None])
    if sampling.top_k:
        scores = TopKLogitsWarper(sampling.top_k)(ids, scores)
    if sampling.top_p < 1:
        scores = TopPLogitsWarper(sampling.top_p)(ids, scores)
    if sampling.min_p:
        scores = MinPLogitsWarper(sampling.min_p)(ids, scores)
    return scores[0].numpy()


@given(drawn=st.lists(samplings, min_size=2, max_size=2), seed=st.integers(0, 2**16))
@settings(max_examples=60)
def test_what_is_kept_is_what_transformers_keeps(drawn: list[tuple[float, int, float, float]], seed: int) -> None:
    rows = [Sampling(*row) for row in drawn]
    logits = 3 * np.random.default_rng(seed).standard_normal((2, VOCAB)).astype(np.float32)
    scaled = logits / np.array([[row.temperature] for row in rows], np.float32)
    kept = np.isfinite(np.asarray(_keep(jnp.asarray(scaled), sampling_rows(rows))))
    for index, row in enumerate(rows):
        expected = np.isfinite(_reference(logits[index], row))
        different = np.flatnonzero(kept[index] != expected)
        # Sums in another order may move the one token that lies on a boundary.
        assert len(different) <= 1
        assert kept[index].any()


def test_a_draw_depends_on_seed_and_position_and_not_on_company() -> None:
    logits = jnp.asarray(np.random.default_rng(0).standard_normal((4, VOCAB)), jnp.float32)
    rows = [
        Sampling(temperature=1.0, seed=3),
        Sampling(),
        Sampling(temperature=0.7, top_k=5, seed=9),
        Sampling(1.3, seed=3),
    ]
    positions = jnp.arange(4, dtype=jnp.int32)
    together = _choose(logits, sampling_rows(rows), positions)
    for index, row in enumerate(rows):
        alone = _choose(logits[index : index + 1], sampling_rows([row]), positions[index : index + 1])
        assert alone[0] == together[index]


def test_temperature_zero_is_argmax() -> None:
    logits = jnp.asarray(np.random.default_rng(0).standard_normal((3, VOCAB)), jnp.float32)
    rows = [Sampling(0.0, top_k=3, top_p=0.5, seed=seed) for seed in range(3)]
    assert (_choose(logits, sampling_rows(rows), jnp.zeros(3, jnp.int32)) == jnp.argmax(logits, -1)).all()


def test_draws_have_the_distribution_of_the_softmax() -> None:
    number = 20000
    logits = jnp.log(jnp.array([0.5, 0.3, 0.15, 0.05], jnp.float32))
    rows = sampling_rows([Sampling(temperature=1.0, seed=1)] * number)
    tokens = _choose(jnp.broadcast_to(logits, (number, 4)), rows, jnp.arange(number, dtype=jnp.int32))
    np.testing.assert_allclose(np.bincount(np.asarray(tokens)) / number, [0.5, 0.3, 0.15, 0.05], atol=0.015)


def test_logits_that_are_no_numbers_are_noticed() -> None:
    logits = jnp.zeros((2, VOCAB)).at[1, 7].set(jnp.nan)
    for row in (Sampling(), Sampling(temperature=1.0)):
        assert _choose(logits, sampling_rows([row, row]), jnp.zeros(2, jnp.int32))[1] == NOT_A_NUMBER


@pytest.mark.parametrize(
    "wrong", [{"temperature": -1.0}, {"temperature": float("nan")}, {"top_k": -1}, {"top_p": 0.0}, {"min_p": 2.0}]
)
def test_settings_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ZooError, match=next(iter(wrong))):
        Sampling(**wrong)  # pyright: ignore[reportArgumentType]
