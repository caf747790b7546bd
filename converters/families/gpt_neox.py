"""GPT-NeoX and Pythia: attention and MLP side by side, a quarter of each head turns, q, k and v head by head.

Fields have names of their own, older files masks and frequencies among their tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.models.config import Layer, ModelConfig, Norm

from ..blocks import GROUPED_QKV, GROUPED_QKV_BIAS, GROUPED_QKV_WEIGHT, layer_norm, linear, prefixed
from ..gguf_column import STACKED_QKV, GgufColumn
from ..hf_config import Fields
from ..hf_decoder import defaults, read_attention, read_decoder, read_plain_mlp, renamed
from ..layout import Row
from ..tiny import tiny

ARCHITECTURES = ("GPTNeoXForCausalLM",)
LAYER = "gpt_neox.layers.{i}"
ROWS = (
    Row("gpt_neox.embed_in.weight", "embed.embedding", "vocab embed -> vocab embed"),
    Row("embed_out.weight", "head.kernel", "vocab embed -> embed vocab"),
    *layer_norm(f"{LAYER}.input_layernorm", "layers.{i}.attn_norm"),
    *layer_norm(f"{LAYER}.post_attention_layernorm", "layers.{i}.mlp_norm"),
    *layer_norm("gpt_neox.final_layer_norm", "final_norm"),
    *linear(f"{LAYER}.attention.query_key_value", GROUPED_QKV, GROUPED_QKV_WEIGHT, GROUPED_QKV_BIAS),
    *linear(
        f"{LAYER}.attention.dense",
        "layers.{i}.attn.o",
        "embed (heads head_dim) -> heads head_dim embed",
        "embed -> embed",
    ),
    *linear(f"{LAYER}.mlp.dense_h_to_4h", "layers.{i}.mlp.up", "ffn embed -> embed ffn", "ffn -> ffn"),
    *linear(f"{LAYER}.mlp.dense_4h_to_h", "layers.{i}.mlp.down", "embed ffn -> ffn embed", "embed -> embed"),
)
OTHER_ROWS = (prefixed(ROWS, "embed_out", "lm_head"),)
PASSENGERS = tuple(f"{LAYER}.attention.{name}" for name in ("bias", "masked_bias", "rotary_emb.inv_freq"))
DROPOUTS = ("classifier_dropout", "attention_probs_dropout_prob", "hidden_dropout_prob")
NAMES = {"rotary_pct": "partial_rotary_factor", "rotary_emb_base": "rope_theta"}
TURNING = {"rotary_pct": 0.25, "rotary_emb_base": 10000}
DEFAULTS = {
    **defaults(50432, 6144, 24576, layers=44, heads=64, positions=2048),
    **{"hidden_act": "gelu", "layer_norm_eps": 1e-5, "use_parallel_residual": True, "attention_bias": True},
}
GGUF = GgufColumn(
    "gptneox",
    epsilon="layer_norm_eps",
    rename={"rope_theta": "rotary_emb_base", "head_dim": None, "num_key_value_heads": None},
    partial="rotary_pct",
    fields={"use_parallel_residual": "use_parallel_residual"},
    present={"attention_bias": ".attn_qkv.bias"},
    fixed={"hidden_act": "gelu"},
    patterns=STACKED_QKV,
)
TINY = {
    **tiny("gpt_neox", "GPTNeoXForCausalLM", head_dim=..., num_key_value_heads=..., rms_norm_eps=..., rope_theta=...),
    **{"hidden_size": 64, "hidden_act": "gelu", "layer_norm_eps": 1e-5, "rotary_pct": 0.25, "rotary_emb_base": 10000},
    "use_parallel_residual": True,
}
VARIANTS = {
    "one after another, tied": {"use_parallel_residual": False, "tie_word_embeddings": True, "hidden_act": "gelu_new"},
    "no attention bias, half": {
        "attention_bias": False,
        "rotary_pct": 0.5,
        "rotary_emb_base": 500,
        "layer_norm_eps": 0.1,
    },
}


def config(hf: Mapping[str, Any]) -> ModelConfig:
    """The network that a config.json describes."""
    fields = Fields(renamed({name: hf[name] for name in hf if name not in NAMES.values()}, NAMES), DEFAULTS)
    # transformers does not look at what others call them, though some of its versions wrote both.
    inside = {**fields.object("rope_parameters"), **fields.object("rope_scaling")}
    for name, other in NAMES.items():
        used = inside.get(other, hf.get(name, TURNING[name]))
        if hf.get(other) not in (None, used):
            fields.problem(
                f"{other} is {hf[other]!r} but {name} {used!r}, where transformers looks: remove the wrong one"
            )
    norm = Norm(epsilon=fields.number("layer_norm_eps"), kind="layer", bias=True)
    attn, mlp = read_attention(fields, fraction=TURNING["rotary_pct"]), read_plain_mlp(fields, bias=True)
    parallel = fields.boolean("use_parallel_residual")
    layer = Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=mlp, parallel=parallel)
    layers = [layer] * fields.integer("num_hidden_layers")
    return read_decoder(fields, "gpt_neox", layers, norm, ignored=DROPOUTS)
