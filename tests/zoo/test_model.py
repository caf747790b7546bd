"""A loaded model is the same thing whatever it was loaded from and wherever its parameters live."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import zoo
from tests.converters.checkpoints import write_checkpoint
from zoo.converters.hf_to_orbax import hf_to_orbax
from zoo.models.abstract import AbstractParameter
from zoo.models.errors import ZooError
from zoo.models.sharding import make_mesh, parameter_shardings

TOKENS = [[5, 17, 99, 3, 64], [1, 2, 3, 4, 5]]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "source", attention_bias=True, dtype="float32")


def test_a_directory_and_its_store_are_one_model(tmp_path: Path, source: Path) -> None:
    hf_to_orbax(source, tmp_path / "store")
    one, other = zoo.load(source), zoo.load(tmp_path / "store")
    assert one.config == other.config and one.params.keys() == other.params.keys()
    np.testing.assert_array_equal(one.logits(TOKENS), other.logits(TOKENS))
    assert one.logits(TOKENS).shape == (2, 5, 128) and one.logits(TOKENS).dtype == np.float32
    first, second = (model.generate(TOKENS, max_new_tokens=9) for model in (one, other))
    assert [r.tokens for r in first] == [r.tokens for r in second]
    assert all(len(r.tokens) == 9 and r.finish_reason == "length" and r.text == "" for r in first)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_compute_dtype_is_the_one_asked_for(source: Path, dtype: str) -> None:
    model = zoo.load(source, dtype=dtype)
    assert {str(array.dtype) for array in model.params.values()} == {dtype}
    logits = np.asarray(model.logits(TOKENS))
    assert logits.dtype == np.float32
    exact = np.asarray(zoo.load(source, dtype="float32").logits(TOKENS))
    # Random weights of size 1 amplify rounding: the same function, not the same numbers.
    assert np.any(logits != exact) and np.corrcoef(logits.ravel(), exact.ravel())[0, 1] > 0.99


def test_positions_and_segments_pack_sequences(source: Path) -> None:
    model = zoo.load(source)
    packed = model.logits([TOKENS[0] + TOKENS[1]], segment_ids=[[1] * 5 + [2] * 5])
    np.testing.assert_allclose(packed[0, :5], model.logits(TOKENS)[0], atol=1e-4)
    np.testing.assert_allclose(packed[0, 5:], model.logits(TOKENS)[1], atol=1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.logits([1, 2]), r"expected integers of shape \[batch, seq\]"),
        (lambda m: m.logits([[1.5]]), "expected integers"),
        (lambda m: m.logits([[128]]), "expected ids from 0 to 127"),
        (lambda m: m.logits([[-1]]), "expected ids from 0 to 127"),
        (lambda m: m.generate("text"), "expected a list"),
        (lambda m: m.generate(["text"]), "has no tokenizer"),
        (lambda m: m.generate([[]]), "prompt 0 is empty"),
        (lambda m: m.generate([[1] * 129]), "longest sequence is 128"),
        (lambda m: m.generate([[999]]), "outside the vocabulary"),
        (lambda m: m.generate([[1]], temperature=-1.0), "temperature"),
        (lambda m: m.generate([[1]], top_p=0.0), "top_p"),
        (lambda m: m.generate([[1]], top_k=-3), "top_k"),
        (lambda m: m.generate([[1]], max_new_tokens=-1), "max_new_tokens"),
    ],
)
def test_bad_arguments_are_named(source: Path, call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ZooError, match=message):
        call(zoo.load(source))


def test_an_unknown_dtype_is_refused(source: Path) -> None:
    with pytest.raises(ZooError, match="unknown dtype 'int8'"):
        zoo.load(source, dtype="int8")


SHARDED = """
import json, sys
import jax, numpy as np
import zoo
from zoo.models.sharding import make_mesh
model = zoo.load(sys.argv[1], dtype="float32", mesh=make_mesh(fsdp=4, tensor=2))
q = model.params["layers.0.attn.q.kernel"]
tokens = json.loads(sys.argv[2])
print(json.dumps({
    "devices": jax.device_count(),
    "part": q.addressable_shards[0].data.shape,
    "key": model.params["layers.0.attn.k.kernel"].addressable_shards[0].data.shape,
    "logits": np.asarray(model.logits(tokens)).tolist(),
    "tokens": [r.tokens for r in model.generate(tokens, max_new_tokens=6)],
}))
"""


@pytest.mark.parametrize("kind", ["directory", "store"])
def test_on_eight_devices_each_holds_its_part_and_the_answers_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    source = write_checkpoint(tmp_path / "source", dtype="float32", num_key_value_heads=1)
    if kind == "store":
        hf_to_orbax(source, tmp_path / "store")
        source = tmp_path / "store"
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
    ran = subprocess.run(
        [sys.executable, "-c", SHARDED, str(source), json.dumps(TOKENS)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    # q [embed 32, heads 4, head_dim 8] is divided both ways; one key head cannot be.
    assert found["devices"] == 8 and found["part"] == [8, 2, 8] and found["key"] == [8, 1, 8]
    model = zoo.load(source, dtype="float32")
    np.testing.assert_allclose(found["logits"], model.logits(TOKENS), atol=1e-4)
    assert found["tokens"] == [result.tokens for result in model.generate(TOKENS, max_new_tokens=6)]


def test_rules_that_collide_and_meshes_that_are_unknown_are_refused() -> None:
    parameters = {"w": AbstractParameter((4, 4), ("embed", "ffn"))}
    with pytest.raises(ZooError, match="w: embed and ffn are both on fsdp"):
        parameter_shardings(parameters, make_mesh(fsdp=1), {"embed": "fsdp", "ffn": "fsdp"})
    with pytest.raises(ZooError, match="pipeline: expected one of data, fsdp, tensor"):
        parameter_shardings(parameters, make_mesh(pipeline=1))
