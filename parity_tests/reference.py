"""Tiny random checkpoints for transformers and for us, and the comparison of what both make of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

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


def write_checkpoint(folder: Path, **changes: Any) -> LlamaForCausalLM:
    """A random llama whose config.json has these fields, spelled as given; a change to `...` takes a field out.

    Every parameter is random: ones and zeros would hide a norm in another's place, or a bias left out.
    """
    fields = {name: value for name, value in {**BASE, **changes}.items() if value is not ...}
    # transformers gets its own copy, since it changes the objects inside.
    model = LlamaForCausalLM(LlamaConfig.from_dict(json.loads(json.dumps(fields)))).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = "norm" in name
            deviation = 0.3 if is_norm or name.endswith("bias") else 1.5 / parameter.shape[-1] ** 0.5
            parameter.normal_(float(is_norm), deviation, generator=generator)
    # Eager attention is the plain formula; the fused kernels sum in other orders.
    model.set_attn_implementation("eager")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(fields), encoding="utf-8")
    tensors = dict(model.state_dict())
    if fields["tie_word_embeddings"]:
        del tensors["lm_head.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return model


def load(folder: Path) -> zoo.Model:
    """Our model of a checkpoint, computing in float32."""
    return zoo.load(str(folder), dtype="float32")


def random_tokens(*shape: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.random.default_rng(seed).integers(3, BASE["vocab_size"], shape, dtype=np.int32)


def reference_logits(model: LlamaForCausalLM, tokens: ArrayLike) -> np.ndarray[Any, np.dtype[np.float32]]:
    """What transformers computes in one full pass, [batch, seq, vocab]."""
    with torch.no_grad():
        return model(torch.as_tensor(np.asarray(tokens), dtype=torch.long), use_cache=False).logits.numpy()


def assert_close(ours: ArrayLike, theirs: ArrayLike, tolerance: float = TOLERANCE) -> None:
    """Compares every element; a failure says how many differ, where most, and by how much altogether."""
    left, right = np.asarray(ours), np.asarray(theirs)
    assert left.shape == right.shape, f"shapes {left.shape} and {right.shape}"
    difference = np.abs(left - right)
    # A comparison with NaN is false, so NaN counts as a difference.
    wrong = ~(difference <= tolerance)
    if wrong.any():
        worst = np.unravel_index(np.argmax(np.where(np.isnan(difference), np.inf, difference)), difference.shape)
        spread = np.sqrt(np.mean(difference**2))
        raise AssertionError(
            f"{wrong.sum()} of {wrong.size} elements differ by more than {tolerance:g}; the worst at "
            f"{tuple(map(int, worst))}: {left[worst]:.6f} and {right[worst]:.6f}; RMS {spread:.2e}"
        )
