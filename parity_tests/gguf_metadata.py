"""The metadata of GGUF files of Hugging Face models, after the conventions of llama.cpp's converter."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from gguf import ExpertGatingFuncType, GGUFWriter, RopeScalingType, TokenType


def blocks(config: Mapping[str, Any]) -> int:
    """Layers that predict further tokens are blocks of a file, but for those that the converter leaves out."""
    further = config.get("num_nextn_predict_layers", 0) if config["model_type"] == "glm4_moe" else 0
    return config.get("num_hidden_layers", config.get("n_layer")) + further


def add_metadata(writer: GGUFWriter, config: Mapping[str, Any]) -> None:
    """What the converter's base class writes for every architecture, and then what is the architecture's own."""

    def first(*names: str) -> Any:
        return next((config[name] for name in names if config.get(name) is not None), None)

    def add(method: Callable[[Any], None], value: Any) -> None:
        if value is not None:
            method(value)

    model_type, heads = config["model_type"], first("num_attention_heads", "n_head")
    embed = first("hidden_size", "n_embd", "n_embed")
    writer.add_block_count(blocks(config))
    writer.add_context_length(first("max_position_embeddings", "n_positions") or 2048)
    writer.add_embedding_length(embed)
    writer.add_feed_forward_length(first("intermediate_size", "n_inner", "ffn_hidden_size") or 4 * embed)
    writer.add_head_count(heads)
    writer.add_vocab_size(config["vocab_size"])
    latent = first("kv_lora_rank") and not config.get("older")
    add(writer.add_head_count_kv, 1 if latent else first("num_key_value_heads", "num_kv_heads"))
    add(writer.add_rope_freq_base, rope_of(config).get("rope_theta", first("rope_theta", "rotary_emb_base")))
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


def rope_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The rope's own object; of several the one of layers without a window."""
    found = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return found.get("full_attention", found)


def _add_rope_scaling(writer: GGUFWriter, config: Mapping[str, Any]) -> None:
    scaling = rope_of(config)
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
    rope = rope_of(config)
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
    part = rope_of(config).get("partial_rotary_factor", config.get("partial_rotary_factor", 0.25))
    writer.add_rope_dimension_count(int(part * head_dim))


def _qwen3_next(writer: GGUFWriter, config: Mapping[str, Any], head_dim: int) -> None:
    _qwen2_moe(writer, config, head_dim)
    _linear_sizes(writer, config, head_dim)


def _qwen3_5(writer: GGUFWriter, config: Mapping[str, Any], head_dim: int) -> None:
    _linear_sizes(writer, config, head_dim)
    writer.add_rope_dimension_sections([*rope_of(config).get("mrope_section", [11, 11, 10]), 0])


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


def add_vocabulary(writer: GGUFWriter, config: Mapping[str, Any]) -> None:
    """A byte-level vocabulary without merges, as large as the network's."""
    count = config["vocab_size"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([chr(0x100 + index) for index in range(count)])
    writer.add_token_types([TokenType.NORMAL] * count)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
