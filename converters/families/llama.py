"""Llama 1 to 3.3, SmolLM2 and their many kin.

Nothing here is unusual: others are described by how they differ from it. `attention_bias` gives a bias to all four
projections of attention. `pretraining_tp` only ever changed the order of a sum, and transformers ignores it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Attention, Layer, Mlp, ModelConfig, Norm

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, GATED_MLP, PRE_NORMS, ROPE_BUFFERS
from ..hf_config import ACTIVATIONS, HARMLESS, NEUTRAL, Fields
from ..hf_rope import context_length, read_rope

ARCHITECTURES = ("LlamaForCausalLM",)
ROWS = (*EMBEDDING_AND_HEAD, *PRE_NORMS, *ATTENTION, *GATED_MLP)
PASSENGERS = ROPE_BUFFERS
TIED = ("lm_head.weight", "model.embed_tokens.weight")
TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "hidden_act": "silu",
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes; absent fields have the defaults of transformers' LlamaConfig.

    Raises:
        ZooError: fields are wrong, contradict each other or are unknown; all of them are listed.
    """
    fields = Fields(hf)
    vocab, embed = fields.integer("vocab_size", 32000), fields.integer("hidden_size", 4096)
    max_positions = fields.integer("max_position_embeddings", 2048)
    attn = _attention(fields, embed, max_positions)
    mlp = Mlp(
        ffn=fields.integer("intermediate_size", 11008),
        activation=fields.choice("hidden_act", ACTIVATIONS, "silu"),
        bias=fields.boolean("mlp_bias", False),
    )
    norm = Norm(epsilon=fields.number("rms_norm_eps", 1e-6))
    layer = Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=mlp)
    result = ModelConfig(
        vocab=vocab,
        embed=embed,
        layers=(layer,) * fields.integer("num_hidden_layers", 32),
        final_norm=norm,
        tied_head=fields.boolean("tie_word_embeddings", False),
        max_positions=context_length(attn.rope, max_positions),
    )
    fields.token_id("pad_token_id", vocab)
    fields.neutral(NEUTRAL)
    fields.skip(HARMLESS | {"pretraining_tp"})
    fields.refuse_unknown()
    fields.finish("config.json does not describe a llama that can be run exactly:")
    return result


def _attention(fields: Fields, embed: int, max_positions: int) -> Attention:
    heads = fields.integer("num_attention_heads", 32)
    kv_heads = fields.integer("num_key_value_heads") if fields.has("num_key_value_heads") else heads
    if heads % kv_heads:
        fields.problem(f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}")
    if fields.has("head_dim"):
        head_dim = fields.integer("head_dim")
    else:
        head_dim = max(embed // heads, 1)
        if embed % heads:
            fields.problem(f"hidden_size {embed} is not a multiple of num_attention_heads {heads}")
    if head_dim % 2:
        fields.problem(f"head_dim {head_dim} is odd, but a rotary embedding turns pairs")
    fields.skip(["num_key_value_heads", "head_dim"])
    bias = fields.boolean("attention_bias", False)
    return Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        rope=read_rope(fields, head_dim, max_positions),
        qkv_bias=bias,
        output_bias=bias,
    )
