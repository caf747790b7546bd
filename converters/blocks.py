"""Rows that families share: the tensors of the usual decoder under the names most checkpoints give them.

A row binds only what the model has: the rows of biases do nothing in a model without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from .layout import Row

Patterns = str | tuple[str, ...]


def linear(source: str, native: str | tuple[str, ...], weight: Patterns, bias: Patterns) -> tuple[Row, Row]:
    """The rows of a projection's weight and of its bias, which many models do not have."""
    names = (native,) if isinstance(native, str) else native
    kernels, biases = (tuple(f"{name}.{part}" for name in names) for part in ("kernel", "bias"))
    if isinstance(native, str):
        return Row(f"{source}.weight", kernels[0], weight), Row(f"{source}.bias", biases[0], bias)
    return Row(f"{source}.weight", kernels, weight), Row(f"{source}.bias", biases, bias)


def layer_norm(source: str, native: str) -> tuple[Row, Row]:
    """The rows of a norm's scale and bias."""
    scale = Row(f"{source}.weight", f"{native}.scale", "embed -> embed")
    return scale, Row(f"{source}.bias", f"{native}.bias", "embed -> embed")


def prefixed(rows: Iterable[Row], old: str, new: str) -> tuple[Row, ...]:
    """The rows with another beginning of the source's names, where they have the old one."""
    return tuple(
        replace(row, source=new + row.source.removeprefix(old)) if row.source.startswith(old) else row for row in rows
    )


def renamed_rows(rows: Iterable[Row], names: Mapping[str, str]) -> tuple[Row, ...]:
    """The rows with these parts of the source's names replaced, each by whole words between dots."""

    def renamed(source: str) -> str:
        for old, new in names.items():
            source = f".{source}.".replace(f".{old}.", f".{new}.")[1:-1]
        return source

    return tuple(replace(row, source=renamed(row.source)) for row in rows)


EMBEDDING_AND_HEAD = (
    Row("model.embed_tokens.weight", "embed.embedding", "vocab embed -> vocab embed"),
    Row("model.norm.weight", "final_norm.scale", "embed -> embed"),
    Row("lm_head.weight", "head.kernel", "vocab embed -> embed vocab"),
)

PRE_NORMS = (
    Row(
        "model.layers.{i}.input_layernorm.weight",
        "layers.{i}.attn_norm.scale",
        "embed -> embed",
    ),
    Row(
        "model.layers.{i}.post_attention_layernorm.weight",
        "layers.{i}.mlp_norm.scale",
        "embed -> embed",
    ),
)

ATTENTION = (
    Row(
        "model.layers.{i}.self_attn.q_proj.weight",
        "layers.{i}.attn.q.kernel",
        "(heads head_dim) embed -> embed heads head_dim",
    ),
    Row(
        "model.layers.{i}.self_attn.k_proj.weight",
        "layers.{i}.attn.k.kernel",
        "(kv_heads head_dim) embed -> embed kv_heads head_dim",
    ),
    Row(
        "model.layers.{i}.self_attn.v_proj.weight",
        "layers.{i}.attn.v.kernel",
        "(kv_heads head_dim) embed -> embed kv_heads head_dim",
    ),
    Row(
        "model.layers.{i}.self_attn.o_proj.weight",
        "layers.{i}.attn.o.kernel",
        "embed (heads head_dim) -> heads head_dim embed",
    ),
    Row(
        "model.layers.{i}.self_attn.q_proj.bias",
        "layers.{i}.attn.q.bias",
        "(heads head_dim) -> heads head_dim",
    ),
    Row(
        "model.layers.{i}.self_attn.k_proj.bias",
        "layers.{i}.attn.k.bias",
        "(kv_heads head_dim) -> kv_heads head_dim",
    ),
    Row(
        "model.layers.{i}.self_attn.v_proj.bias",
        "layers.{i}.attn.v.bias",
        "(kv_heads head_dim) -> kv_heads head_dim",
    ),
    Row(
        "model.layers.{i}.self_attn.o_proj.bias",
        "layers.{i}.attn.o.bias",
        "embed -> embed",
    ),
)

GATED_MLP = (
    Row(
        "model.layers.{i}.mlp.gate_proj.weight",
        "layers.{i}.mlp.gate.kernel",
        "ffn embed -> embed ffn",
    ),
    Row(
        "model.layers.{i}.mlp.up_proj.weight",
        "layers.{i}.mlp.up.kernel",
        "ffn embed -> embed ffn",
    ),
    Row(
        "model.layers.{i}.mlp.down_proj.weight",
        "layers.{i}.mlp.down.kernel",
        "embed ffn -> ffn embed",
    ),
    Row("model.layers.{i}.mlp.gate_proj.bias", "layers.{i}.mlp.gate.bias", "ffn -> ffn"),
    Row("model.layers.{i}.mlp.up_proj.bias", "layers.{i}.mlp.up.bias", "ffn -> ffn"),
    Row(
        "model.layers.{i}.mlp.down_proj.bias",
        "layers.{i}.mlp.down.bias",
        "embed -> embed",
    ),
)

# Older checkpoints carry the rotary frequencies as buffers; the forward pass computes them from the configuration.
ROPE_BUFFERS = ("model.layers.{i}.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq")

QK_NORMS = (
    Row(
        "model.layers.{i}.self_attn.q_norm.weight",
        "layers.{i}.attn.q_norm.scale",
        "head_dim -> head_dim",
    ),
    Row(
        "model.layers.{i}.self_attn.k_norm.weight",
        "layers.{i}.attn.k_norm.scale",
        "head_dim -> head_dim",
    ),
)

# Norms before and after both halves of a block, as Gemma 2 names them.
SANDWICH_NORMS = (
    PRE_NORMS[0],
    Row(
        "model.layers.{i}.post_attention_layernorm.weight",
        "layers.{i}.attn_post_norm.scale",
        "embed -> embed",
    ),
    Row(
        "model.layers.{i}.pre_feedforward_layernorm.weight",
        "layers.{i}.mlp_norm.scale",
        "embed -> embed",
    ),
    Row(
        "model.layers.{i}.post_feedforward_layernorm.weight",
        "layers.{i}.mlp_post_norm.scale",
        "embed -> embed",
    ),
)

# The biases of norms, for families that have layer norms under the usual names.
NORM_BIASES = (
    Row("model.layers.{i}.input_layernorm.bias", "layers.{i}.attn_norm.bias", "embed -> embed"),
    Row("model.layers.{i}.post_attention_layernorm.bias", "layers.{i}.mlp_norm.bias", "embed -> embed"),
    Row("model.norm.bias", "final_norm.bias", "embed -> embed"),
)

# Queries, keys and values of each key head and its group of query heads, one after another.
GROUPED_QKV = tuple(f"layers.{{i}}.attn.{name}" for name in ("q", "k", "v"))
GROUPED_QKV_WEIGHT = (
    "(kv_heads [group head_dim]) embed -> embed (kv_heads group) head_dim",
    "(kv_heads [head_dim]) embed -> embed kv_heads head_dim",
    "(kv_heads [head_dim]) embed -> embed kv_heads head_dim",
)
GROUPED_QKV_BIAS = (
    "(kv_heads [group head_dim]) -> (kv_heads group) head_dim",
    "(kv_heads [head_dim]) -> kv_heads head_dim",
    "(kv_heads [head_dim]) -> kv_heads head_dim",
)

# Gate and up, one below the other.
GATE_UP = Row(
    "model.layers.{i}.mlp.gate_up_proj.weight",
    ("layers.{i}.mlp.gate.kernel", "layers.{i}.mlp.up.kernel"),
    ("[ffn] embed -> embed ffn",) * 2,
)

# Norms after both halves of a block and not before, as OLMo 2 names them.
POST_NORMS = (SANDWICH_NORMS[1], SANDWICH_NORMS[3])


def _qk_norms(q: str, k: str) -> tuple[Row, ...]:
    names = {"q": q, "k": k}
    return tuple(
        Row(f"model.layers.{{i}}.self_attn.{name}_norm.weight", f"layers.{{i}}.attn.{name}_norm.scale", pattern)
        for name, pattern in names.items()
    )


# One norm over all heads together, and a norm of its own for each head.
JOINT_QK_NORMS = _qk_norms("(heads head_dim) -> heads head_dim", "(kv_heads head_dim) -> kv_heads head_dim")
OWN_QK_NORMS = _qk_norms("heads head_dim -> heads head_dim", "kv_heads head_dim -> kv_heads head_dim")


def expert_rows(prefix: str, router: str, gate: str, up: str, down: str) -> tuple[Row, ...]:
    """A router, and experts that are tensors of their own, numbered in their names.

    Args:
        prefix: the block's name in the source.
        router, gate, up, down: the names in it of the router and of an expert's matrices.
    """
    expert = f"{prefix}.experts.{{e}}"
    return (
        Row(f"{prefix}.{router}.weight", "layers.{i}.mlp.router.kernel", "experts embed -> embed experts"),
        Row(f"{expert}.{gate}.weight", "layers.{i}.mlp.experts.gate.kernel", "experts ffn embed -> experts embed ffn"),
        Row(f"{expert}.{up}.weight", "layers.{i}.mlp.experts.up.kernel", "experts ffn embed -> experts embed ffn"),
        Row(f"{expert}.{down}.weight", "layers.{i}.mlp.experts.down.kernel", "experts embed ffn -> experts ffn embed"),
    )


def fused_expert_rows(gate_up: str, down: str, native: str = "layers.{i}.mlp") -> tuple[Row, ...]:
    """All experts' gates and ups in one tensor, their downs in another."""
    return (
        Row(
            gate_up,
            (f"{native}.experts.gate.kernel", f"{native}.experts.up.kernel"),
            ("experts [ffn] embed -> experts embed ffn",) * 2,
        ),
        Row(down, f"{native}.experts.down.kernel", "experts embed ffn -> experts ffn embed"),
    )


def transposed_expert_rows(prefix: str) -> tuple[Row, ...]:
    """A router, and all experts' gates and ups in one tensor, their downs in another, each the other way round."""
    return (
        Row(f"{prefix}.router.weight", "layers.{i}.mlp.router.kernel", "experts embed -> embed experts"),
        Row(
            f"{prefix}.experts.gate_up_proj",
            ("layers.{i}.mlp.experts.gate.kernel", "layers.{i}.mlp.experts.up.kernel"),
            ("experts embed [ffn] -> experts embed ffn",) * 2,
        ),
        Row(
            f"{prefix}.experts.down_proj",
            "layers.{i}.mlp.experts.down.kernel",
            "experts ffn embed -> experts ffn embed",
        ),
    )


EXPERTS = expert_rows("model.layers.{i}.mlp", "gate", "gate_proj", "up_proj", "down_proj")
# As transformers holds them in memory, and some tools write them.
FUSED_EXPERTS = (
    EXPERTS[0],
    *fused_expert_rows("model.layers.{i}.mlp.experts.gate_up_proj", "model.layers.{i}.mlp.experts.down_proj"),
)

# An expert, or several as one, that every token goes through beside those it chooses.
SHARED_EXPERTS = (
    Row(
        "model.layers.{i}.mlp.shared_experts.gate_proj.weight",
        "layers.{i}.mlp.shared.gate.kernel",
        "ffn embed -> embed ffn",
    ),
    Row(
        "model.layers.{i}.mlp.shared_experts.up_proj.weight",
        "layers.{i}.mlp.shared.up.kernel",
        "ffn embed -> embed ffn",
    ),
    Row(
        "model.layers.{i}.mlp.shared_experts.down_proj.weight",
        "layers.{i}.mlp.shared.down.kernel",
        "embed ffn -> ffn embed",
    ),
)
SHARED_EXPERT_BIASES = tuple(
    Row(
        f"model.layers.{{i}}.mlp.shared_experts.{name}_proj.bias", f"layers.{{i}}.mlp.shared.{name}.bias", f"{a} -> {a}"
    )
    for name, a in {"gate": "ffn", "up": "ffn", "down": "embed"}.items()
)
SELECTION_BIAS = Row(
    "model.layers.{i}.mlp.gate.e_score_correction_bias",
    "layers.{i}.mlp.router.selection_bias",
    "experts -> experts",
)
_LATENT, _NATIVE = "model.layers.{i}.self_attn", "layers.{i}.attn"
LATENT_ATTENTION = (
    Row(f"{_LATENT}.q_proj.weight", f"{_NATIVE}.q.kernel", "(heads head_dim) embed -> embed heads head_dim"),
    *linear(
        f"{_LATENT}.q_a_proj",
        f"{_NATIVE}.q_down",
        "query_latent embed -> embed query_latent",
        "query_latent -> query_latent",
    ),
    Row(f"{_LATENT}.q_a_layernorm.weight", f"{_NATIVE}.q_norm.scale", "query_latent -> query_latent"),
    Row(
        f"{_LATENT}.q_b_proj.weight",
        f"{_NATIVE}.q_up.kernel",
        "(heads head_dim) query_latent -> query_latent heads head_dim",
    ),
    *linear(
        f"{_LATENT}.kv_a_proj_with_mqa",
        (f"{_NATIVE}.kv_down", f"{_NATIVE}.k_shared"),
        ("[latent] embed -> embed latent", "[head_dim] embed -> embed head_dim"),
        ("[latent] -> latent", "[head_dim] -> head_dim"),
    ),
    Row(f"{_LATENT}.kv_a_layernorm.weight", f"{_NATIVE}.kv_norm.scale", "latent -> latent"),
    Row(
        f"{_LATENT}.kv_b_proj.weight",
        (f"{_NATIVE}.k_up.kernel", f"{_NATIVE}.v_up.kernel"),
        ("(heads [head_dim]) latent -> latent heads head_dim",) * 2,
    ),
    *linear(f"{_LATENT}.o_proj", f"{_NATIVE}.o", "embed (heads head_dim) -> heads head_dim embed", "embed -> embed"),
)
# Layers that predict further tokens, which come after the last of the network's own.
LAYERS_AFTER = ("model.layers.{after}.*",)
