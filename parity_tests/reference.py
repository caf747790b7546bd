"""Tiny random checkpoints for transformers and for us, and the comparison of what both make of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

import zoo

# These models are too small to share out; threads that wait for each other are most of the time on a busy machine.
torch.set_num_threads(1)

# float32 on both sides: what remains is the order of sums.
TOLERANCE = 1e-4

BASE: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_act": "silu",
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def write_checkpoint(folder: Path, base: Mapping[str, Any] = BASE, **changes: Any) -> PreTrainedModel:
    """A random model whose config.json has these fields, spelled as given; a change to `...` takes a field out.

    Every parameter is random: ones and zeros would hide a norm in another's place, or a bias left out. transformers
    names and divides the tensors on disk.
    """
    fields = {name: value for name, value in {**base, **changes}.items() if value is not ...}
    # transformers gets its own copy, since it changes the objects inside.
    config = AutoConfig.for_model(**json.loads(json.dumps(fields)))
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    randomise(model)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    # What transformers would spell anew.
    (folder / "config.json").write_text(json.dumps(fields), encoding="utf-8")
    return model


def randomise(model: PreTrainedModel) -> None:
    """Gives every parameter, and every buffer that is saved, a random value of a size that a trained one may have."""
    generator = torch.Generator().manual_seed(0)
    saved = model.state_dict(keep_vars=True)
    with torch.no_grad():
        for name, tensor in saved.items():
            if not tensor.is_floating_point():
                continue
            # Around one, as what multiplies is.
            is_norm = "norm" in name or ".ln_" in name or name.endswith(("scale", "scalar"))
            vector = tensor.ndim < 2
            deviation = 0.3 if is_norm or vector else 1.5 / tensor.shape[-1] ** 0.5
            tensor.normal_(float(is_norm and not name.endswith("bias")), deviation, generator=generator)


def load(folder: Path) -> zoo.Model:
    """Our model of a checkpoint, computing in float32."""
    return zoo.load(str(folder), dtype="float32")


def random_tokens(*shape: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.random.default_rng(seed).integers(3, BASE["vocab_size"], shape, dtype=np.int32)


def reference_logits(model: PreTrainedModel, tokens: ArrayLike) -> np.ndarray[Any, np.dtype[np.float32]]:
    """What transformers computes in one full pass, [batch, seq, vocab]."""
    with torch.no_grad():
        return model(torch.as_tensor(np.asarray(tokens), dtype=torch.long), use_cache=False).logits.float().numpy()


def assert_close(ours: ArrayLike, theirs: ArrayLike, tolerance: float = TOLERANCE) -> None:
    """Compares every element; a failure says how many differ, where most, and by how much altogether.

    `tolerance` is a part of the largest of their elements.
    """
    left, right = np.asarray(ours), np.asarray(theirs)
    assert left.shape == right.shape, f"shapes {left.shape} and {right.shape}"
    allowed = tolerance * float(np.abs(right).max(initial=0))
    difference = np.abs(left - right)
    # A comparison with NaN is false, so NaN counts as a difference.
    wrong = ~(difference <= allowed)
    if wrong.any():
        worst = np.unravel_index(np.argmax(np.where(np.isnan(difference), np.inf, difference)), difference.shape)
        spread = np.sqrt(np.mean(difference**2))
        raise AssertionError(
            f"{wrong.sum()} of {wrong.size} elements differ by more than {allowed:g}; the worst at "
            f"{tuple(map(int, worst))}: {left[worst]:.6f} and {right[worst]:.6f}; RMS {spread:.2e}"
        )
