"""Nemotron: layer norms with 1 + scale, a plain MLP with a squared ReLU, and half of each head turns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig, Norm

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, GATED_MLP, NORM_BIASES, PRE_NORMS, ROPE_BUFFERS
from ..gguf_column import BIASES, GgufColumn
from ..hf_config import Fields
from ..hf_decoder import defaults, read_attention, read_decoder, read_plain_mlp
from ..tiny import tiny

ARCHITECTURES = ("NemotronForCausalLM",)
# A gated MLP's rows without the gate's bind what a plain one has.
ROWS = (*EMBEDDING_AND_HEAD, *PRE_NORMS, *NORM_BIASES, *ATTENTION, *GATED_MLP)
PASSENGERS = ROPE_BUFFERS
DEFAULTS = {
    **defaults(256000, 6144, 24576, heads=48, positions=4096),
    **{"hidden_act": "relu2", "norm_eps": 1e-5, "attention_bias": False, "mlp_bias": False},
}
GGUF = GgufColumn(
    "nemotron", epsilon="norm_eps", partial="partial_rotary_factor", present=BIASES, fixed={"hidden_act": "relu2"}
)
TINY = {
    **tiny("nemotron", "NemotronForCausalLM", hidden_act="relu2", rms_norm_eps=..., norm_eps=1e-5),
    "partial_rotary_factor": 0.5,
}
VARIANTS = {
    "biases, tied": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "norm_eps": 0.1},
    "all of a head": {"partial_rotary_factor": 1.0, "hidden_act": "gelu", "head_dim": None},
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    norm = Norm(epsilon=fields.number("norm_eps"), kind="layer", offset=1.0, bias=True)
    attn = read_attention(fields, fraction=0.5)
    layer = Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=read_plain_mlp(fields, bias=fields.boolean("mlp_bias")))
    layers = [layer] * fields.integer("num_hidden_layers")
    return read_decoder(fields, "nemotron", layers, norm, ignored=["kv_channels"])
