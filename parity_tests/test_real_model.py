"""A trained model: the catalog's default, converted, against transformers on the directory that was made of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import zoo
from zoo.catalog import resolve
from zoo.converters.gguf_to_hf import gguf_to_hf
from zoo.converters.hf_to_orbax import hf_to_orbax
from zoo.converters.orbax_to_hf import orbax_to_hf

PROMPT_TOKENS = 512
NEW_TOKENS = 64
# Both compute in float32; their sums run in other orders, and the logits reach 30.
TOLERANCE = 2e-3
TEXT = """The history of cartography is older than writing. Babylonian clay tablets of the ninth century BC show the
world as a disc, and Greek geometers measured its circumference from the shadows of two wells. Ptolemy gave places
coordinates; Arab and Persian scholars corrected them; portolan charts let sailors follow coasts by compass. """


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("real")
    gguf_to_hf(resolve("smollm2-135m-instruct"), root / "hf")
    hf_to_orbax(root / "hf", root / "store")
    orbax_to_hf(root / "store", root / "exported", dtype="float32")
    return {name: root / name for name in ("hf", "store", "exported")}


@pytest.fixture(scope="module")
def reference(folders: dict[str, Path]) -> transformers.PreTrainedModel:
    return transformers.AutoModelForCausalLM.from_pretrained(
        folders["hf"], dtype=torch.float32, attn_implementation="eager"
    ).eval()


@pytest.fixture(scope="module")
def prompt(folders: dict[str, Path]) -> list[int]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders["hf"])
    ids = tokenizer.encode(TEXT * 10)
    assert len(ids) >= PROMPT_TOKENS
    return ids[:PROMPT_TOKENS]


@pytest.fixture(scope="module")
def expected(reference: transformers.PreTrainedModel, prompt: list[int]) -> tuple[np.ndarray, list[int]]:
    """The reference's logits of the prompt, and its greedy continuation."""
    tokens = torch.tensor([prompt])
    with torch.inference_mode():
        logits = reference.forward(tokens).logits[0].numpy()
        out: torch.Tensor = reference.generate(  # pyright: ignore[reportCallIssue]
            tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=NEW_TOKENS,
            min_new_tokens=NEW_TOKENS,
            do_sample=False,
        )
    return logits, out[0, PROMPT_TOKENS:].tolist()


@pytest.mark.parametrize("kind", ["hf", "store"])
def test_logits_and_greedy_tokens_equal_the_reference(
    folders: dict[str, Path], prompt: list[int], expected: tuple[np.ndarray, list[int]], kind: str
) -> None:
    model = zoo.load(folders[kind], dtype="float32")
    logits, tokens = expected
    ours = np.asarray(model.logits([prompt]))[0]
    assert np.abs(ours - logits).max() <= TOLERANCE
    [result] = model.generate([prompt], max_new_tokens=NEW_TOKENS, ignore_eos=True)
    assert result.tokens == tokens


def test_the_export_gives_the_same_logits_in_transformers(
    folders: dict[str, Path], reference: transformers.PreTrainedModel, prompt: list[int]
) -> None:
    exported = transformers.AutoModelForCausalLM.from_pretrained(
        folders["exported"], dtype=torch.float32, attn_implementation="eager"
    ).eval()
    tokens = torch.tensor([prompt])
    with torch.inference_mode():
        assert torch.equal(exported(tokens).logits, reference(tokens).logits)


def test_the_gguf_itself_answers() -> None:
    model = zoo.load("smollm2-135m-instruct", dtype="float32")
    [result] = model.generate(["What is the capital of France?"], max_new_tokens=32)
    assert "Paris" in result.text and result.finish_reason == "stop"
