"""Every family that is there, in every variant that its file names, against transformers.

A new family is tested by being there.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import torch
from jax import numpy as jnp
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM, PreTrainedModel

import zoo
from zoo.converters.digest import file_sha256
from zoo.converters.family import Family, families
from zoo.converters.hf_to_orbax import hf_to_orbax
from zoo.converters.layout import Row, bind
from zoo.converters.orbax_to_hf import orbax_to_hf
from zoo.models.cache import empty_cache
from zoo.models.parameters import abstract_parameters, merge

from .reference import TOLERANCE, assert_close, load, random_tokens, reference_logits, write_checkpoint

# Longer than any window, than any original length, and than max_position_embeddings of most.
LENGTH = 80
CASES = [
    pytest.param(family, changes, id=f"{family.model_type}-{name}")
    for family in families()
    for name, changes in {"tiny": {}, **family.variants}.items()
]
BASES = [pytest.param(family, id=family.model_type) for family in families()]
OTHER_TABLES = [
    pytest.param(family, changes, table, id=f"{family.model_type}-{name}-{number}")
    for family in families()
    for name, changes in {"tiny": {}, **family.variants}.items()
    for number, table in enumerate(family.tables[1:], 1)
]


@pytest.mark.proves("import", "export")
@pytest.mark.parametrize(("family", "changes"), CASES)
def test_logits_at_every_position_and_files_there_and_back(
    tmp_path: Path, family: Family, changes: dict[str, Any]
) -> None:
    """Logits of a short and a long text; all files back with their sha256, and transformers loads them wholly."""
    reference = write_checkpoint(tmp_path / "hf", family.tiny, **changes)
    tokens = random_tokens(2, _length(reference))
    model = load(tmp_path / "hf")
    assert_close(model.logits(tokens), reference_logits(reference, tokens))
    assert_close(model.logits(tokens[:, :5]), reference_logits(reference, tokens[:, :5]))
    hf_to_orbax(tmp_path / "hf", tmp_path / "store")
    orbax_to_hf(tmp_path / "store", tmp_path / "back")
    assert _digests(tmp_path / "back") == _digests(tmp_path / "hf")
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        tmp_path / "back", attn_implementation="eager", dtype=torch.float32, output_loading_info=True
    )
    exported, loading = loaded
    assert not any(loading[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), loading
    assert_close(reference_logits(exported.eval(), tokens), reference_logits(reference, tokens))


@pytest.mark.parametrize(("family", "changes", "table"), OTHER_TABLES)
def test_other_names_and_divisions_of_the_tensors_are_read_and_written_back(
    tmp_path: Path, family: Family, changes: dict[str, Any], table: tuple[Row, ...]
) -> None:
    """Those that transformers would not write, by the family's own account of them."""
    reference = write_checkpoint(tmp_path / "hf", family.tiny, **changes)
    model = load(tmp_path / "hf")
    bindings, problems = bind(table, abstract_parameters(model.config))
    assert problems == []
    parameters = {name: np.asarray(array) for name, array in model.params.items()}
    renamed = {
        name: tensor
        for binding in bindings
        for name, tensor in zip(
            binding.sources, binding.export([parameters[native] for native in binding.natives]), strict=True
        )
    }
    save_file({name: np.ascontiguousarray(t) for name, t in renamed.items()}, tmp_path / "hf" / "model.safetensors")
    tokens = random_tokens(2, 20)
    assert_close(load(tmp_path / "hf").logits(tokens), reference_logits(reference, tokens))
    hf_to_orbax(tmp_path / "hf", tmp_path / "store")
    orbax_to_hf(tmp_path / "store", tmp_path / "back")
    assert _digests(tmp_path / "back") == _digests(tmp_path / "hf")


@pytest.mark.parametrize("family", BASES)
def test_tensors_as_transformers_holds_them_in_memory_are_read_and_written_back(tmp_path: Path, family: Family) -> None:
    """It writes them so when asked not to write them as they were published: experts together, for one."""
    reference = write_checkpoint(tmp_path / "hf", family.tiny)
    saved = load_file(tmp_path / "hf" / "model.safetensors")
    reference.save_pretrained(tmp_path / "memory", save_original_format=False)
    tensors = load_file(tmp_path / "memory" / "model.safetensors")
    if tensors.keys() == saved.keys():
        return
    shutil.copy(tmp_path / "memory" / "model.safetensors", tmp_path / "hf")
    tokens = random_tokens(2, 20)
    assert_close(load(tmp_path / "hf").logits(tokens), reference_logits(reference, tokens))
    hf_to_orbax(tmp_path / "hf", tmp_path / "store")
    orbax_to_hf(tmp_path / "store", tmp_path / "back")
    assert _digests(tmp_path / "back") == _digests(tmp_path / "hf")


@pytest.mark.parametrize("family", BASES)
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_row_of_a_padded_batch_equals_the_row_alone(tmp_path: Path, family: Family, side: str) -> None:
    reference = write_checkpoint(tmp_path, family.tiny)
    longest = _length(reference)
    lengths = [1, 30, longest]
    tokens, segments = np.zeros((3, longest), np.int32), np.zeros((3, longest), np.int32)
    real = [slice(longest - length, longest) if side == "left" else slice(0, length) for length in lengths]
    rows = [random_tokens(length, seed=length) for length in lengths]
    for index, (where, row) in enumerate(zip(real, rows, strict=True)):
        tokens[index, where], segments[index, where] = row, 1
    logits = np.asarray(load(tmp_path).logits(tokens, segment_ids=segments))
    for index, (where, row) in enumerate(zip(real, rows, strict=True)):
        assert_close(logits[index, where], reference_logits(reference, row[None])[0])


@pytest.mark.parametrize("family", BASES)
def test_packed_documents_equal_the_documents_alone(tmp_path: Path, family: Family) -> None:
    reference = write_checkpoint(tmp_path, family.tiny)
    first, second = random_tokens(21, seed=1), random_tokens(_length(reference) - 25, seed=2)
    tokens = np.concatenate([first, second])[None]
    segments = np.repeat([4, 7], [len(first), len(second)])[None]
    logits = np.asarray(load(tmp_path).logits(tokens, segment_ids=segments))[0]
    assert_close(logits[: len(first)], reference_logits(reference, first[None])[0])
    assert_close(logits[len(first) :], reference_logits(reference, second[None])[0])


@pytest.mark.proves("decode")
@pytest.mark.parametrize(("family", "changes"), CASES)
def test_reading_in_parts_and_token_by_token_equals_reading_at_once(
    tmp_path: Path, family: Family, changes: dict[str, Any]
) -> None:
    """Chunks, then single tokens, in a cache whose windows are rings that wrap around."""
    reference = write_checkpoint(tmp_path, family.tiny, **changes)
    model = load(tmp_path)
    length = _length(reference)
    tokens = random_tokens(2, length)
    # A chunk of which the last tokens are padding, as a prefill's last chunk; then single tokens.
    sizes = [16, 16, 11, *(1,) * 4, 16]
    sizes.append(length - sum(sizes))
    longest = max(sizes)
    cache = empty_cache(model.config, 2, 128, jnp.float32, longest_pass=longest)
    # A former owner's leftovers must not show through.
    cache = jax.tree.map(lambda array: jnp.full_like(array, 1e4), cache)
    lengths = jnp.full(2, length, jnp.int32)
    step = jax.jit(lambda params, *inputs: merge(model.config, params)(*inputs, lengths=lengths))
    parts, start = [], 0
    for size in sizes:
        width = 1 if size == 1 else longest
        chunk, segments = np.zeros((2, width), np.int32), np.zeros((2, width), np.int32)
        chunk[:, :size], segments[:, :size] = tokens[:, start : start + size], 1
        positions = jnp.broadcast_to(jnp.arange(start, start + width, dtype=jnp.int32), (2, width))
        logits, cache = step(model.params, jnp.asarray(chunk), positions, jnp.asarray(segments), cache)
        parts.append(np.asarray(logits)[:, :size])
        start += size
    assert_close(np.concatenate(parts, axis=1), reference_logits(reference, tokens))


@pytest.mark.proves("decode")
@pytest.mark.parametrize("family", BASES)
def test_greedy_continuations_are_those_of_full_passes(tmp_path: Path, family: Family) -> None:
    """Through the engine: prompts of several lengths side by side, one of which grows past the windows."""
    reference = write_checkpoint(tmp_path, family.tiny)
    prompts = [random_tokens(length, seed=length).tolist() for length in (3, 14)]
    results = load(tmp_path).generate(prompts, max_new_tokens=12, ignore_eos=True)
    for prompt, result in zip(prompts, results, strict=True):
        rows = reference_logits(reference, [[*prompt, *result.tokens]])[0, len(prompt) - 1 : -1]
        for token, row in zip(result.tokens, rows, strict=True):
            assert row[token] >= row.max() - 2 * TOLERANCE * np.abs(row).max()


@pytest.mark.parametrize("family", BASES)
def test_bfloat16_stays_within_the_error_that_the_reference_makes(tmp_path: Path, family: Family) -> None:
    reference = write_checkpoint(tmp_path, family.tiny)
    # Many tokens: where experts are chosen, a choice that rounding turns weighs more than all else.
    tokens = random_tokens(16, 40)
    exact = reference_logits(reference, tokens)
    ours = np.asarray(zoo.load(str(tmp_path), dtype="bfloat16").logits(tokens))
    theirs = reference_logits(reference.bfloat16(), tokens)

    def error(found: np.ndarray) -> float:
        return float(np.sqrt(np.mean((found - exact) ** 2)))

    assert error(ours) <= 1.5 * error(theirs)


def _length(reference: PreTrainedModel) -> int:
    """As long as tests get, but for models with a table of positions."""
    return min(LENGTH, getattr(reference.config, "n_positions", LENGTH))


def _digests(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): file_sha256(p) for p in sorted(folder.rglob("*")) if p.is_file()}
