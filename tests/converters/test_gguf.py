"""Reading GGUF files: equal to the `gguf` library's own reader, in bounded memory, and strict about damage."""

from __future__ import annotations

import contextlib
import re
import struct
import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFEndian, GGUFReader, GGUFWriter
from gguf.quants import dequantize, quantize

from zoo.converters import gguf as gguf_module
from zoo.converters.gguf import PLAIN, GgufFile
from zoo.converters.gguf_config import hf_config
from zoo.converters.gguf_header import read_header
from zoo.models.errors import ZooError

from .gguf_files import LLAMA, write_gguf

NOT_DEQUANTISED = {"Q8_1", "Q8_K", "Q1_0"}
BLOCKS = [kind for kind in GGMLQuantizationType if kind.name not in {*PLAIN, *NOT_DEQUANTISED}]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    tensors = {"ab": np.arange(12, dtype=np.float32).reshape(3, 4), "ac": np.arange(5, dtype=np.float16)}
    return write_gguf(tmp_path / "small.gguf", LLAMA, tensors)


def patched(path: Path, old: bytes, new: bytes) -> Path:
    """A copy in which one occurrence of `old` became `new`, of the same length."""
    raw = path.read_bytes()
    assert raw.count(old) == 1
    assert len(old) == len(new)
    copy = path.with_name("patched.gguf")
    copy.write_bytes(raw.replace(old, new))
    return copy


def test_metadata_of_every_type_equals_the_libraries_reader(tmp_path: Path) -> None:
    path = tmp_path / "values.gguf"
    writer = GGUFWriter(path, "llama")
    for kind, value in {"uint8": 255, "int8": -3, "uint16": 65535, "int16": -4, "uint32": 7, "int32": -5}.items():
        getattr(writer, f"add_{kind}")(f"a.{kind}", value)
    writer.add_uint64("a.uint64", 2**63)
    writer.add_int64("a.int64", -(2**62))
    writer.add_float32("a.float32", 1e-5)
    writer.add_float64("a.float64", 1e-5)
    writer.add_bool("a.bool", True)
    writer.add_string("a.string", "tab\t, \u4e2d and \U0001f600")
    writer.add_array("a.strings", ["", "one", "\u0120two"])
    writer.add_array("a.integers", list(range(1000)))
    writer.add_array("a.floats", [0.5, 1e-5, -3.0])
    writer.add_array("a.bools", [True, False])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    reference = {key: field.contents() for key, field in GGUFReader(path).fields.items() if not key.startswith("GGUF.")}
    found = read_header(path).metadata
    assert found == reference
    assert [type(value) for value in found.values()] == [type(value) for value in reference.values()]


@pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: kind.name)
def test_every_quantisation_equals_the_libraries_dequantisation(
    kind: GGMLQuantizationType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    block_elements, block_bytes = GGML_QUANT_SIZES[kind]
    shape = (7, 3 * block_elements)
    random = np.random.default_rng(0)
    blocks = random.integers(0, 256, (7, 3 * block_bytes), dtype=np.uint8)
    path = write_gguf(tmp_path / "one.gguf", LLAMA, {"weight": (blocks, kind)})
    # Two blocks at once: stretches end inside of rows.
    monkeypatch.setattr(gguf_module, "STRETCH_ELEMENTS", 2 * block_elements)
    with np.errstate(all="ignore"):
        expected = dequantize(blocks, kind)
        file = GgufFile.open(path)
        found = file.read("weight")
    tensor = file.tensors["weight"]
    assert (tensor.quantisation, tensor.shape, tensor.nbytes, tensor.dtype) == (
        kind.name,
        shape,
        blocks.size,
        np.float32,
    )
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["f4", "f2", "f8", "i1", "i2", "i4", "i8"])
def test_plain_numbers_come_as_they_are_stored(dtype: str, tmp_path: Path) -> None:
    values = np.arange(24).reshape(2, 3, 4).astype(dtype)
    file = GgufFile.open(write_gguf(tmp_path / "one.gguf", LLAMA, {"weight": values}))
    found = file.read("weight")
    assert found.dtype == values.dtype == file.tensors["weight"].dtype
    assert file.tensors["weight"].shape == (2, 3, 4)
    np.testing.assert_array_equal(found, values)


def test_bfloat16_stays_bfloat16(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((4, 8)).astype(ml_dtypes.bfloat16)
    stored = (values.view(np.uint8), GGMLQuantizationType.BF16)
    found = GgufFile.open(write_gguf(tmp_path / "one.gguf", LLAMA, {"weight": stored})).read("weight")
    assert found.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(found.view(np.uint16), values.view(np.uint16))


def test_a_member_of_a_quantised_stack_is_read_alone(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((5, 4, 64)).astype(np.float32)
    blocks = quantize(values, GGMLQuantizationType.Q8_0)
    path = write_gguf(tmp_path / "one.gguf", LLAMA, {"weight": (blocks, GGMLQuantizationType.Q8_0)})
    tensor = GgufFile.open(path).tensors["weight"]
    members = tensor.members()
    assert [member.shape for member in members] == [(4, 64)] * 5
    np.testing.assert_array_equal(np.stack([member.read() for member in members]), tensor.read())


def test_reading_needs_little_more_than_the_result(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((4096, 2048)).astype(np.float32)
    blocks = quantize(values, GGMLQuantizationType.Q8_0)
    path = write_gguf(tmp_path / "large.gguf", LLAMA, {"weight": (blocks, GGMLQuantizationType.Q8_0)})
    file = GgufFile.open(path)
    tracemalloc.start()
    try:
        result = file.read("weight")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < result.nbytes + 32_000_000 < 2 * result.nbytes


def test_every_truncation_is_noticed(small: Path, tmp_path: Path) -> None:
    raw = small.read_bytes()
    cut = tmp_path / "cut.gguf"
    # The writer pads the last tensor to the alignment, and no reader misses the padding.
    for length in range(len(raw) - 32 + 10):
        cut.write_bytes(raw[:length])
        with pytest.raises(ZooError, match="truncated"):
            GgufFile.open(cut)


def test_a_file_that_shrinks_after_opening_is_noticed(small: Path) -> None:
    file = GgufFile.open(small)
    small.write_bytes(small.read_bytes()[:-40])
    with pytest.raises(ZooError, match="became shorter while tensor ac"):
        file.read("ac")


def test_lengths_that_are_garbage_allocate_nothing(small: Path) -> None:
    key = b"general.architecture"
    path = patched(small, struct.pack("<Q", len(key)) + key, struct.pack("<Q", 2**62) + key)
    with pytest.raises(ZooError, match="truncated: the key of metadata entry 0 needs"):
        GgufFile.open(path)


def test_damage_anywhere_in_the_header_is_an_error_for_people(small: Path, tmp_path: Path) -> None:
    raw = small.read_bytes()
    random = np.random.default_rng(0)
    damaged = tmp_path / "damaged.gguf"
    for _ in range(2000):
        copy = bytearray(raw)
        for position in random.integers(0, len(raw) - 64, 3):
            copy[position] = random.integers(0, 256)
        damaged.write_bytes(copy)
        with contextlib.suppress(ZooError):
            file = GgufFile.open(damaged)
            hf_config(file.metadata, file.tensors)


def test_what_is_no_gguf_file_is_refused(tmp_path: Path, small: Path) -> None:
    with pytest.raises(ZooError, match="no such file"):
        GgufFile.open(tmp_path / "absent.gguf")
    with pytest.raises(ZooError, match="found a directory"):
        GgufFile.open(tmp_path)
    with pytest.raises(ZooError, match="not a GGUF file"):
        GgufFile.open(patched(small, b"GGUF", b"GGML"))
    with pytest.raises(ZooError, match="GGUF version 9; known: 2, 3"):
        GgufFile.open(patched(small, b"GGUF\3\0\0\0", b"GGUF\x09\0\0\0"))


def test_big_endian_files_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "big.gguf"
    writer = GGUFWriter(path, "llama", endianess=GGUFEndian.BIG)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ZooError, match="big-endian"):
        GgufFile.open(path)


def test_duplicate_tensors_are_refused(small: Path) -> None:
    with pytest.raises(ZooError, match="named twice in the header:\n  - tensor ab"):
        GgufFile.open(patched(small, b"ac", b"ab"))


def test_duplicate_metadata_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf", {**LLAMA, "key.a": 1, "key.b": 2})
    with pytest.raises(ZooError, match=re.escape("metadata key.a")):
        GgufFile.open(patched(path, b"key.b", b"key.a"))


def test_a_part_of_a_split_model_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf", {**LLAMA, "split.no": 1, "split.count": 3})
    with pytest.raises(ZooError, match="part 2 of a model split into 3 files"):
        GgufFile.open(path)


@pytest.mark.parametrize("alignment", [0, 24])
def test_alignment_must_be_a_power_of_two(alignment: int, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf", {**LLAMA, "general.alignment": alignment})
    with pytest.raises(ZooError, match="power of two"):
        GgufFile.open(path)


def test_a_larger_alignment_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_custom_alignment(256)
    for name in "ab":
        writer.add_tensor(name, np.full(3, ord(name), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GgufFile.open(path)
    assert [file.read(name).tolist() for name in "ab"] == [[97.0] * 3, [98.0] * 3]


def tensor_entry(name: bytes, axes: list[int], kind: int, offset: int) -> bytes:
    return struct.pack(f"<Q{len(name)}sI{len(axes)}QIQ", len(name), name, len(axes), *axes, kind, offset)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (tensor_entry(b"ac", [5], 999, 64), "ac: unknown quantisation, type number 999"),
        (
            tensor_entry(b"ac", [5], GGMLQuantizationType.Q8_1, 64),
            "ac: quantisation Q8_1 cannot be dequantised; supported: F32",
        ),
        (tensor_entry(b"ac", [5], GGMLQuantizationType.Q8_0, 64), "ac: Q8_0 comes in blocks of 32"),
        (tensor_entry(b"ac", [0], 1, 64), r"ac: shape \[0\] has no elements"),
        (tensor_entry(b"ac", [5], 1, 65), "ac: offset 65 is no multiple of the alignment 32"),
        (tensor_entry(b"ac", [5], 1, 1 << 40), "1 of 2 lie outside it, the first is ac"),
        (tensor_entry(b"ac", [1 << 40], 1, 64), "truncated: the tensors end at byte"),
        (tensor_entry(b"ac", [5], 1, 32), "ac begins at byte .*, ab ends at"),
    ],
)
def test_a_tensor_that_cannot_be_read_is_named(entry: bytes, message: str, small: Path) -> None:
    path = patched(small, tensor_entry(b"ac", [5], 1, 64), entry)
    with pytest.raises(ZooError, match=message):
        GgufFile.open(path)


def test_too_many_axes_are_garbage(small: Path) -> None:
    good = tensor_entry(b"ac", [5], 1, 64)
    bad = good.replace(struct.pack("<I", 1) + struct.pack("<Q", 5), struct.pack("<I", 77) + struct.pack("<Q", 5))
    with pytest.raises(ZooError, match="tensor ac has 77 axes"):
        GgufFile.open(patched(small, good, bad))
