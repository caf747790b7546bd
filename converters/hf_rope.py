"""The rotary embedding that a Hugging Face config.json describes, in every spelling.

Older files have `rope_theta` beside `rope_scaling`, which names its kind `type` or `rope_type`; newer ones have
`rope_parameters` with all of it inside, in some families an object of it for each kind of layer. Where several are
there they must agree, and what transformers does not look at is refused. Defaults are those of transformers.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zoo.models.config import (
    DefaultRope,
    DynamicRope,
    LinearRope,
    Llama3Rope,
    LongRope,
    ProportionalRope,
    Rope,
    YarnRope,
)

from .hf_config import FULL, Fields

DEFAULT_THETA = 10000.0

_log = logging.getLogger(__name__)


def read_rope(
    fields: Fields,
    head_dim: int,
    max_positions: int,
    *,
    theta: float = DEFAULT_THETA,
    fraction: float | None = None,
    interleaved: bool = False,
    ignored: Sequence[str] = (),
) -> Rope:
    """The rotary embedding of a config.json.

    Args:
        fields: the whole config.json.
        head_dim: the size of a head.
        max_positions: its `max_position_embeddings`.
        theta: the base where the file names none.
        fraction: the part of a head that turns, where the file does not say it as `partial_rotary_factor`; None where
            all of it does, whatever a file says.
        interleaved: whether the family turns neighbours and not halves.
        ignored: fields of the rope's object that change nothing for the family.
    """
    if fraction is not None:
        _refuse_null(fields, "partial_rotary_factor")
    name, values = _one_spelling(fields)
    if "rope_theta" not in values and theta == DEFAULT_THETA:
        _log.warning("config.json names no rope_theta: using the default of transformers, %g", theta)
    inner = Fields(values, prefix=f"{fields.prefix}{name}.", problems=fields.problems)
    inner.skip(ignored)
    return _read(inner, head_dim, max_positions, theta=theta, fraction=fraction, interleaved=interleaved)


def read_ropes(
    fields: Fields,
    head_dim: int | Mapping[str, int],
    max_positions: int,
    bases: Mapping[str, tuple[str | None, float]],
) -> dict[str, Rope]:
    """The rotary embedding of each kind of layer, in families where `rope_parameters` has an object for each.

    In older files `rope_scaling` is that of full layers alone; the others turn plainly.

    Args:
        fields, head_dim, max_positions: as for `read_rope`; the size of a head may be another for each kind of layer.
        bases: the kinds of layers, each with the field in which older files have its base, and what its base is where
            there is none.
    """
    forms, scaling = fields.object("rope_parameters"), fields.object("rope_scaling")
    stray = [name for name, value in forms.items() if name not in bases and value is not None]
    if stray:
        # transformers keeps them, and computes with its defaults.
        expected = f"expected nothing but an object for {' and for '.join(bases)}"
        fields.problem(f"{fields.prefix}rope_parameters: {expected}, found {', '.join(stray)}")
    if "rope_type" not in scaling and scaling.get("type", "default") != "default":
        found = f"{fields.prefix}rope_scaling.type is {scaling['type']!r}"
        fields.problem(f"{found}, but transformers looks at rope_type alone here: rename it, or remove rope_scaling")
    ropes: dict[str, Rope] = {}
    for kind, (outside, theta) in bases.items():
        own = Fields(forms, prefix=f"{fields.prefix}rope_parameters.", problems=fields.problems).object(kind)
        parts = {f"rope_parameters.{kind}": own, **({"rope_scaling": scaling} if kind == FULL else {})}
        values = _in_agreement(fields, {**parts, **_base(fields, outside)})
        name = next((name for name, part in parts.items() if part), f"rope_parameters.{kind}")
        inner = Fields(values, prefix=f"{fields.prefix}{name}.", problems=fields.problems)
        size = head_dim if isinstance(head_dim, int) else head_dim[kind]
        ropes[kind] = rope = _read(inner, size, max_positions, theta=theta)
        if isinstance(rope, YarnRope) and not rope.truncate:
            inner.problem(f"{inner.prefix}truncate: transformers does not look at it here, so only true is supported")
    # Nor does it look at this; where it says the same, nothing is lost.
    full = ropes[FULL]
    original = full.original_max_positions if isinstance(full, _WITH_ORIGINAL) else max_positions
    fields.neutral({"original_max_position_embeddings": (original,)})
    return ropes


def _base(fields: Fields, name: str | None) -> dict[str, Mapping[str, Any]]:
    """What the field of this name, outside of the rope's own objects, says of the base."""
    if name is None:
        return {}
    fields.skip([name])
    _refuse_null(fields, name)
    return {name: {"rope_theta": fields.values[name]}} if fields.has(name) else {}


def _in_agreement(fields: Fields, parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What these parts of a file, each with its name, say together."""
    result: dict[str, Any] = {}
    said_by: dict[str, str] = {}
    for name, part in parts.items():
        for key, value in _renamed(fields, name, part).items():
            said_by.setdefault(key, name)
            if result.setdefault(key, value) != value:
                before = f"{key} is {result[key]!r} in {said_by[key]}"
                fields.problem(f"{before} but {value!r} in {name}: remove the wrong one")
    return result


def _read(
    inner: Fields,
    head_dim: int,
    max_positions: int,
    *,
    theta: float,
    fraction: float | None = None,
    interleaved: bool = False,
) -> Rope:
    """The rotary embedding that an object describes, once all is in it; arguments as for `read_rope`."""
    read = inner.choice("rope_type", _KINDS, "default")
    dims = head_dim if fraction is None else int(head_dim * inner.number("partial_rotary_factor", fraction))
    if dims % 2 or not 2 <= dims <= head_dim:
        what = f"head_dim {dims} is odd" if dims == head_dim else f"{dims} of {head_dim} elements of a head are to turn"
        inner.problem(f"{what}, but a rotary embedding turns pairs")
        dims = 2
    base = {"theta": inner.number("rope_theta", theta), "dims": dims, "interleaved": interleaved}
    rope = read(inner, base, max_positions)
    if fraction is None:
        inner.neutral({"partial_rotary_factor": (1,)})
    # The other kinds do not look at it; where it says the same as max_position_embeddings, nothing is lost.
    inner.neutral({} if isinstance(rope, _WITH_ORIGINAL) else {"original_max_position_embeddings": (max_positions,)})
    inner.refuse_unknown()
    return rope


def read_yarn_growth(fields: Fields, rope: Rope) -> float:
    """What YaRN multiplies queries and keys by, each, where a file asks for it as `mscale_all_dim`."""
    found = {**fields.object("rope_scaling"), **fields.object("rope_parameters")}.get("mscale_all_dim")
    if not isinstance(rope, YarnRope) or not isinstance(found, int | float):
        return 1.0
    return _yarn_magnitude(rope.factor, found) if found else 1.0


def _yarn_magnitude(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


_WITH_ORIGINAL = (YarnRope, Llama3Rope, LongRope)


def context_length(rope: Rope, max_positions: int) -> int:
    """How long a sequence may be.

    Files with these kinds of scaling state the length before it; the others state the length that it makes possible.
    """
    if isinstance(rope, LinearRope | DynamicRope):
        return max(max_positions, int(max_positions * rope.factor))
    if isinstance(rope, YarnRope):
        return max(max_positions, int(rope.original_max_positions * rope.factor))
    return max_positions


# Fields that older files have beside the rope's own object.
_OUTSIDE = ("rope_theta", "original_max_position_embeddings", "partial_rotary_factor")


def _refuse_null(fields: Fields, name: str) -> None:
    if name in fields.values and not fields.has(name):
        fields.problem(f"{fields.prefix}{name}: expected a number, found null")


def _one_spelling(fields: Fields) -> tuple[str, dict[str, Any]]:
    """The rope's fields under their newest names, and the name of the object that they come from."""
    outside = {name: fields.values[name] for name in _OUTSIDE if fields.has(name)}
    fields.skip(_OUTSIDE)
    _refuse_null(fields, "rope_theta")
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


def _default(inner: Fields, base: dict[str, Any], max_positions: int) -> Rope:
    return DefaultRope(**base)


def _linear(inner: Fields, base: dict[str, Any], max_positions: int) -> Rope:
    return LinearRope(**base, factor=inner.number("factor"))


def _dynamic(inner: Fields, base: dict[str, Any], max_positions: int) -> Rope:
    if base["dims"] <= 2:
        inner.problem("rope_type dynamic: expected a head_dim of at least 4, as its exponent divides by head_dim - 2")
    return DynamicRope(**base, factor=inner.number("factor"), max_positions=max_positions)


def _yarn(inner: Fields, base: dict[str, Any], max_positions: int) -> Rope:
    original = inner.integer("original_max_position_embeddings", max_positions)
    if base["theta"] <= 1:
        found = base["theta"]
        inner.problem(f"{inner.prefix}rope_theta: yarn takes its logarithm, so expected more than 1, found {found:g}")
    # A factor that is there but null is the ratio of the two lengths.
    derived = "factor" in inner.values and not inner.has("factor")
    factor = max_positions / original if derived else inner.number("factor")
    fast = inner.number("beta_fast") if inner.has("beta_fast") else 32.0
    slow = inner.number("beta_slow") if inner.has("beta_slow") else 1.0
    mscale = inner.number("mscale", above=None) if inner.has("mscale") else 0.0
    mscale_all = inner.number("mscale_all_dim", above=None) if inner.has("mscale_all_dim") else 0.0
    if inner.has("attention_factor"):
        attention_factor = inner.number("attention_factor")
    else:
        both = mscale and mscale_all
        attention_factor = _yarn_magnitude(factor, mscale if both else 1.0)
        attention_factor /= _yarn_magnitude(factor, mscale_all) if both else 1.0
    return YarnRope(
        **base,
        factor=factor,
        original_max_positions=original,
        attention_factor=attention_factor,
        beta_fast=fast,
        beta_slow=slow,
        truncate=inner.boolean("truncate", True),
    )


def _llama3(inner: Fields, base: dict[str, Any], max_positions: int) -> Rope:
    low, high = inner.number("low_freq_factor"), inner.number("high_freq_factor")
    if low >= high and inner.has("low_freq_factor") and inner.has("high_freq_factor"):
        inner.problem(f"{inner.prefix}low_freq_factor is {low:g}, not below {inner.prefix}high_freq_factor, {high:g}")
    return Llama3Rope(
        **base,
        factor=inner.number("factor"),
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_positions=inner.integer("original_max_position_embeddings", max_positions),
    )


def _longrope(inner: Fields, base: dict[str, Any], max_positions: int) -> Rope:
    original = inner.integer("original_max_position_embeddings", max_positions, minimum=2)
    factor = inner.number("factor") if inner.has("factor") else max_positions / original
    if inner.has("attention_factor"):
        attention_factor = inner.number("attention_factor")
    else:
        attention_factor = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return LongRope(
        **base,
        short_factor=inner.numbers("short_factor", base["dims"] // 2),
        long_factor=inner.numbers("long_factor", base["dims"] // 2),
        original_max_positions=original,
        attention_factor=attention_factor,
    )


def _proportional(inner: Fields, base: dict[str, Any], max_positions: int) -> Rope:
    turning = int(inner.number("partial_rotary_factor", 1.0) * base["dims"] // 2)
    if not 1 <= turning <= base["dims"] // 2:
        inner.problem(f"{inner.prefix}partial_rotary_factor: expected a part of {base['dims']} elements that is a pair")
    return ProportionalRope(**base, turning=max(turning, 1), factor=inner.number("factor", 1.0))


_KINDS: Mapping[str, Callable[[Fields, dict[str, Any], int], Rope]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "llama3": _llama3,
    "longrope": _longrope,
    "proportional": _proportional,
}
