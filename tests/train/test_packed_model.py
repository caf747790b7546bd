"""Packed documents in the model: one does not see another (TRN-04)."""

from __future__ import annotations

import numpy as np
import pytest
from flax import nnx
from jax import numpy as jnp
from jax.nn import log_softmax

from tests.models.test_parameters import model_config
from zoo.models.decoder import Decoder
from zoo.train.data.examples import Example
from zoo.train.data.packing import Batch, fill

SEQ = 16


@pytest.fixture(scope="module")
def model() -> Decoder:
    return Decoder(model_config(), rngs=nnx.Rngs(0))


def example(*tokens: int) -> Example:
    return Example(np.array(tokens, np.int32), np.arange(len(tokens)) > 1)


A, B = example(3, 4, 5, 6, 7, 8), example(9, 8, 7, 6, 5, 4, 3, 2)


def logits(model: Decoder, batch: Batch) -> np.ndarray:
    found, _ = model(jnp.asarray(batch.tokens), jnp.asarray(batch.positions), jnp.asarray(batch.segment_ids))
    return np.asarray(found)


def loss(model: Decoder, batch: Batch) -> float:
    likely = np.take_along_axis(np.asarray(log_softmax(logits(model, batch))), batch.targets[..., None], -1)[..., 0]
    return float(-(likely * batch.weights).sum() / batch.weights.sum())


def test_a_document_has_the_logits_that_it_has_alone(model: Decoder) -> None:
    packed = logits(model, fill([[A, B]], SEQ))
    other = logits(model, fill([[example(3, 4, 99, 6, 7, 8), B]], SEQ))
    alone = logits(model, fill([[B]], SEQ))
    assert np.array_equal(packed[0, 5:12], other[0, 5:12]) and not np.array_equal(packed[0, :5], other[0, :5])
    np.testing.assert_allclose(packed[0, 5:12], alone[0, :7], atol=1e-5)


def test_the_loss_of_packed_documents_is_that_of_documents_in_rows_of_their_own(model: Decoder) -> None:
    packed, padded = fill([[A, B], []], SEQ), fill([[A], [B], [], []], SEQ)
    assert loss(model, packed) == pytest.approx(loss(model, padded), abs=1e-6)
