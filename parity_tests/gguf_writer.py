"""GGUF files of Hugging Face models, written after the conventions of llama.cpp's converter.

Nothing of it looks at the columns that read them: names are those of the `gguf` library, arithmetic and keys those of
`convert_hf_to_gguf.py`. Tensors are float32.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import (
    MODEL_ARCH_NAMES,
    ExpertGatingFuncType,
    GGMLQuantizationType,
    GGUFWriter,
    RopeScalingType,
    TokenType,
    get_tensor_name_map,
)
from gguf.quants import quantize

# Architectures by model_type, where the names differ.
ARCHITECTURES: Mapping[str, str] = {
    "mixtral": "llama",
    "gemma3_text": "gemma3",
    "gemma4_text": "gemma4",
    "gpt_neox": "gptneox",
    "cohere": "command-r",
    "qwen2_moe": "qwen2moe",
    "qwen3_moe": "qwen3moe",
    "glm4_moe": "glm4moe",
    "olmo3": "olmo2",
    "llama4_text": "llama4",
    "qwen3_next": "qwen3next",
    "qwen3_5_text": "qwen35",
    "ministral3": "mistral3",
    "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2",
}
# Those whose queries and keys llama.cpp rotates as neighbouring pairs, though their checkpoints have halves.
PERMUTED = ("llama", "mixtral", "granite", "granitemoe", "smollm3", "ministral3")
# Those whose norms multiply by 1 + weight, which the converter adds.
ONE_ADDED = ("gemma", "gemma2", "gemma3_text", "nemotron", "qwen3_next", "qwen3_5_text")
EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(.*)")
HEAD_NORM = re.compile(r"(.*\.[qk]_layernorm)\.norms\.(\d+)(\.weight)")

Tensor = np.ndarray[Any, Any]


def write_gguf(path: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Path:
    """Writes the file of a config.json and the tensors of its checkpoint.

    With the field `older`, as converters did before they took some tensors apart and wrote groups of experts; with
    the field `mxfp4` experts are in blocks of four bits.
    """
    model_type = config["model_type"]
    name = ARCHITECTURES.get(model_type, model_type.replace("_", "-") if model_type == "gpt_oss" else model_type)
    architecture = next(arch for arch, known in MODEL_ARCH_NAMES.items() if known == name)
    writer = GGUFWriter(path, name)
    _add_metadata(writer, config)
    _add_vocabulary(writer, config)
    names = get_tensor_name_map(architecture, _blocks(config))
    for source, tensor in _modified(model_type, config, tensors):
        target = names.get_name(source, (".weight", ".bias")) or _other_names(source)
        assert target is not None, f"llama.cpp has no tensor for {source} of {name}"
        values = np.ascontiguousarray(tensor, np.float32)
        if config.get("mxfp4") and target.endswith("_exps.weight"):
            kind = GGMLQuantizationType.MXFP4
            writer.add_tensor(target, quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(target, values)
    for target, tensor in _rope_tensors(config):
        writer.add_tensor(target, tensor.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _other_names(source: str) -> str | None:
    """Names that the converter gives itself, where the library's table does not lead to them."""
    if found := re.fullmatch(r"model\.layers\.(\d+)\.router\.(scale|per_expert_scale)", source):
        return f"blk.{found[1]}.{'ffn_gate_inp' if found[2] == 'scale' else 'ffn_down_exps'}.scale"
    found = re.fullmatch(r"model\.layers\.(\d+)\.linear_attn\.in_proj_(qkv|z)\.weight", source)
    return f"blk.{found[1]}.attn_{'qkv' if found[2] == 'qkv' else 'gate'}.weight" if found else None


def _blocks(config: Mapping[str, Any]) -> int:
    """Layers that predict further tokens are blocks of a file, but for those that the converter leaves out."""
    further = config.get("num_nextn_predict_layers", 0) if config["model_type"] == "glm4_moe" else 0
    return config.get("num_hidden_layers", config.get("n_layer")) + further


# ------------------------------------------------------------------------------------------------------- tensors


def _modified(
    model_type: str, config: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> Iterator[tuple[str, Tensor]]:
    """Tensors as the converter gives them to the writer, under Hugging Face names of one for each of GGUF's."""
    heads = config.get("num_attention_heads", config.get("n_head"))
    kv_heads = config.get("num_key_value_heads") or config.get("num_kv_heads") or heads
    if model_type == "falcon" and not config.get("new_decoder_architecture"):
        kv_heads = 1 if config.get("multi_query", True) else heads
    stacks: dict[str, dict[int, Tensor]] = {}
    for name, tensor in tensors.items():
        if model_type == "gpt2" and re.search(r"\.(c_attn|c_proj|c_fc)\.weight$", name):
            yield name, tensor.T
        elif model_type in PERMUTED and re.search(r"\.[qk]_proj\.(weight|bias)$", name):
            yield name, permute(tensor, heads if ".q_proj." in name else kv_heads)
        elif ".linear_attn." in name:
            yield from _linear(model_type, config, name, tensor)
        elif model_type in ONE_ADDED and name.endswith("norm.weight"):
            yield name, tensor + np.float32(1)
        elif model_type == "gpt_neox" and ".query_key_value." in name:
            whole = tensor.reshape(heads, 3, -1, *tensor.shape[1:])
            yield name, np.concatenate([whole[:, part].reshape(-1, *tensor.shape[1:]) for part in range(3)])
        elif model_type == "falcon" and ".query_key_value." in name:
            whole = tensor.reshape(kv_heads, heads // kv_heads + 2, -1, *tensor.shape[1:])
            parts = (whole[:, :-2], whole[:, [-2]], whole[:, [-1]])
            head_dim = whole.shape[2]
            yield name, np.concatenate([part.reshape(-1, *tensor.shape[1:]) for part in parts])
            assert head_dim * heads == config["hidden_size"]
        elif name.endswith("block_sparse_moe.input_linear.weight"):
            gate, up = np.split(tensor, 2, -2)
            yield _expert_name(name, "gate"), gate
            yield _expert_name(name, "up"), up
        elif model_type == "gpt_oss" and name.endswith("sinks"):
            yield f"{name}.weight", tensor
        elif model_type == "gpt_oss" and ".experts." in name:
            kind = "bias" if name.endswith("_bias") else "weight"
            rows = tensor.swapaxes(1, 2) if kind == "weight" else tensor
            names = ("gate", "up") if "gate_up" in name else ("down",)
            for index, part in enumerate(names):
                yield _expert_name(name, part, kind), rows[:, index :: len(names)]
        elif model_type == "llama4_text" and re.search(r"\.experts\.(gate_up|down)_proj$", name):
            rows = tensor.swapaxes(1, 2)
            parts = ("gate", "up") if "gate_up" in name else ("down",)
            for part, values in zip(parts, np.split(rows, len(parts), 1), strict=True):
                yield _expert_name(name, part), values
        elif model_type == "gemma4_text" and name.endswith((".router.scale", ".per_expert_scale")):
            yield name, tensor
        elif model_type == "gemma4_text" and (name.endswith("layer_scalar") or ".experts." in name):
            yield f"{name}.weight", tensor
        elif name.endswith(".e_score_correction_bias"):
            yield name.replace("_bias", ".bias"), tensor
        elif name.endswith("kv_b_proj.weight") and not config.get("older"):
            whole = tensor.reshape(heads, -1, tensor.shape[-1])
            keys, values = np.split(whole, [config["qk_nope_head_dim"]], 1)
            yield name.replace("kv_b_proj", "k_b_proj"), keys.swapaxes(1, 2)
            yield name.replace("kv_b_proj", "v_b_proj"), values
        elif "conv.conv" in name:
            yield name, tensor.squeeze(1) if tensor.ndim == 3 else tensor
        elif name.endswith("shared_expert_gate.weight"):
            yield name, tensor.squeeze()
        elif (found := EXPERT.fullmatch(name)) or (found := HEAD_NORM.fullmatch(name)):
            stacks.setdefault(f"{found[1]}{'.' if found.re is EXPERT else ''}{found[3]}", {})[int(found[2])] = tensor
        else:
            yield name, tensor
    for name, members in stacks.items():
        yield name, np.stack([members[index] for index in range(len(members))])


def _linear(model_type: str, config: Mapping[str, Any], name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """What linear attention is made of."""
    keys, values = config["linear_num_key_heads"], config["linear_num_value_heads"]
    group, width, embed = values // keys, config["linear_value_head_dim"], config["hidden_size"]
    all_keys = keys * config["linear_key_head_dim"]

    def tiled(part: Tensor) -> Tensor:
        """The first of each group of heads, then the second of each, in the files of Qwen3.5."""
        if model_type == "qwen3_next":
            return part
        return part.reshape(keys, group, -1).swapaxes(0, 1).reshape(part.shape)

    if name.endswith("in_proj_qkvz.weight") and not config.get("older"):
        rows = np.split(tensor.reshape(keys, -1, embed), np.cumsum([all_keys // keys] * 2 + [group * width]), 1)
        *queries, gate = (part.reshape(-1, embed) for part in rows)
        yield name.replace("in_proj_qkvz", "in_proj_qkv"), np.concatenate(queries)
        yield name.replace("in_proj_qkvz", "in_proj_z"), gate
    elif name.endswith(("in_proj_qkv.weight", "conv1d.weight")):
        whole = tensor.reshape(len(tensor), -1)
        yield name, np.concatenate([whole[: 2 * all_keys], tiled(whole[2 * all_keys :])])
    elif name.endswith("out_proj.weight"):
        yield name, tiled(tensor.T).T
    elif name.endswith("A_log"):
        yield name, -np.exp(tiled(tensor))
    elif name.endswith("dt_bias"):
        yield name.replace("dt_bias", "dt_proj.bias"), tiled(tensor)
    else:
        yield (
            name,
            tensor if name.endswith(("norm.weight", "in_proj_ba.weight", "in_proj_qkvz.weight")) else tiled(tensor),
        )


def _expert_name(name: str, part: str, kind: str = "weight") -> str:
    """A name that the library has for all experts' gates, ups or downs of the layer that a tensor belongs to."""
    found = re.search(r"layers\.(\d+)\.", name)
    assert found is not None
    return f"model.layers.{found[1]}.mlp.experts.{part}_proj.{kind}"


def permute(weights: Tensor, heads: int) -> Tensor:
    """llama.cpp's own function of this name."""
    return (
        weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:])
        .swapaxes(1, 2)
        .reshape(weights.shape)
    )


def _rope_tensors(config: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    scaling = _rope(config)
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "longrope":
        yield "rope_factors_long.weight", np.array(scaling["long_factor"])
        yield "rope_factors_short.weight", np.array(scaling["short_factor"])
    if kind == "proportional":
        pairs = config["global_head_dim"] // 2
        turning = int(config["global_head_dim"] * scaling["partial_rotary_factor"] / 2)
        yield "rope_freqs.weight", np.array([1.0] * turning + [1e30] * (pairs - turning))
    if kind == "llama3":
        yield "rope_freqs.weight", np.array(llama3_divisors(config, scaling))


def llama3_divisors(config: Mapping[str, Any], scaling: Mapping[str, Any]) -> Iterable[float]:
    """What llama.cpp's converter computes of a `llama3` scaling."""
    dims = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    original = scaling["original_max_position_embeddings"]
    result: list[float] = []
    for index in range(0, dims, 2):
        wavelength = 2 * math.pi * config["rope_theta"] ** (index / dims)
        if wavelength < original / high:
            result.append(1.0)
        elif wavelength > original / low:
            result.append(scaling["factor"])
        else:
            smooth = (original / wavelength - low) / (high - low)
            result.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    return result


# ------------------------------------------------------------------------------------------------------ metadata


def _add_metadata(writer: GGUFWriter, config: Mapping[str, Any]) -> None:
    """What the converter's base class writes for every architecture, and then what is the architecture's own."""

    def first(*names: str) -> Any:
        return next((config[name] for name in names if config.get(name) is not None), None)

    def add(method: Callable[[Any], None], value: Any) -> None:
        if value is not None:
            method(value)

    model_type, heads = config["model_type"], first("num_attention_heads", "n_head")
    embed = first("hidden_size", "n_embd", "n_embed")
    writer.add_block_count(_blocks(config))
    writer.add_context_length(first("max_position_embeddings", "n_positions") or 2048)
    writer.add_embedding_length(embed)
    writer.add_feed_forward_length(first("intermediate_size", "n_inner", "ffn_hidden_size") or 4 * embed)
    writer.add_head_count(heads)
    writer.add_vocab_size(config["vocab_size"])
    latent = first("kv_lora_rank") and not config.get("older")
    add(writer.add_head_count_kv, 1 if latent else first("num_key_value_heads", "num_kv_heads"))
    add(writer.add_rope_freq_base, _rope(config).get("rope_theta", first("rope_theta", "rotary_emb_base")))
    local = (config.get("rope_parameters") or {}).get("sliding_attention", {})
    add(writer.add_rope_freq_base_swa, local.get("rope_theta"))
    add(writer.add_layer_norm_rms_eps, first("rms_norm_eps"))
    add(writer.add_layer_norm_eps, first("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"))
    head_dim = first("head_dim") or embed // heads
    if first("head_dim"):
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    add(writer.add_expert_count, first("num_local_experts", "num_experts"))
    add(writer.add_expert_used_count, first("num_experts_per_tok", "top_k_experts"))
    older = config.get("older", False)
    add(writer.add_expert_group_count, None if older else first("n_group"))
    add(writer.add_expert_group_used_count, None if older else first("topk_group"))
    score = first("scoring_func") if not older or first("scoring_func") != "softmax" else None
    add(writer.add_expert_gating_func, ExpertGatingFuncType[score.upper()] if score else None)
    _add_rope_scaling(writer, config)
    own = _OWN.get(model_type)
    if own is not None:
        own(writer, config, head_dim)


def _rope(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The rope's own object; of several the one of layers without a window."""
    found = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return found.get("full_attention", found)


def _add_rope_scaling(writer: GGUFWriter, config: Mapping[str, Any]) -> None:
    scaling = _rope(config)
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "linear":
        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling["factor"])
    elif kind == "yarn":
        writer.add_rope_scaling_type(RopeScalingType.YARN)
        writer.add_rope_scaling_factor(scaling["factor"])
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
        if "attention_factor" in scaling:
            writer.add_rope_scaling_yarn_attn_factor(scaling["attention_factor"])
        for name in ("beta_fast", "beta_slow"):
            if name in scaling:
                getattr(writer, f"add_rope_scaling_yarn_{name}")(scaling[name])
    elif kind == "longrope":
        original = config["original_max_position_embeddings"]
        scale = config["max_position_embeddings"] / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(scale) / math.log(original)))


def _dimensions(name: str, otherwise: float) -> Callable[[GGUFWriter, Mapping[str, Any], int], None]:
    def add(writer: GGUFWriter, config: Mapping[str, Any], head_dim: int) -> None:
        writer.add_rope_dimension_count(int(config.get(name, otherwise) * head_dim))

    return add


def _all_dimensions(writer: GGUFWriter, config: Mapping[str, Any], head_dim: int) -> None:
    writer.add_rope_dimension_count(head_dim)


def _gemma2(writer: GGUFWriter, config: Mapping[str, Any], head_dim: int) -> None:
    writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
    writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    writer.add_sliding_window(config["sliding_window"])


def _gemma3(writer: GGUFWriter, config: Mapping[str, Any], head_dim: int) -> None:
    writer.add_sliding_window(config["sliding_window"])
    if config.get("final_logit_softcapping"):
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])


def _phi3(writer: GGUFWriter, config: Mapping[str, Any], head_dim: int) -> None:
    _dimensions("partial_rotary_factor", 1.0)(writer, config, head_dim)
    if not config.get("rope_scaling"):
        writer.add_rope_scaling_orig_ctx_len(config["max_position_embeddings"])
    writer.add_sliding_window(config.get("sliding_window") or 0)


def _stablelm(writer: GGUFWriter, config: Mapping[str, Any], head_dim: int) -> None:
    _dimensions("partial_rotary_factor", 0.25)(writer, config, head_dim)
    writer.add_parallel_residual(config.get("use_parallel_residual", False))


def _gpt_neox(writer: GGUFWriter, config: Mapping[str, Any], head_dim: int) -> None:
    _dimensions("rotary_pct", 0.25)(writer, config, head_dim)
    writer.add_parallel_residual(config["use_parallel_residual"])


def _granite(writer: GGUFWriter, config: Mapping[str, Any], head_dim: int) -> None:
    writer.add_attention_scale(config["attention_multiplier"])
    writer.add_embedding_scale(config["embedding_multiplier"])
    writer.add_residual_scale(config["residual_multiplier"])
    writer.add_logit_scale(config["logits_scaling"])


def _falcon(writer: GGUFWriter, config: Mapping[str, Any], head_dim: int) -> None:
    writer.add_tensor_data_layout("jploski")
    if not config.get("new_decoder_architecture"):
        count = 1 if config.get("multi_query", True) else config["num_attention_heads"]
        if config.get("num_kv_heads") is None:
            writer.add_head_count_kv(count)


def _cohere(writer: GGUFWriter, config: Mapping[str, Any], head_dim: int) -> None:
    writer.add_logit_scale(config["logit_scale"])
    writer.add_rope_scaling_type(RopeScalingType.NONE)


def _cohere2(writer: GGUFWriter, config: Mapping[str, Any], head_dim: int) -> None:
    _cohere(writer, config, head_dim)
    writer.add_sliding_window(config["sliding_window"])
    writer.add_rope_dimension_count(head_dim)


def _exaone4(writer: GGUFWriter, config: Mapping[str, Any], head_dim: int) -> None:
    _all_dimensions(writer, config, head_dim)
    if config.get("sliding_window") is None:
        return
    writer.add_sliding_window(config["sliding_window"])
    count, pattern = config["num_hidden_layers"], config.get("sliding_window_pattern")
    if config.get("layer_types"):
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config["layer_types"]])
    elif isinstance(pattern, int):
        writer.add_sliding_window_pattern([(index + 1) % pattern != 0 for index in range(count)])


def _qwen2_moe(writer: GGUFWriter, config: Mapping[str, Any], head_dim: int) -> None:
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])


def _deepseek_experts(writer: GGUFWriter, config: Mapping[str, Any]) -> None:
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_count(config["n_routed_experts"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    # The converter sees the defaults of transformers.
    writer.add_expert_weights_scale(config.get("routed_scaling_factor", 2.5))


def _glm4_moe(writer: GGUFWriter, config: Mapping[str, Any], head_dim: int) -> None:
    _dimensions("partial_rotary_factor", 0.5)(writer, config, head_dim)
    _deepseek_experts(writer, config)
    writer.add_expert_weights_norm(config.get("norm_topk_prob", True))
    writer.add_expert_gating_func(ExpertGatingFuncType.SIGMOID)
    writer.add_nextn_predict_layers(config["num_nextn_predict_layers"])


def _deepseek(writer: GGUFWriter, config: Mapping[str, Any], head_dim: int) -> None:
    _deepseek_experts(writer, config)
    if config.get("q_lora_rank") is not None:
        writer.add_q_lora_rank(config["q_lora_rank"])
    latent, turned = config["kv_lora_rank"], config["qk_rope_head_dim"]
    widths = config["qk_nope_head_dim"] + turned, config["v_head_dim"]
    writer.add_kv_lora_rank(latent)
    if config.get("older"):
        writer.add_key_length(widths[0])
        writer.add_value_length(widths[1])
    else:
        writer.add_key_length(latent + turned)
        writer.add_value_length(latent)
        writer.add_key_length_mla(widths[0])
        writer.add_value_length_mla(widths[1])
    if config.get("norm_topk_prob", config["model_type"] == "deepseek_v3"):
        writer.add_expert_weights_norm(True)
    writer.add_rope_dimension_count(turned)
    scaling = config.get("rope_scaling") or {}
    if "mscale_all_dim" in scaling:
        writer.add_rope_scaling_yarn_log_mul(0.1 * scaling["mscale_all_dim"])


def _olmo3(writer: GGUFWriter, config: Mapping[str, Any], head_dim: int) -> None:
    writer.add_sliding_window(config["sliding_window"])
    types, count = config.get("layer_types"), config["num_hidden_layers"]
    slide = [kind == "sliding_attention" for kind in types] if types else [(i + 1) % 4 != 0 for i in range(count)]
    writer.add_sliding_window_pattern(slide)


def _ministral3(writer: GGUFWriter, config: Mapping[str, Any], head_dim: int) -> None:
    _all_dimensions(writer, config, head_dim)
    rope = _rope(config)
    # Only Ministral has these, not the older Mistral Small, whose files are of the same architecture.
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
        writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])


def _lfm2(writer: GGUFWriter, config: Mapping[str, Any], head_dim: int) -> None:
    count, indices = config["num_hidden_layers"], config.get("full_attn_idxs", ())
    types = config.get("layer_types") or ["full_attention" if index in indices else "conv" for index in range(count)]
    writer.add_head_count_kv([0 if kind == "conv" else config["num_key_value_heads"] for kind in types])
    writer.add_shortconv_l_cache(config.get("conv_L_cache", 3))
    writer.add_layer_norm_rms_eps(config["norm_eps"])
    width = config.get("block_ff_dim", config.get("intermediate_size"))
    if config.get("block_auto_adjust_ff_dim", True):
        multiple = config["block_multiple_of"]
        width = int(config.get("block_ffn_dim_multiplier", 1.0) * int(2 * width / 3))
        width = multiple * -(-width // multiple)
    writer.add_feed_forward_length(width)


def _linear_sizes(writer: GGUFWriter, config: Mapping[str, Any], head_dim: int) -> None:
    values = config["linear_num_value_heads"]
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(config["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(values)
    writer.add_ssm_inner_size(config["linear_value_head_dim"] * values)
    writer.add_full_attention_interval(config.get("full_attention_interval", 4))
    part = _rope(config).get("partial_rotary_factor", config.get("partial_rotary_factor", 0.25))
    writer.add_rope_dimension_count(int(part * head_dim))


def _qwen3_next(writer: GGUFWriter, config: Mapping[str, Any], head_dim: int) -> None:
    _qwen2_moe(writer, config, head_dim)
    _linear_sizes(writer, config, head_dim)


def _qwen3_5(writer: GGUFWriter, config: Mapping[str, Any], head_dim: int) -> None:
    _linear_sizes(writer, config, head_dim)
    writer.add_rope_dimension_sections([*_rope(config).get("mrope_section", [11, 11, 10]), 0])


def _llama4(writer: GGUFWriter, config: Mapping[str, Any], head_dim: int) -> None:
    _all_dimensions(writer, config, head_dim)
    writer.add_interleave_moe_layer_step(config["interleave_moe_layer_step"])
    writer.add_feed_forward_length(config["intermediate_size_mlp"])
    writer.add_expert_feed_forward_length(config["intermediate_size"])


def _gemma4(writer: GGUFWriter, config: Mapping[str, Any], head_dim: int) -> None:
    _gemma3(writer, config, head_dim)
    count, shared, width = config["num_hidden_layers"], config["num_kv_shared_layers"], config["global_head_dim"]
    slide = [kind == "sliding_attention" for kind in config["layer_types"]]
    writer.add_shared_kv_layers(shared)
    writer.add_embedding_length_per_layer_input(config["hidden_size_per_layer_input"])
    writer.add_sliding_window_pattern(slide)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_key_length_swa(head_dim)
    writer.add_value_length_swa(head_dim)
    if config.get("moe_intermediate_size") is not None:
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if config.get("use_double_wide_mlp"):
        ffn = config["intermediate_size"]
        writer.add_feed_forward_length([ffn if index < count - shared else 2 * ffn for index in range(count)])
    if config.get("num_global_key_value_heads") is not None:
        heads = config["num_key_value_heads"], config["num_global_key_value_heads"]
        writer.add_head_count_kv([heads[0] if slides else heads[1] for slides in slide])
    writer.add_rope_dimension_count(width)
    writer.add_rope_dimension_count_swa(head_dim)


def _gpt_oss(writer: GGUFWriter, config: Mapping[str, Any], head_dim: int) -> None:
    writer.add_sliding_window(config["sliding_window"])
    writer.add_expert_feed_forward_length(config["intermediate_size"])


def _qwen3_moe(writer: GGUFWriter, config: Mapping[str, Any], head_dim: int) -> None:
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])


_OWN: Mapping[str, Callable[[GGUFWriter, Mapping[str, Any], int], None]] = {
    "llama": _all_dimensions,
    "mixtral": _all_dimensions,
    "smollm3": _all_dimensions,
    "seed_oss": _all_dimensions,
    "granite": _granite,
    "granitemoe": _granite,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "phi3": _phi3,
    "stablelm": _stablelm,
    "gpt_neox": _gpt_neox,
    "nemotron": _dimensions("partial_rotary_factor", 0.5),
    "glm4": _dimensions("partial_rotary_factor", 0.5),
    "falcon": _falcon,
    "cohere": _cohere,
    "cohere2": _cohere2,
    "exaone4": _exaone4,
    "qwen2_moe": _qwen2_moe,
    "qwen3_moe": _qwen3_moe,
    "gpt_oss": _gpt_oss,
    "glm4_moe": _glm4_moe,
    "olmo3": _olmo3,
    "gemma4_text": _gemma4,
    "llama4_text": _llama4,
    "qwen3_next": _qwen3_next,
    "qwen3_5_text": _qwen3_5,
    "ministral3": _ministral3,
    "lfm2": _lfm2,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
}


def _add_vocabulary(writer: GGUFWriter, config: Mapping[str, Any]) -> None:
    """A byte-level vocabulary without merges, as large as the network's."""
    count = config["vocab_size"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([chr(0x100 + index) for index in range(count)])
    writer.add_token_types([TokenType.NORMAL] * count)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
