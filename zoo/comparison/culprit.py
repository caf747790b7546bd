"""Where two implementations part: the first value that differs though what it is made of agrees, and its tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from zoo.models.config import ModelConfig, Rope, rope_of

from .lockstep import OUTPUT, Comparison

HEAD = "head"
# What each value in a block is made by, and of: parameters by where their names begin, other values, and in words.
MADE: Mapping[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "attn_norm": (("attn_norm.",), (), "the norm before attention"),
    "q_latent": (("attn.q_down.", "attn.q_norm."), ("attn_norm",), "the vector that queries come from"),
    "q": (("attn.q.", "attn.q_up."), ("attn_norm", "q_latent"), "the projection of queries"),
    "q_norm": (("attn.q_norm.",), ("q",), "the norm of queries"),
    "queries": ((), ("q_norm", "q"), "the rotation of queries, and the scale of scores"),
    "kv_latent": (("attn.kv_down.", "attn.kv_norm."), ("attn_norm",), "the vector that keys and values come from"),
    "k": (("attn.k.",), ("attn_norm",), "the projection of keys"),
    "v": (("attn.v.",), ("attn_norm",), "the projection of values"),
    "k_norm": (("attn.k_norm.",), ("k",), "the norm of keys"),
    "keys": (("attn.k_shared.", "attn.k_up."), ("k_norm", "k", "kv_latent"), "the rotation of keys"),
    "values": (("attn.v_norm.", "attn.v_up."), ("v", "kv_latent"), "the values of attention"),
    "attended": (("attn.sinks",), ("queries", "keys", "values"), "attention itself: mask, window, soft cap, sinks"),
    "attn": (("attn.",), ("attended",), "the output of attention"),
    "attn_post_norm": (("attn_post_norm.",), ("attn",), "the norm after attention"),
    "mlp_norm": (("mlp_norm.",), ("attn_post_norm", "attn"), "the norm before the MLP, or the sum before it"),
    "gate": (("mlp.gate.", "mlp.shared.gate."), ("mlp_norm",), "the gate of the MLP"),
    "up": (("mlp.up.", "mlp.shared.up."), ("mlp_norm",), "the upward projection of the MLP"),
    "router_logits": (("mlp.router.", "beside.mlp.router."), ("mlp_norm",), "the router"),
    "router": (("mlp.router.", "beside.mlp.router."), ("router_logits", "mlp_norm"), "the router's choice and weights"),
    "mlp": (("mlp.", "beside.mlp."), ("gate", "up", "router", "mlp_norm"), "the output of the MLP"),
    "mlp_post_norm": (("mlp_post_norm.",), ("mlp",), "the norm after the MLP"),
    OUTPUT: (("scale", "input.", "beside.", "mlp_norm."), ("mlp_post_norm", "mlp"), "the sum at the end of the block"),
}


@dataclass(frozen=True)
class Culprit:
    """The first value that differs.

    Attributes:
        stage: the block, `embedding` or `head`.
        value: the value in it.
        what: the same in words.
        paths: the native paths of the parameters that make it, given what agrees.
        rms: by how much it differs, as a part of its root mean square.
        others: how many other blocks differ by themselves.
    """

    stage: str
    value: str
    what: str
    paths: tuple[str, ...]
    rms: float
    others: int


def find_culprit(
    comparison: Comparison, config: ModelConfig, paths: Iterable[str], head_differs: bool
) -> Culprit | None:
    """The first value that differs more than it may; None where every part by itself agrees.

    Args:
        paths: every native path of the network.
        head_differs: whether logits do.
    """
    every = list(paths)
    wrong = [name for name, stage in comparison.stages.items() if any(v.excess > 1 for v in stage.alone.values())]
    if not wrong:
        return (
            Culprit(HEAD, "logits", "the last norm and the head", tuple(_head(config)), 0.0, 0)
            if head_differs
            else None
        )
    stage = comparison.stages[wrong[0]]
    value = next(name for name, found in stage.alone.items() if found.excess > 1)
    rms, others = stage.alone[value].difference.rms, len(wrong) - 1
    if wrong[0] == "embedding":
        beginnings = ("embed.", "positions.", "layer_inputs.")
        return Culprit(wrong[0], value, "the embedding", _among(every, "", beginnings), rms, others)
    agreeing = frozenset(name for name, found in stage.alone.items() if found.excess <= 1)
    owners = tuple(dict.fromkeys(_made_by(value, agreeing)))
    prefix = wrong[0] + "."
    what = MADE[value][2] if value in MADE else value
    if value in ("queries", "keys"):
        what += f" ({_rotation(rope_of(config.layers[int(wrong[0].split('.')[1])].attn))})"
    return Culprit(wrong[0], value, what, _among(every, prefix, owners), rms, others)


def _head(config: ModelConfig) -> Iterator[str]:
    yield "final_norm.scale"
    yield "embed.embedding" if config.tied_head else "head.kernel"


def _among(paths: list[str], prefix: str, beginnings: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(path for path in paths if path.startswith(prefix) and path.removeprefix(prefix).startswith(beginnings))


def _made_by(value: str, agreeing: frozenset[str]) -> Iterator[str]:
    """Where the names of the parameters begin that make a value of those that agree."""
    own, inputs, _ = MADE.get(value, ((), (), ""))
    yield from own
    for name in inputs:
        if name not in agreeing:
            yield from _made_by(name, agreeing)


def _rotation(rope: Rope | None) -> str:
    return "positions do not turn" if rope is None else f"{rope.kind}, theta {rope.theta:g}, {rope.dims} elements"
