"""The flat view of the parameters, and what it costs."""

from __future__ import annotations

import time

import jax
import numpy as np
import pytest
from flax import nnx
from jax import numpy as jnp

from zoo.models.config import Attention, DefaultRope, GatedMlp, Layer, ModelConfig, Norm
from zoo.models.decoder import Decoder
from zoo.models.errors import ZooError
from zoo.models.parameter import AXES
from zoo.models.parameters import abstract_parameters, merge, split


def model_config(
    *, layers: int = 2, embed: int = 32, heads: int = 4, head_dim: int = 8, bias: bool = False
) -> ModelConfig:
    norm = Norm(epsilon=1e-5)
    attention = Attention(
        heads=heads,
        kv_heads=heads // 2,
        head_dim=head_dim,
        rope=DefaultRope(theta=10000.0, dims=head_dim),
        scale=head_dim**-0.5,
        qkv_bias=bias,
        output_bias=bias,
    )
    mlp = GatedMlp(ffn=3 * embed, activation="silu", bias=bias)
    layer = Layer(attn_norm=norm, attn=attention, mlp_norm=norm, mlp=mlp)
    return ModelConfig(
        vocab=100, embed=embed, layers=(layer,) * layers, final_norm=norm, tied_head=False, max_positions=64
    )


def test_paths_shapes_and_axes() -> None:
    found = abstract_parameters(model_config(layers=1, bias=True))
    assert {path: (item.shape, item.axes) for path, item in found.items()} == {
        "embed.embedding": ((100, 32), ("vocab", "embed")),
        "layers.0.attn_norm.scale": ((32,), ("embed",)),
        "layers.0.attn.q.kernel": ((32, 4, 8), ("embed", "heads", "head_dim")),
        "layers.0.attn.q.bias": ((4, 8), ("heads", "head_dim")),
        "layers.0.attn.k.kernel": ((32, 2, 8), ("embed", "kv_heads", "head_dim")),
        "layers.0.attn.k.bias": ((2, 8), ("kv_heads", "head_dim")),
        "layers.0.attn.v.kernel": ((32, 2, 8), ("embed", "kv_heads", "head_dim")),
        "layers.0.attn.v.bias": ((2, 8), ("kv_heads", "head_dim")),
        "layers.0.attn.o.kernel": ((4, 8, 32), ("heads", "head_dim", "embed")),
        "layers.0.attn.o.bias": ((32,), ("embed",)),
        "layers.0.mlp_norm.scale": ((32,), ("embed",)),
        "layers.0.mlp.gate.kernel": ((32, 96), ("embed", "ffn")),
        "layers.0.mlp.gate.bias": ((96,), ("ffn",)),
        "layers.0.mlp.up.kernel": ((32, 96), ("embed", "ffn")),
        "layers.0.mlp.up.bias": ((96,), ("ffn",)),
        "layers.0.mlp.down.kernel": ((96, 32), ("ffn", "embed")),
        "layers.0.mlp.down.bias": ((32,), ("embed",)),
        "final_norm.scale": ((32,), ("embed",)),
        "head.kernel": ((32, 100), ("embed", "vocab")),
    }
    assert {axis for item in found.values() for axis in item.axes} <= set(AXES)


def test_a_concrete_model_has_the_abstract_parameters() -> None:
    config = model_config(bias=True)
    concrete = jax.eval_shape(lambda: split(Decoder(config, rngs=nnx.Rngs(0))))
    expected = abstract_parameters(config)
    assert {path: item.shape for path, item in expected.items()} == {
        path: array.shape for path, array in concrete.items()
    }


def test_merge_undoes_split() -> None:
    config = model_config()
    parameters = split(Decoder(config, rngs=nnx.Rngs(0)))
    again = split(merge(config, parameters))
    assert parameters.keys() == again.keys()
    for path, array in parameters.items():
        np.testing.assert_array_equal(array, again[path])


def test_merge_names_all_that_does_not_fit() -> None:
    config = model_config()
    parameters = split(Decoder(config, rngs=nnx.Rngs(0)))
    del parameters["final_norm.scale"]
    parameters["layers.7.attn.q.kernel"] = jnp.zeros(3)
    parameters["head.kernel"] = jnp.zeros((100, 32))
    with pytest.raises(ZooError) as error:
        merge(config, parameters)
    for words in (
        "final_norm.scale: missing",
        "layers.7.attn.q.kernel: no such",
        "expected shape (32, 100), found (100, 32)",
    ):
        assert words in str(error.value)


def test_the_largest_llama_is_described_in_a_moment() -> None:
    """405B: 126 layers of 16384. The allowance is generous, since machines are busy; drawing weights takes minutes."""
    config = model_config(layers=126, embed=16384, heads=128, head_dim=128)
    start = time.perf_counter()
    assert len(abstract_parameters(config)) == 126 * 9 + 3
    assert time.perf_counter() - start < 5
