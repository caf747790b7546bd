"""What happens inside a block of the reference, recorded: what its parts return, and what attention is given."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from typing import Any

import numpy as np

from .native import chosen_weights
from .side import Floats

# Bytes of scores that attention makes at a time.
SCORE_BYTES = 256 << 20
IMPLEMENTATION = "zoo_comparison"

# Values by name, of the block that is running.
recorded: ContextVar[dict[str, Any]] = ContextVar("recorded")


def record(name: str, module: Any, args: Any, output: Any) -> None:
    """Keeps what a part returned, the first time that it is called in a block."""
    import torch

    found = recorded.get()
    if name != "router":
        # A copy, since some models add to it in place.
        found.setdefault(name, (output[0] if isinstance(output, tuple) else output).clone())
        return
    parts = output if isinstance(output, tuple) else (output,)
    chosen = next((part for part in parts if not torch.is_floating_point(part)), None)
    if chosen is None:
        if len(parts) == 1:
            found["router_logits"] = parts[0]
        else:
            # Weights of all experts, 0 for those not chosen.
            found.update([("router", part) for part in parts if (part == 0).any()])
        return
    weights = next((part for part in parts if part is not chosen and part.shape == chosen.shape), None)
    count = max(part.shape[-1] for part in parts)
    if weights is not None and count > weights.shape[-1]:
        found["router"] = chosen_weights(to_numpy(weights), chosen.numpy(), count)


def register_attention() -> None:
    """Has attention of every family record what it is given and what it makes of that."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register(IMPLEMENTATION, _attention)
    AttentionMaskInterface.register(IMPLEMENTATION, eager_mask)


def _attention(module: Any, query: Any, key: Any, value: Any, mask: Any, **options: Any) -> tuple[Any, None]:
    """The family's own plain attention, for some queries at a time; scores are rows by themselves."""
    import torch

    eager = sys.modules[type(module).__module__].eager_attention_forward
    scale = options.get("scaling")
    found = recorded.get({})
    found["queries"] = query * (query.shape[-1] ** -0.5 if scale is None else scale)
    found["keys"], found["values"] = key, value
    rows, heads, queries = query.shape[:3]
    step = max(1, SCORE_BYTES // (4 * rows * heads * key.shape[2]))
    parts: list[Any] = []
    for start in range(0, queries, step):
        some = slice(start, start + step)
        masked = mask[:, :, some] if torch.is_tensor(mask) else mask
        parts.append(eager(module, query[:, :, some], key, value, masked, **options)[0])
    attended = torch.cat(parts, dim=1)
    found["attended"] = attended.reshape(rows, queries, -1)
    return attended, None


def arranged(value: Any, rows: int, seq: int) -> Floats | None:
    """A value as [rows, seq, features]; heads come before the sequence in some, and some have one row a token."""
    array = value if isinstance(value, np.ndarray) else to_numpy(value)
    if array.ndim == 4 and array.shape[1] != seq and array.shape[2] == seq:
        array = array.swapaxes(1, 2)
    if array.size % (rows * seq) or array.shape[0] not in (rows, rows * seq):
        return None
    return array.reshape(rows, seq, -1)


def to_numpy(tensor: Any) -> Floats:
    return tensor.detach().float().numpy()
