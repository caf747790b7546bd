"""A strict reader of a Hugging Face config.json.

Every field is asked for by name, with the type and the range it must have. What nobody asked for, and nobody listed as
harmless, is an error: a field that this package does not know may change the arithmetic. Problems are collected, so
that one run names them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeGuard, TypeVar

from zoo.models.config import Activation
from zoo.models.errors import report_all

Value = TypeVar("Value")

# Fields that say where a checkpoint comes from, how it was trained, how to generate with it or what a tool made of it.
# None of them changes the logits.
HARMLESS = frozenset(
    """
    architectures model_type _name_or_path name_or_path transformers_version torch_dtype dtype use_cache
    initializer_range attention_dropout hidden_dropout embd_pdrop resid_pdrop attn_pdrop
    bos_token_id eos_token_id sep_token_id cls_token_id unk_token_id decoder_start_token_id
    forced_bos_token_id forced_eos_token_id tokenizer_class prefix
    output_hidden_states output_attentions output_scores return_dict return_dict_in_generate use_return_dict
    chunk_size_feed_forward is_decoder id2label label2id num_labels problem_type finetuning_task task_specific_params
    torchscript use_bfloat16 tf_legacy_loss tie_encoder_decoder
    max_length min_length do_sample temperature top_k top_p typical_p repetition_penalty length_penalty
    no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids num_return_sequences num_beams num_beam_groups
    diversity_penalty early_stopping exponential_decay_length_penalty suppress_tokens begin_suppress_tokens
    remove_invalid_values auto_map cache_implementation
    attn_implementation _attn_implementation _attn_implementation_autoset
    unsloth_version unsloth_fixed transformers.js_config is_llama_config max_sequence_length
    """.split()  # noqa: SIM905
)
# Fields that would change the arithmetic if they had any other value.
NEUTRAL: Mapping[str, Sequence[Any]] = {
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "cross_attention_hidden_size": (None,),
    "pruned_heads": ({}, []),
    "quantization_config": (None,),
    "sliding_window": (None,),
    "use_sliding_window": (False,),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "partial_rotary_factor": (1,),
    "rope_interleaved": (False,),
}

# What `layer_types` calls layers that see a window, and those that see everything.
SLIDING, FULL = "sliding_attention", "full_attention"

# Numbers in a config.json are smaller than this; larger ones would overflow on their way through its formulas.
LARGEST = 1e12

# `hidden_act` to the activation that computes it; several names stand for the same function.
ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu_squared",
}


class Fields:
    """The fields of a config.json, or of an object in it, while they are being read.

    A reader that finds a problem records it and returns a stand-in, so reading goes on; `finish` raises.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        defaults: Mapping[str, Any] | None = None,
        *,
        prefix: str = "",
        problems: list[str] | None = None,
    ):
        """The fields `values`, and `defaults` in the place of those that are absent; errors name them with `prefix`."""
        self.values: Mapping[str, Any] = {**(defaults or {}), **values}
        self._given = values
        self.prefix = prefix
        self.problems: list[str] = [] if problems is None else problems
        self._read: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether the field is there and is not null."""
        return self.values.get(name) is not None

    def lay_under(self, name: str, value: Any) -> None:
        """Takes `value` for a field that is absent or null."""
        if not self.has(name):
            self.values = {**self.values, name: value}

    def alias(self, other: str, name: str) -> None:
        """Takes what `other` says for the field `name`; where a file has both they must agree."""
        if not self.has(other):
            return
        value = self.values[other]
        if self._given.get(name, value) != value:
            found = f"{self.prefix}{name} is {self._given[name]!r} but {self.prefix}{other} is {value!r}"
            self.problem(f"{found}: remove the wrong one")
        self.values = {**self.values, name: value}
        self._read.add(other)

    def integer(self, name: str, default: int | None = None, minimum: int = 1) -> int:
        """A whole number; required where there is no default."""
        found = self._take(name, default)
        if isinstance(found, int) and not isinstance(found, bool) and minimum <= found < LARGEST:
            return found
        return self._refuse(name, f"expected a whole number of at least {minimum}", found, default or minimum)

    def number(self, name: str, default: float | None = None, *, above: float | None = 0.0) -> float:
        """A finite number greater than `above`; required where there is no default."""
        found = self._take(name, default)
        if _is_number(found) and (above is None or found > above):
            return float(found)
        expected = "expected a finite number" if above is None else f"expected a finite number greater than {above:g}"
        return self._refuse(name, expected, found, 1.0 if default is None else default)

    def optional_number(self, name: str) -> float | None:
        """A positive number, or None where the field is absent or null."""
        if self.has(name):
            return self.number(name)
        self.skip([name])
        return None

    def numbers(self, name: str, length: int) -> tuple[float, ...]:
        """A list of `length` positive numbers."""
        found = self._take(name, None)
        if isinstance(found, list) and len(found) == length and all(_is_number(item) and item > 0 for item in found):
            return tuple(float(item) for item in found)
        shown = f"a list of {len(found)}" if isinstance(found, list) else found
        return self._refuse(name, f"expected a list of {length} positive numbers", shown, (1.0,) * length)

    def boolean(self, name: str, default: bool = False) -> bool:
        """true or false."""
        found = self._take(name, default)
        return found if isinstance(found, bool) else self._refuse(name, "expected true or false", found, default)

    def choice(self, name: str, known: Mapping[str, Value], default: str | None = None) -> Value:
        """What `known` has for the field's value."""
        found = self._take(name, default)
        if isinstance(found, str) and found in known:
            return known[found]
        return self._refuse(name, f"expected one of {', '.join(known)}", found, next(iter(known.values())))

    def token_id(self, name: str, vocab: int) -> int | None:
        """A token id below `vocab`; null and -1 both mean that there is none."""
        found = self._take(name, None) if name in self.values else None
        if found is None or (isinstance(found, int) and not isinstance(found, bool) and -1 <= found < vocab):
            return None if found == -1 else found
        return self._refuse(name, f"expected null or a token id from 0 to {vocab - 1}", found, None)

    def object(self, name: str) -> Mapping[str, Any]:
        """A JSON object; absent and null are empty."""
        found = self._take(name, None) if name in self.values else None
        if found is None or isinstance(found, dict):
            return found or {}
        return self._refuse(name, "expected an object or null", found, {})

    def skip(self, names: Iterable[str]) -> None:
        """Marks fields that do not matter."""
        self._read.update(names)

    def neutral(self, allowed: Mapping[str, Sequence[Any]]) -> None:
        """Refuses fields not read yet that have another value than those allowed; absent and null always are."""
        for name, values in allowed.items():
            if name in self._read:
                continue
            found = self._take(name, None) if name in self.values else None
            if found is not None and found not in values:
                self._refuse(name, f"only {' or '.join(map(repr, values))} is supported", found, None)

    def words(self, name: str, length: int, known: Sequence[str]) -> tuple[str, ...] | None:
        """A list of `length` of the `known` words; absent and null are None."""
        found = self._take(name, None) if name in self.values else None
        if found is None or (isinstance(found, list) and len(found) == length and all(item in known for item in found)):
            return None if found is None else tuple(found)
        return self._refuse(name, f"expected a list of {length} of {', '.join(known)}", found, None)

    def indices(self, name: str) -> list[int] | None:
        """A list of whole numbers; absent and null are None."""
        found = self._take(name, None) if name in self.values else None
        if found is None or (isinstance(found, list) and all(type(item) is int and item >= 0 for item in found)):
            return found
        return self._refuse(name, "expected a list of whole numbers", found, None)

    def problem(self, text: str) -> None:
        """Records a problem that concerns more than one field."""
        self.problems.append(text)

    def refuse_unknown(self) -> None:
        """Records every field that was neither read nor skipped, unless it is null and so says nothing."""
        for name, value in self._given.items():
            if name not in self._read and value is not None:
                near = get_close_matches(name, self._read, n=1, cutoff=0.8)
                hint = f" (did you mean {near[0]}?)" if near else ""
                self.problems.append(f"{self.prefix}{name}: unknown field with value {value!r}{hint}")

    def finish(self, heading: str) -> None:
        """Raises one error that lists all problems, if there are any."""
        report_all(self.problems, heading)

    def _take(self, name: str, default: Value) -> Any | Value:
        self._read.add(name)
        return self.values.get(name, default)

    def _refuse(self, name: str, expected: str, found: Any, stand_in: Value) -> Value:
        shown = repr(found) if name in self.values else "nothing"
        self.problems.append(f"{self.prefix}{name}: {expected}, found {shown}")
        return stand_in


def _is_number(found: Any) -> TypeGuard[int | float]:
    """Whether it is a number that arithmetic can bear."""
    return isinstance(found, int | float) and not isinstance(found, bool) and abs(found) < LARGEST
