"""GGUF files of Hugging Face models, written after the conventions of llama.cpp's converter.

Nothing of it looks at the columns that read them: names are those of the `gguf` library, arithmetic and keys those of
`convert_hf_to_gguf.py`. Tensors are float32.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import MODEL_ARCH_NAMES, GGMLQuantizationType, GGUFWriter, get_tensor_name_map
from gguf.quants import quantize

from .gguf_metadata import add_metadata, add_vocabulary, blocks, rope_of

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
    add_metadata(writer, config)
    add_vocabulary(writer, config)
    names = get_tensor_name_map(architecture, blocks(config))
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
    scaling = rope_of(config)
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
