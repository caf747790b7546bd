"""Names of the values inside a block.

Whoever traces the block finds them under these: a comparison with another implementation looks at each, and a policy
of rematerialisation says by them what is kept. In a compiled program they cost nothing.
"""

from __future__ import annotations

from typing import Literal, TypeVar

import jax
from jax.ad_checkpoint import checkpoint_name

Name = Literal[
    # Outputs of the parts of a block.
    "attn_norm",
    "attn",
    "attn_post_norm",
    "mlp_norm",
    "mlp",
    "mlp_post_norm",
    # Of attention: projections, their norms, what is attended with (turned, normalised), and the result before `o`.
    "q",
    "k",
    "v",
    "q_norm",
    "k_norm",
    "queries",
    "keys",
    "values",
    "attended",
    # Of latent attention, beside those.
    "q_latent",
    "kv_latent",
    # Of short convolutions and linear attention: what is mixed along the sequence, before and after that.
    "mixed_in",
    "mixed",
    # Of MLPs.
    "gate",
    "up",
    # Of mixtures of experts: [tokens, k] weights and experts.
    "router_logits",
    "router_weights",
    "router_experts",
    "experts",
]
T = TypeVar("T", bound=jax.Array)


def named(value: T, name: Name) -> T:
    """The value itself, called so."""
    return checkpoint_name(value, name)
