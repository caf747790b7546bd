"""Names of the values inside a block.

Whoever traces the block finds them under these: a comparison with another implementation looks at each, and a policy
of rematerialisation says by them what is kept. In a compiled program they cost nothing.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, TypeVar, get_args

import jax
from jax.ad_checkpoint import checkpoint_name

# In the order of their making.
Name = Literal[
    "attn_norm",
    # Of attention: projections (by way of a vector in latent attention), their norms, and what is attended with.
    "q_latent",
    "q",
    "q_norm",
    "queries",
    "kv_latent",
    "k",
    "v",
    "k_norm",
    "keys",
    "values",
    "attended",
    # Of short convolutions and linear attention: what is mixed along the sequence, before and after that.
    "mixed_in",
    "mixed",
    "attn",
    "attn_post_norm",
    "mlp_norm",
    # Of MLPs.
    "gate",
    "up",
    # Of mixtures of experts: [tokens, k] weights and experts.
    "router_logits",
    "router_weights",
    "router_experts",
    "experts",
    "mlp",
    "mlp_post_norm",
]
NAMES: tuple[Name, ...] = get_args(Name)
T = TypeVar("T", bound=jax.Array)
_collected: ContextVar[dict[str, jax.Array] | None] = ContextVar("collected", default=None)


def named(value: T, name: Name) -> T:
    """The value itself, called so."""
    value = checkpoint_name(value, name)
    found = _collected.get()
    if found is not None:
        found.setdefault(name, value)
    return value


@contextmanager
def collected() -> Generator[dict[str, jax.Array]]:
    """Within it, values that are named come into this dictionary; of a name that occurs twice, the first.

    They belong to the program that is being traced, which has to return those that are wanted.
    """
    found: dict[str, jax.Array] = {}
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)
