"""The metadata of a GGUF file as the config.json and generation_config.json of a Hugging Face directory.

The metadata is read as a closed list: a key that changes the arithmetic and is not understood is an error, as is every
key of the architecture that is not known at all. What differs between architectures is in their families' columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from zoo.models.errors import ZooError, report_all

from .family import Family, families
from .gguf import GgufTensor
from .gguf_column import GgufColumn

# One divisor for each rotary frequency, computed when the file was made; the configuration says the same.
ROPE_DIVISORS = "rope_freqs.weight"
# The divisors of LongRoPE, which the configuration has as they are.
LONG_FACTORS, SHORT_FACTORS = "rope_factors_long.weight", "rope_factors_short.weight"
# A divisor by which a frequency as good as stands still; all of these are written as 1e30.
_STANDS_STILL = 1e29
PASSENGERS = (ROPE_DIVISORS, LONG_FACTORS, SHORT_FACTORS)

# Keys that `hf_config` translates, or that say how a file came to be.
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
    "attention.layer_norm_epsilon",
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
# What YaRN multiplies queries and keys by, where the original configuration said it; without YaRN it changes nothing.
_YARN_FACTOR = "rope.scaling.yarn_attn_factor"
# Keys that change the arithmetic unless they hold this value.
_NEUTRAL: dict[str, Any] = {
    "expert_count": 0,
    "expert_used_count": 0,
    "expert_weights_norm": False,
    "expert_weights_scale": 1.0,
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
    _YARN_FACTOR: 1.0,
    "rope.scaling.yarn_log_multiplier": 0.0,
    # The order of the rows of q and k that all llama files have, named by the older ones.
    "tensor_data_layout": "Meta AI original pth",
}


def column_of(metadata: Mapping[str, Any], where: str) -> tuple[Family, GgufColumn]:
    """The family of a GGUF file, and what that says of such files.

    Raises:
        ZooError: no family reads the architecture.
    """
    architecture = metadata.get("general.architecture")
    found = [(family, family.gguf) for family in families() if family.gguf is not None]
    fitting = [(family, column) for family, column in found if column.architecture == architecture]
    if len(fitting) > 1:
        prefix = f"{architecture}."
        keys = {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}
        experts = bool(keys.get("expert_count", 0))
        those = [(family, column) for family, column in fitting if column.experts == experts and column.tells(keys)]
        if not those:
            names = ", ".join(family.model_type for family, _ in fitting)
            raise ZooError(
                f"{where}: of the architecture {architecture} files of {names} are read, and the metadata "
                f"({prefix}expert_count, {prefix}expert_gating_func) says that this is another"
            )
        fitting = those
    if not fitting:
        known = ", ".join(sorted({column.architecture for _, column in found}))
        raise ZooError(f"{where}: general.architecture is {architecture!r}; known: {known}")
    return fitting[0]


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
    family, column = column_of(metadata, where)
    prefix = f"{column.architecture}."
    values = _Values(prefix, {k.removeprefix(prefix): v for k, v in metadata.items() if k.startswith(prefix)})
    heads = values.integer("attention.head_count")
    embed = values.integer("embedding_length")
    widths = _latent_heads(values, heads) if column.latent else _heads(values, column, embed, heads)
    head_dim = widths["head_dim"]
    dims = values.integer("rope.dimension_count", head_dim)
    usual = {
        "vocab_size": _vocabulary(metadata, values, tensors),
        "hidden_size": embed,
        "intermediate_size": None if "feed_forward_length" in column.fields else values.integer("feed_forward_length"),
        "num_hidden_layers": values.integer("block_count"),
        "num_attention_heads": heads,
        **widths,
        "hidden_act": "silu",
        "max_position_embeddings": values.integer("context_length"),
        column.epsilon: values.number(_epsilon_key(values)),
        # The two spellings that every release of transformers reads; 10000 is what an absent base stands for in GGUF.
        "rope_theta": values.number("rope.freq_base", 10000.0),
        "rope_scaling": _rope_scaling(values),
        **{name: any(tensor.endswith(end) for tensor in tensors) for name, end in column.present.items()},
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "tie_word_embeddings": "output.weight" not in tensors,
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": metadata.get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": metadata.get("tokenizer.ggml.padding_token_id"),
        "use_cache": True,
        **({column.partial: dims / head_dim} if column.partial else {}),
        **_own_fields(values, column),
        **column.fixed,
    }
    report_all(
        [*_not_understood(values, column, tensors), *values.problems], f"{where}: the metadata cannot be translated:"
    )
    if ROPE_DIVISORS in tensors:
        usual["rope_scaling"] = _scaling_from_divisors(tensors[ROPE_DIVISORS], usual, dims, where)
    if LONG_FACTORS in tensors and SHORT_FACTORS in tensors:
        usual |= _longrope(tensors, values)
    report_all(values.problems, f"{where}: the metadata cannot be translated:")
    if column.derive is not None:
        usual = column.derive(usual)
    names = {name: column.rename.get(name, name) for name in usual}
    renamed = {new: usual[name] for name, new in names.items() if new is not None}
    return {"architectures": [family.architectures[0]], "model_type": family.model_type, **renamed}


def _heads(values: _Values, column: GgufColumn, embed: int, heads: int) -> dict[str, Any]:
    """How many heads keys have, and how wide a head is."""
    head_dim = values.integer("attention.key_length", embed // heads)
    values.must_equal("attention.value_length", head_dim, "the width of a head")
    if column.partial is None:
        values.must_equal("rope.dimension_count", head_dim, "the width of a head; a partial rotation is not supported")
    own = "attention.head_count_kv" in column.fields
    kv_heads = heads if own else values.integer("attention.head_count_kv", heads)
    return {"num_key_value_heads": kv_heads, "head_dim": head_dim}


def _latent_heads(values: _Values, heads: int) -> dict[str, Any]:
    """The widths of latent attention.

    Files have been written as for one head of keys that is the latent itself, with the widths of real heads beside it;
    older ones as for these alone.
    """
    turned, latent = values.integer("rope.dimension_count"), values.integer("attention.kv_lora_rank")
    suffix = ""
    if "attention.key_length_mla" in values.values:
        suffix = "_mla"
        values.must_equal("attention.key_length", latent + turned, "the widths of the latent and of what turns")
        values.must_equal("attention.value_length", latent, "the width of the latent")
    values.must_equal("attention.head_count_kv", 1 if suffix else heads, "the heads of keys")
    own = values.integer(f"attention.key_length{suffix}") - turned
    if own <= 0:
        values.problems.append(f"{values.prefix}attention.key_length{suffix}: expected more than {turned}, what turns")
    return {
        **{"num_key_value_heads": heads, "head_dim": turned, "kv_lora_rank": latent},
        **{"qk_nope_head_dim": own, "qk_rope_head_dim": turned},
        "v_head_dim": values.integer(f"attention.value_length{suffix}"),
    }


# Keys that only latent attention has.
_LATENT = ("attention.kv_lora_rank", "attention.key_length_mla", "attention.value_length_mla")


def _epsilon_key(values: _Values) -> str:
    """The key of the norms' epsilon: one for those that subtract the mean, one for those that do not."""
    other = "attention.layer_norm_epsilon"
    return other if other in values.values else "attention.layer_norm_rms_epsilon"


def _own_fields(values: _Values, column: GgufColumn) -> dict[str, Any]:
    """The fields that this architecture has beside the usual ones."""
    result: dict[str, Any] = {}
    for key, name in column.fields.items():
        if key in values.values:
            value = values.values[key]
            # A window of 0 is none.
            none = key == "attention.sliding_window" and value == 0
            result[name] = None if none else _shortest(value) if isinstance(value, float) else value
        elif name in column.absent:
            result[name] = column.absent[name]
        else:
            values.problems.append(f"{values.prefix}{key} is missing")
    return result


def _longrope(tensors: Mapping[str, GgufTensor], values: _Values) -> dict[str, Any]:
    """LongRoPE: the file has its divisors as they are, and the magnitude that follows from the two lengths."""
    original = values.integer("rope.scaling.original_context_length")
    positions = values.integer("context_length")
    scale = positions / original
    expected = math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 and original > 1 else 1.0
    found = values.values.get("rope.scaling.attn_factor", expected)
    if not isinstance(found, float) or abs(found - expected) > 1e-4:
        values.problems.append(f"{values.prefix}rope.scaling.attn_factor is {found!r}, the lengths make {expected:g}")
    short, long = (
        [_shortest(value) for value in tensors[name].read().reshape(-1)] for name in (SHORT_FACTORS, LONG_FACTORS)
    )
    scaling = {"type": "longrope", "short_factor": short, "long_factor": long}
    return {"rope_scaling": scaling, "original_max_position_embeddings": original}


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

    def __init__(self, prefix: str, values: Mapping[str, Any]) -> None:
        self.prefix = prefix
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
            self.problems.append(f"{self.prefix}{key}: expected {expected}, {what}; found {found!r}")

    def _wrong(self, key: str, expected: str, found: Any) -> float:
        shown = "nothing" if found is None else repr(found)
        problem = f"{self.prefix}{key}: expected {expected}, found {shown if len(shown) < 60 else shown[:60] + '...'}"
        if problem not in self.problems:
            self.problems.append(problem)
        return 1.0


def _shortest(value: float) -> float:
    """A float32 as the shortest decimal that rounds to it: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def _not_understood(values: _Values, column: GgufColumn, tensors: Mapping[str, GgufTensor]) -> list[str]:
    neutral = {**_NEUTRAL, **column.neutral}
    known = {*_TRANSLATED, *column.fields, *(_LATENT if column.latent else ())}
    if LONG_FACTORS in tensors:
        # Compared where the divisors are read.
        known.add("rope.scaling.attn_factor")
    if values.values.get("rope.scaling.type") == "yarn":
        known.add(_YARN_FACTOR)
    problems: list[str] = []
    for key, value in values.values.items():
        if key in known:
            continue
        if key not in neutral:
            problems.append(f"{values.prefix}{key} is not known")
        elif value != neutral[key]:
            problems.append(
                f"{values.prefix}{key} is {value!r}, which changes the arithmetic; only {neutral[key]!r} is supported"
            )
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
            **({"attention_factor": values.number(_YARN_FACTOR)} if _YARN_FACTOR in values.values else {}),
        }
    values.problems.append(f"{values.prefix}rope.scaling.type is {kind!r}; known: none, linear, yarn")
    return None


def _scaling_from_divisors(
    tensor: GgufTensor, config: Mapping[str, Any], dims: int, where: str
) -> dict[str, Any] | None:
    """The `llama3` scaling whose divisors a file holds; it holds those instead of the four numbers behind them.

    Multiplying both wavelength factors and the original length by the same number changes nothing, so 1 and 4 may be
    taken for the factors, as in every published checkpoint: their ratio is what counts. The result is verified.
    """
    if config["rope_scaling"] is not None:
        raise ZooError(
            f"{where}: tensor {ROPE_DIVISORS} and rope.scaling.type contradict each other; only one may be there"
        )
    divisors = tensor.read().astype(np.float64)
    frequencies = rope_frequencies(config["rope_theta"], dims)
    if divisors.shape != frequencies.shape:
        raise ZooError(
            f"{where}: tensor {ROPE_DIVISORS} has shape {list(divisors.shape)}, expected {list(frequencies.shape)}"
        )
    if np.all(divisors == 1):
        return None
    stands = divisors >= _STANDS_STILL
    if np.all(stands | (divisors == 1)):
        return {"rope_type": "proportional", "partial_rotary_factor": 1 - float(stands.mean())}
    # The length of every published checkpoint comes first: where no frequency is interpolated, several fit. In Llama 4
    # none is, for the two factors are equal; those a little apart say the same without dividing by nothing.
    for high, original in product((4.0, 1.0001), (8192, *(1 << bits for bits in range(24)))):
        scaling = {
            "rope_type": "llama3",
            "factor": round(float(divisors.max()), 4),
            "low_freq_factor": 1.0,
            "high_freq_factor": high,
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
