"""StarCoder 2: Llama with layer norms, a plain MLP, and biases in all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig, Norm

from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, NORM_BIASES, PRE_NORMS, ROPE_BUFFERS, linear
from ..gguf_column import GgufColumn
from ..hf_config import Fields
from ..hf_decoder import defaults, read_attention, read_decoder, read_plain_mlp, read_window
from ..tiny import tiny

ARCHITECTURES = ("Starcoder2ForCausalLM",)
MLP = (
    *linear("model.layers.{i}.mlp.c_fc", "layers.{i}.mlp.up", "ffn embed -> embed ffn", "ffn -> ffn"),
    *linear("model.layers.{i}.mlp.c_proj", "layers.{i}.mlp.down", "embed ffn -> ffn embed", "embed -> embed"),
)
ROWS = (*EMBEDDING_AND_HEAD, *PRE_NORMS, *NORM_BIASES, *ATTENTION, *MLP)
PASSENGERS = ROPE_BUFFERS
DEFAULTS = {
    **defaults(49152, 3072, 12288, layers=30, heads=24, kv_heads=2, positions=4096),
    **{"hidden_act": "gelu_pytorch_tanh", "norm_epsilon": 1e-5, "use_bias": True, "tie_word_embeddings": True},
}
GGUF = GgufColumn(
    "starcoder2",
    epsilon="norm_epsilon",
    present={"use_bias": ".attn_q.bias"},
    fixed={"hidden_act": "gelu_pytorch_tanh"},
)
TINY = {
    **tiny("starcoder2", "Starcoder2ForCausalLM", head_dim=..., rms_norm_eps=..., tie_word_embeddings=True),
    **{"hidden_act": "gelu_pytorch_tanh", "norm_epsilon": 1e-5, "use_bias": True, "sliding_window": 9},
}
VARIANTS = {
    "no biases, untied": {"use_bias": False, "tie_word_embeddings": False, "hidden_act": "gelu"},
    "no window": {"sliding_window": None, "norm_epsilon": 0.1},
}
IGNORED = ("residual_dropout", "embedding_dropout", "mlp_type", "norm_type")


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(hf, DEFAULTS)
    bias = fields.boolean("use_bias")
    norm = Norm(epsilon=fields.number("norm_epsilon"), kind="layer", bias=True)
    attn = read_attention(fields, qkv_bias=bias, output_bias=bias, window=read_window(fields))
    layer = Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=read_plain_mlp(fields, bias=bias))
    layers = [layer] * fields.integer("num_hidden_layers")
    return read_decoder(fields, "starcoder2", layers, norm, ignored=IGNORED)
