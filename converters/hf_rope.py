"""The rotary embedding that a Hugging Face config.json describes, in every spelling.

Older files have `rope_theta` beside `rope_scaling`, which names its kind `type` or `rope_type`; newer ones have
`rope_parameters` with all of it inside. Where several are there they must agree. Defaults are those of transformers.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

from zoo.models.config import DefaultRope, DynamicRope, LinearRope, Llama3Rope, LongRope, Rope, YarnRope

from .hf_config import Fields

DEFAULT_THETA = 10000.0

_log = logging.getLogger(__name__)


def read_rope(fields: Fields, head_dim: int, max_positions: int) -> Rope:
    """The rotary embedding of a config.json.

    Args:
        fields: the whole config.json.
        head_dim: the size of a head.
        max_positions: its `max_position_embeddings`.
    """
    name, values = _one_spelling(fields)
    inner = Fields(values, f"{name}.", fields.problems)
    read = inner.choice("rope_type", _KINDS, "default")
    inner.neutral({"partial_rotary_factor": (1,)})
    if "rope_theta" not in values:
        _log.warning("config.json names no rope_theta: using the default of transformers, %g", DEFAULT_THETA)
    rope = read(inner, inner.number("rope_theta", DEFAULT_THETA), head_dim, max_positions)
    # The other kinds do not look at it; where it says the same as max_position_embeddings, nothing is lost.
    inner.neutral({"original_max_position_embeddings": (max_positions,)} if not _has_original(rope) else {})
    inner.refuse_unknown()
    return rope


def _has_original(rope: Rope) -> bool:
    return isinstance(rope, YarnRope | Llama3Rope | LongRope)


def context_length(rope: Rope, max_positions: int) -> int:
    """How long a sequence may be.

    Files with these kinds of scaling state the length before it; the others state the length that it makes possible.
    """
    if isinstance(rope, LinearRope | DynamicRope):
        return max(max_positions, int(max_positions * rope.factor))
    if isinstance(rope, YarnRope):
        return max(max_positions, int(rope.original_max_positions * rope.factor))
    return max_positions


def _one_spelling(fields: Fields) -> tuple[str, dict[str, Any]]:
    """The rope's fields under their newest names, and the name of the object that they come from."""
    outside = {
        name: fields.values[name] for name in ("rope_theta", "original_max_position_embeddings") if fields.has(name)
    }
    fields.skip(["rope_theta", "original_max_position_embeddings"])
    if "rope_theta" in fields.values and not fields.has("rope_theta"):
        fields.problem("rope_theta: expected a number, found null")
    forms = {name: _renamed(fields, name, fields.object(name)) for name in ("rope_parameters", "rope_scaling")}
    for name, form in forms.items():
        for key in outside.keys() & form.keys():
            if outside[key] != form[key]:
                fields.problem(f"{key} is {outside[key]!r} but {name}.{key} is {form[key]!r}: remove the wrong one")
    full = {name: {**outside, **form} for name, form in forms.items() if form}
    if len(full) == 2 and full["rope_parameters"] != full["rope_scaling"]:
        fields.problem(
            f"rope_parameters {forms['rope_parameters']!r} and rope_scaling {forms['rope_scaling']!r} disagree: "
            "remove the wrong one"
        )
    return next(iter(full.items()), ("rope_parameters", outside))


def _renamed(fields: Fields, name: str, form: Mapping[str, Any]) -> dict[str, Any]:
    """One form with `type`, the older name of `rope_type`, renamed."""
    result = dict(form)
    if "type" in result:
        old = result.pop("type")
        if result.setdefault("rope_type", old) != old:
            fields.problem(
                f"{name}.type is {old!r} but {name}.rope_type is {result['rope_type']!r}: remove the wrong one"
            )
    return result


def _default(inner: Fields, theta: float, head_dim: int, max_positions: int) -> Rope:
    return DefaultRope(theta=theta)


def _linear(inner: Fields, theta: float, head_dim: int, max_positions: int) -> Rope:
    return LinearRope(theta=theta, factor=inner.number("factor"))


def _dynamic(inner: Fields, theta: float, head_dim: int, max_positions: int) -> Rope:
    if head_dim <= 2:
        inner.problem("rope_type dynamic: expected a head_dim of at least 4, as its exponent divides by head_dim - 2")
    return DynamicRope(theta=theta, factor=inner.number("factor"), max_positions=max_positions)


def _yarn(inner: Fields, theta: float, head_dim: int, max_positions: int) -> Rope:
    original = inner.integer("original_max_position_embeddings", max_positions)
    if theta <= 1:
        inner.problem(f"{inner.prefix}rope_theta: yarn takes its logarithm, so expected more than 1, found {theta:g}")
        theta = DEFAULT_THETA
    # A factor that is there but null is the ratio of the two lengths.
    derived = "factor" in inner.values and not inner.has("factor")
    factor = max_positions / original if derived else inner.number("factor")
    fast = inner.number("beta_fast") if inner.has("beta_fast") else 32.0
    slow = inner.number("beta_slow") if inner.has("beta_slow") else 1.0
    mscale = inner.number("mscale", above=None) if inner.has("mscale") else 0.0
    mscale_all = inner.number("mscale_all_dim", above=None) if inner.has("mscale_all_dim") else 0.0

    def magnitude(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    if inner.has("attention_factor"):
        attention_factor = inner.number("attention_factor")
    else:
        attention_factor = magnitude(mscale) / magnitude(mscale_all) if mscale and mscale_all else magnitude(1.0)
    return YarnRope(
        theta=theta,
        factor=factor,
        original_max_positions=original,
        attention_factor=attention_factor,
        beta_fast=fast,
        beta_slow=slow,
        truncate=inner.boolean("truncate", True),
    )


def _llama3(inner: Fields, theta: float, head_dim: int, max_positions: int) -> Rope:
    low, high = inner.number("low_freq_factor"), inner.number("high_freq_factor")
    if low >= high and inner.has("low_freq_factor") and inner.has("high_freq_factor"):
        inner.problem(f"{inner.prefix}low_freq_factor is {low:g}, not below {inner.prefix}high_freq_factor, {high:g}")
    return Llama3Rope(
        theta=theta,
        factor=inner.number("factor"),
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_positions=inner.integer("original_max_position_embeddings", max_positions),
    )


def _longrope(inner: Fields, theta: float, head_dim: int, max_positions: int) -> Rope:
    original = inner.integer("original_max_position_embeddings", max_positions, minimum=2)
    factor = inner.number("factor") if inner.has("factor") else max_positions / original
    if inner.has("attention_factor"):
        attention_factor = inner.number("attention_factor")
    else:
        attention_factor = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return LongRope(
        theta=theta,
        short_factor=inner.numbers("short_factor", head_dim // 2),
        long_factor=inner.numbers("long_factor", head_dim // 2),
        original_max_positions=original,
        attention_factor=attention_factor,
    )


_KINDS: Mapping[str, Callable[[Fields, float, int, int], Rope]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "llama3": _llama3,
    "longrope": _longrope,
}
