"""The metadata of a GGUF file as the config.json and generation_config.json of a Hugging Face directory.

One architecture: `llama`, written as `LlamaForCausalLM`. The metadata is read as a closed list: a key that changes the
arithmetic and is not understood is an error, as is every key of the architecture that is not known at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from zoo.models.errors import ZooError, report_all

from .gguf import GgufTensor

ARCHITECTURES = ("llama",)
# One divisor for each rotary frequency, computed when the file was made; the configuration says the same.
ROPE_DIVISORS = "rope_freqs.weight"
PASSENGERS = (ROPE_DIVISORS,)

# Keys under `llama.` that `hf_config` translates, or that say how a file came to be.
_TRANSLATED = (
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "vocab_size",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scale_linear",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.finetuned",
)
# Keys that change the arithmetic unless they hold this value.
_NEUTRAL: dict[str, Any] = {
    "expert_count": 0,
    "expert_used_count": 0,
    "use_parallel_residual": False,
    "attention.causal": True,
    "attention.sliding_window": 0,
    "attention.clamp_kqv": 0.0,
    "attention.max_alibi_bias": 0.0,
    "logit_scale": 1.0,
    "residual_scale": 1.0,
    "embedding_scale": 1.0,
    "rope.scaling.attn_factor": 1.0,
    "rope.scaling.yarn_ext_factor": 1.0,
    "rope.scaling.yarn_attn_factor": 1.0,
    "rope.scaling.yarn_log_multiplier": 0.0,
    # The order of the rows of q and k that all llama files have, named by the older ones.
    "tensor_data_layout": "Meta AI original pth",
}
_ATTENTION_BIASES = (".attn_q.bias", ".attn_k.bias", ".attn_v.bias", ".attn_output.bias")
_MLP_BIASES = (".ffn_gate.bias", ".ffn_up.bias", ".ffn_down.bias")


def hf_config(
    metadata: Mapping[str, Any], tensors: Mapping[str, GgufTensor], where: str = "the GGUF file"
) -> dict[str, Any]:
    """The config.json of a GGUF file, without the element type, which is the caller's choice.

    Args:
        metadata: the file's metadata.
        tensors: its tensors; of these only the divisors of rotary frequencies are read.
        where: how an error names the file.

    Raises:
        ZooError: the architecture is not known, or a hyperparameter is missing, contradictory or not understood.
    """
    architecture = metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise ZooError(f"{where}: general.architecture is {architecture!r}; known: {', '.join(ARCHITECTURES)}")
    values = _Values({key.removeprefix("llama."): value for key, value in metadata.items() if key.startswith("llama.")})
    heads = values.integer("attention.head_count")
    embed = values.integer("embedding_length")
    head_dim = values.integer("attention.key_length", embed // heads)
    values.must_equal("attention.value_length", head_dim, "the width of a head")
    values.must_equal("rope.dimension_count", head_dim, "the width of a head; a partial rotation is not supported")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": _vocabulary(metadata, values, tensors),
        "hidden_size": embed,
        "intermediate_size": values.integer("feed_forward_length"),
        "num_hidden_layers": values.integer("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": values.integer("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": values.integer("context_length"),
        "rms_norm_eps": values.number("attention.layer_norm_rms_epsilon"),
        # The two spellings that every release of transformers reads; 10000 is what an absent base stands for in GGUF.
        "rope_theta": values.number("rope.freq_base", 10000.0),
        "rope_scaling": _rope_scaling(values),
        "attention_bias": any(name.endswith(_ATTENTION_BIASES) for name in tensors),
        "mlp_bias": any(name.endswith(_MLP_BIASES) for name in tensors),
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "tie_word_embeddings": "output.weight" not in tensors,
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": metadata.get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": metadata.get("tokenizer.ggml.padding_token_id"),
        "use_cache": True,
    }
    report_all([*_not_understood(values), *values.problems], f"{where}: the metadata cannot be translated:")
    if ROPE_DIVISORS in tensors:
        config["rope_scaling"] = _scaling_from_divisors(tensors[ROPE_DIVISORS], config, where)
    return config


def generation_config(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The generation_config.json of a GGUF file: where a text begins, and every token that ends one."""
    names = ("eos_token_id", "eot_token_id", "eom_token_id")
    # A dict keeps the order and drops what is named twice.
    found = {key: metadata[key] for key in map("tokenizer.ggml.{}".format, names) if key in metadata}
    wrong = (
        f"{key}: expected a token id, found {str(value)[:80]}"
        for key, value in found.items()
        if not isinstance(value, int)
    )
    report_all(wrong, "the GGUF file's end tokens cannot be translated:")
    ends = list(dict.fromkeys(found.values()))
    config = {
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": ends[0] if len(ends) == 1 else ends or None,
        "pad_token_id": metadata.get("tokenizer.ggml.padding_token_id"),
    }
    return {name: value for name, value in config.items() if value is not None}


class _Values:
    """The keys of an architecture, read with their types checked; what is wrong is collected in `problems`."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        self.problems: list[str] = []

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.values.get(key, default)
        if type(value) is int and value > 0:
            return value
        return int(self._wrong(key, "a positive integer", value))

    def number(self, key: str, default: float | None = None) -> float:
        value = self.values.get(key, default)
        if type(value) in (int, float) and math.isfinite(value) and value > 0:
            return _shortest(value)
        return self._wrong(key, "a positive number", value)

    def must_equal(self, key: str, expected: int, what: str) -> None:
        found = self.values.get(key, expected)
        if found != expected:
            self.problems.append(f"llama.{key}: expected {expected}, {what}; found {found!r}")

    def _wrong(self, key: str, expected: str, found: Any) -> float:
        shown = "nothing" if found is None else repr(found)
        problem = f"llama.{key}: expected {expected}, found {shown if len(shown) < 60 else shown[:60] + '...'}"
        if problem not in self.problems:
            self.problems.append(problem)
        return 1.0


def _shortest(value: float) -> float:
    """A float32 as the shortest decimal that rounds to it: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def _not_understood(values: _Values) -> list[str]:
    problems: list[str] = []
    for key, value in values.values.items():
        if key in _NEUTRAL and value != _NEUTRAL[key]:
            problems.append(
                f"llama.{key} is {value!r}, which changes the arithmetic; only {_NEUTRAL[key]!r} is supported"
            )
        elif key not in _NEUTRAL and key not in _TRANSLATED:
            problems.append(f"llama.{key} is not known")
    return problems


def _vocabulary(metadata: Mapping[str, Any], values: _Values, tensors: Mapping[str, GgufTensor]) -> int:
    """The rows of the embedding, which the other numbers of tokens must not contradict."""
    if "token_embd.weight" not in tensors:
        values.problems.append("tensor token_embd.weight is missing")
        return 1
    rows = tensors["token_embd.weight"].shape[0]
    values.must_equal("vocab_size", rows, "the rows of token_embd.weight")
    tokens = metadata.get("tokenizer.ggml.tokens", [])
    if len(tokens) > rows:
        values.problems.append(f"tokenizer.ggml.tokens has {len(tokens)} tokens, token_embd.weight only {rows} rows")
    return rows


def _rope_scaling(values: _Values) -> dict[str, Any] | None:
    # An absent type stands for linear; older files name its factor differently, and a factor of 0 says there is none.
    kind = values.values.get("rope.scaling.type", "linear")
    factor_key = "rope.scaling.factor" if "rope.scaling.factor" in values.values else "rope.scale_linear"
    if kind == "none" or (kind == "linear" and values.values.get(factor_key, 0) in (0, 1)):
        return None
    if kind == "linear":
        return {"rope_type": "linear", "factor": values.number(factor_key)}
    if kind == "yarn":
        return {
            "rope_type": "yarn",
            "factor": values.number("rope.scaling.factor"),
            "original_max_position_embeddings": values.integer(
                "rope.scaling.original_context_length", values.integer("context_length")
            ),
            "beta_fast": values.number("rope.scaling.yarn_beta_fast", 32.0),
            "beta_slow": values.number("rope.scaling.yarn_beta_slow", 1.0),
        }
    values.problems.append(f"llama.rope.scaling.type is {kind!r}; known: none, linear, yarn")
    return None


def _scaling_from_divisors(tensor: GgufTensor, config: Mapping[str, Any], where: str) -> dict[str, Any] | None:
    """The `llama3` scaling whose divisors a file holds; it holds those instead of the four numbers behind them.

    Multiplying both wavelength factors and the original length by the same number changes nothing, so 1 and 4 may be
    taken for the factors, as in every published checkpoint: their ratio is what counts. The result is verified.
    """
    if config["rope_scaling"] is not None:
        raise ZooError(
            f"{where}: tensor {ROPE_DIVISORS} and llama.rope.scaling.type contradict each other; only one may be there"
        )
    divisors = tensor.read().astype(np.float64)
    frequencies = rope_frequencies(config["rope_theta"], config["head_dim"])
    if divisors.shape != frequencies.shape:
        raise ZooError(
            f"{where}: tensor {ROPE_DIVISORS} has shape {list(divisors.shape)}, expected {list(frequencies.shape)}"
        )
    if np.all(divisors == 1):
        return None
    # The length of every published checkpoint comes first: where no frequency is interpolated, several fit.
    for original in (8192, *(1 << bits for bits in range(24))):
        scaling = {
            "rope_type": "llama3",
            "factor": round(float(divisors.max()), 4),
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": original,
        }
        if np.allclose(llama3_divisors(frequencies, scaling), divisors, rtol=1e-5, atol=0):
            return scaling
    raise ZooError(
        f"{where}: tensor {ROPE_DIVISORS}: its divisors, {divisors.min():g} to {divisors.max():g}, are no `llama3` "
        "scaling with factors 1 and 4 and a power of two as original length; other scalings cannot be expressed"
    )


def rope_frequencies(theta: float, head_dim: int) -> np.ndarray:
    """Radians a position, one for each pair of a head's features."""
    return theta ** -(np.arange(0, head_dim, 2) / head_dim)


def llama3_divisors(frequencies: np.ndarray, scaling: Mapping[str, Any]) -> np.ndarray:
    """What each rotary frequency is divided by under a `llama3` scaling (Llama 3.1's own definition).

    Wavelengths up to original / high stay, those beyond original / low are stretched by the factor, and in between
    the frequency is interpolated linearly.
    """
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return 1 / ((1 - kept) / scaling["factor"] + kept)
