"""Hugging Face -> store -> Hugging Face gives back every file, and every other form keeps every number."""

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from zoo.converters.digest import file_sha256
from zoo.converters.hf_dir import open_hf_directory
from zoo.converters.hf_to_orbax import hf_to_orbax, plan_hf_to_orbax
from zoo.converters.orbax_to_hf import orbax_to_hf
from zoo.converters.verify import verify
from zoo.models.checkpoint import open_store

from .checkpoints import LLAMA, tensors_of, write_checkpoint


def digests(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): file_sha256(p) for p in sorted(folder.rglob("*")) if p.is_file()}


def there_and_back(source: Path, tmp_path: Path, **options: Any) -> Path:
    hf_to_orbax(source, tmp_path / "store")
    orbax_to_hf(tmp_path / "store", tmp_path / "back", **options)
    return tmp_path / "back"


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"tie_word_embeddings": True},
        {"attention_bias": True, "mlp_bias": True},
        {"head_dim": 12, "num_attention_heads": 4, "num_key_value_heads": 1},
    ],
    ids=["untied", "tied", "biases", "free head_dim"],
)
def test_every_file_comes_back_with_its_sha256(tmp_path: Path, shards: int, dtype: str, config: dict[str, Any]) -> None:
    source = write_checkpoint(tmp_path / "source", shards=shards, dtype=dtype, **config)
    back = there_and_back(source, tmp_path)
    assert digests(back) == digests(source)
    assert verify(tmp_path / "store", source).ok
    assert sorted(p.name for p in tmp_path.iterdir()) == ["back", "source", "store"]


def test_bit_patterns_survive_whatever_they_mean(tmp_path: Path) -> None:
    """NaN payloads, infinities, negative zero and subnormals are bits like others."""
    tensors = tensors_of(dict(LLAMA.tiny))
    patterns = np.array([0x7FC1, 0xFF80, 0x8000, 0x0001, 0x3F80, 0xFFC5, 0x7F81], np.uint16)
    for tensor in tensors.values():
        flat = tensor.reshape(-1).view(np.uint16)
        flat[: len(patterns)] = patterns
    source = write_checkpoint(tmp_path / "source", tensors=tensors)
    assert digests(there_and_back(source, tmp_path)) == digests(source)


def test_a_header_of_any_spelling_comes_back(tmp_path: Path) -> None:
    """The order of the bytes, the order of the header, its spacing and its metadata are the source's own business."""
    source = write_checkpoint(tmp_path / "source")
    original = load_file(source / "model.safetensors")
    names = sorted(original, reverse=True)
    entries: dict[str, Any] = {}
    position = 0
    for name in names:
        entries[name] = {
            "data_offsets": [position, position + original[name].nbytes],
            "shape": list(original[name].shape),
            "dtype": "BF16",
        }
        position += original[name].nbytes
    text = json.dumps({**dict(sorted(entries.items())), "__metadata__": {"who": "ünïcode"}}, indent=1).encode() + b"  "
    content = len(text).to_bytes(8, "little") + text + b"".join(original[name].tobytes() for name in names)
    (source / "model.safetensors").write_bytes(content)
    assert digests(there_and_back(source, tmp_path)) == digests(source)


def test_tensors_of_several_types_keep_theirs(tmp_path: Path) -> None:
    tensors = tensors_of(dict(LLAMA.tiny))
    for name in list(tensors)[::3]:
        tensors[name] = tensors[name].astype(np.float32)
    source = write_checkpoint(tmp_path / "source", tensors=tensors)
    assert digests(there_and_back(source, tmp_path)) == digests(source)


def test_passengers_travel_untouched(tmp_path: Path) -> None:
    tensors = tensors_of(dict(LLAMA.tiny))
    tensors["model.layers.1.self_attn.rotary_emb.inv_freq"] = np.linspace(0, 1, 4, dtype=np.float32)
    tensors["model.rotary_emb.inv_freq"] = np.arange(4, dtype=np.int64)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.array(-1e9, np.float32)  # a scalar, as masks have
    source = write_checkpoint(tmp_path / "source", tensors=tensors, shards=2)
    assert digests(there_and_back(source, tmp_path)) == digests(source)
    assert "layers.1.attn.q.kernel" in open_store(tmp_path / "store").manifest.parameters


def test_a_redundant_head_is_stored_once_and_written_back(tmp_path: Path) -> None:
    tensors = tensors_of({**LLAMA.tiny, "tie_word_embeddings": True})
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
    source = write_checkpoint(tmp_path / "source", tensors=tensors, tie_word_embeddings=True)
    report = hf_to_orbax(source, tmp_path / "store")
    assert "lm_head.weight equals model.embed_tokens.weight and is stored once" in report.notes
    store = open_store(tmp_path / "store")
    assert store.config.tied_head and "head.kernel" not in store.manifest.parameters
    orbax_to_hf(tmp_path / "store", tmp_path / "back")
    assert digests(tmp_path / "back") == digests(source)


def test_a_tied_head_that_differs_is_a_parameter_of_its_own(tmp_path: Path) -> None:
    tensors = tensors_of({**LLAMA.tiny, "tie_word_embeddings": True})
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] * 2
    source = write_checkpoint(tmp_path / "source", tensors=tensors, tie_word_embeddings=True)
    report = hf_to_orbax(source, tmp_path / "store")
    assert any("kept as two parameters" in note for note in report.notes)
    assert not open_store(tmp_path / "store").config.tied_head
    orbax_to_hf(tmp_path / "store", tmp_path / "back")
    assert digests(tmp_path / "back") == digests(source)


@pytest.mark.parametrize(
    ("cast_on", "dtype"), [("in", "float32"), ("out", "float32"), ("out", "float16"), ("in", "float16")]
)
def test_a_cast_is_applied_to_every_float_and_said_in_the_config(tmp_path: Path, cast_on: str, dtype: str) -> None:
    source = write_checkpoint(tmp_path / "source", shards=2, torch_dtype="bfloat16")
    hf_to_orbax(source, tmp_path / "store", dtype=dtype if cast_on == "in" else "keep")
    orbax_to_hf(tmp_path / "store", tmp_path / "back", dtype=dtype if cast_on == "out" else "keep")
    back = open_hf_directory(tmp_path / "back")
    assert back.config["torch_dtype"] == dtype
    before = open_hf_directory(source)
    assert set(back.headers) == set(before.headers)
    for name in back.headers:
        np.testing.assert_array_equal(back.read(name), before.read(name).astype(dtype))
        assert back.read(name).dtype == np.dtype(dtype)
    assert verify(tmp_path / "store", source).ok


def test_a_cast_beyond_the_range_is_refused(tmp_path: Path) -> None:
    tensors = tensors_of(dict(LLAMA.tiny), "float32")
    tensors["model.norm.weight"][3] = 1e30
    source = write_checkpoint(tmp_path / "source", tensors=tensors)
    with pytest.raises(Exception, match=r"model\.norm\.weight holds numbers beyond the range of float16"):
        hf_to_orbax(source, tmp_path / "store", dtype="float16")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["source"]


@pytest.mark.parametrize("max_shard_size", [1, 5_000, 20_000, 10**9])
def test_another_division_into_files_keeps_every_tensor(tmp_path: Path, max_shard_size: int) -> None:
    source = write_checkpoint(tmp_path / "source", shards=2)
    back = open_hf_directory(there_and_back(source, tmp_path, max_shard_size=max_shard_size))
    before = open_hf_directory(source)
    assert set(back.headers) == set(before.headers)
    for name in back.headers:
        np.testing.assert_array_equal(back.read(name).view(np.uint16), before.read(name).view(np.uint16))
    for shard in back.shards:
        assert len(shard.headers) == 1 or sum(h.nbytes for h in shard.headers.values()) <= max_shard_size
        assert shard.metadata["format"] == "pt"


def test_orbax_alone_loads_the_parameters(tmp_path: Path) -> None:
    from orbax.checkpoint import v1 as ocp

    source = write_checkpoint(tmp_path / "source")
    hf_to_orbax(source, tmp_path / "store")
    params = ocp.load(str(tmp_path / "store" / "params"))
    weight = load_file(source / "model.safetensors")["model.layers.1.self_attn.q_proj.weight"]
    kernel = np.asarray(params["layers.1.attn.q.kernel"])
    assert kernel.dtype == ml_dtypes.bfloat16 and kernel.shape == (32, 4, 8)
    np.testing.assert_array_equal(kernel.view(np.uint16), weight.T.reshape(32, 4, 8).view(np.uint16))


def test_a_plan_reads_no_weights(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source", shards=2)
    shard = next(source.glob("*.safetensors"))
    size = shard.stat().st_size
    # Sparse zeros in the place of the weights: the same size, other numbers.
    header = 8 + int.from_bytes(shard.read_bytes()[:8], "little")
    with open(shard, "r+b") as file:
        file.truncate(header)
        file.truncate(size)
    plan = plan_hf_to_orbax(source, tmp_path / "store")
    assert plan.as_json()["tensors"] == len(tensors_of(dict(LLAMA.tiny)))
    assert plan.as_json()["bytes"] == sum(t.nbytes for t in tensors_of(dict(LLAMA.tiny)).values())
    assert not (tmp_path / "store").exists()


def test_single_file_exports_load_with_safetensors(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source", shards=2)
    back = there_and_back(source, tmp_path, max_shard_size=10**9)
    tensors = load_file(back / "model.safetensors")
    save_file(tensors, tmp_path / "again.safetensors")
    assert not (back / "model.safetensors.index.json").exists()


def test_relative_paths_are_as_good_as_absolute_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_checkpoint(tmp_path / "source")
    monkeypatch.chdir(tmp_path)
    hf_to_orbax(Path("source"), Path("store"))
    orbax_to_hf(Path("store"), Path("back"))
    assert verify(Path("store"), Path("source")).ok
    assert digests(Path("back")) == digests(source)
