"""Speed and memory of conversions, beside `cp -r` and a sync of the same files in the same run.

    python benchmarks/conversion.py [--gigabytes 2] [--repeat 3] [--folder DIR]

A synthetic bfloat16 llama (random bits, TinyLlama's width, as many layers as the size asks) is copied, converted to a
store and converted back, in turn; each in a process of its own, whose peak memory is measured by the kernel. The
page cache holds the source each time. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

WIDTH = {"hidden_size": 2048, "intermediate_size": 5632, "num_attention_heads": 32, "num_key_value_heads": 4}
VOCAB = 32000
SHARD_BYTES = 1_000_000_000


def layer_shapes(layer: int) -> dict[str, tuple[int, ...]]:
    hidden, ffn = WIDTH["hidden_size"], WIDTH["intermediate_size"]
    kv = hidden // WIDTH["num_attention_heads"] * WIDTH["num_key_value_heads"]
    prefix = f"model.layers.{layer}."
    return {
        prefix + "input_layernorm.weight": (hidden,),
        prefix + "mlp.down_proj.weight": (hidden, ffn),
        prefix + "mlp.gate_proj.weight": (ffn, hidden),
        prefix + "mlp.up_proj.weight": (ffn, hidden),
        prefix + "post_attention_layernorm.weight": (hidden,),
        prefix + "self_attn.k_proj.weight": (kv, hidden),
        prefix + "self_attn.o_proj.weight": (hidden, hidden),
        prefix + "self_attn.q_proj.weight": (hidden, hidden),
        prefix + "self_attn.v_proj.weight": (kv, hidden),
    }


def make_checkpoint(folder: Path, gigabytes: float) -> None:
    """Writes the shards tensor by tensor: making the checkpoint takes no more memory than converting it."""
    hidden = WIDTH["hidden_size"]
    ends = {
        "lm_head.weight": (VOCAB, hidden),
        "model.embed_tokens.weight": (VOCAB, hidden),
        "model.norm.weight": (hidden,),
    }
    size = lambda shapes: sum(2 * int(np.prod(shape)) for shape in shapes.values())  # noqa: E731
    layers = round((gigabytes * 1e9 - size(ends)) / size(layer_shapes(0)))
    shapes = dict(ends)
    for layer in range(layers):
        shapes |= layer_shapes(layer)
    shards: list[dict[str, tuple[int, ...]]] = [{}]
    for name, shape in shapes.items():
        if size(shards[-1]) + size({name: shape}) > SHARD_BYTES:
            shards.append({})
        shards[-1][name] = shape
    folder.mkdir(parents=True)
    weight_map = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        weight_map |= dict.fromkeys(shard, file)
        write_shard(folder / file, shard)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": layers,
        "vocab_size": VOCAB,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        **WIDTH,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    index = {"metadata": {"total_size": size(shapes)}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))


def write_shard(path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    """A safetensors file of random bits, tensor by tensor."""
    random = np.random.default_rng(0)
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    position = 0
    for name, shape in shapes.items():
        nbytes = 2 * int(np.prod(shape))
        entries[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [position, position + nbytes]}
        position += nbytes
    header = json.dumps(entries).encode()
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for shape in shapes.values():
            file.write(random.bytes(2 * int(np.prod(shape))))


def read_all(folder: Path) -> None:
    """Brings the files into the page cache, which a conversion's own writing passes by."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                while file.read(16 << 20):
                    pass


def measure(command: list[str]) -> dict[str, float]:
    """Wall seconds, a sync of the disk included, and peak memory in MB of a command."""
    os.sync()
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    os.sync()
    seconds = time.perf_counter() - start
    if status:
        raise SystemExit(f"failed: {' '.join(command)}")
    return {"seconds": seconds, "peak_mb": usage.ru_maxrss / 1024}


def digest(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.file_digest(open(p, "rb"), "sha256").hexdigest() for p in folder.iterdir() if p.is_file()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed and memory of conversions beside cp, in one run.")
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=None, help="where to work; the temporary folder without it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as work:
        source, copy, store, back = (Path(work) / name for name in ("source", "copy", "store", "back"))
        # In a process of its own: the kernel counts a parent's peak for the children it forks.
        maker = multiprocessing.get_context("spawn").Process(target=make_checkpoint, args=(source, options.gigabytes))
        maker.start()
        maker.join()
        zoo = [sys.executable, "-m", "zoo.cli", "convert"]
        commands = {
            "cp": ["cp", "-r", str(source), str(copy)],
            "hf_to_orbax": [*zoo, "hf-to-orbax", str(source), str(store)],
            "orbax_to_hf": [*zoo, "orbax-to-hf", str(store), str(back)],
        }
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in commands}
        for _ in range(options.repeat):
            for name, command in commands.items():
                # Just before its own run: memory that a removed file frees serves the next writer, which must not
                # always be the same.
                shutil.rmtree(command[-1], ignore_errors=True)
                read_all(Path(command[-2]))
                runs[name].append(measure(command))
        equal = digest(source) == digest(back)
    result: dict[str, object] = {
        "bytes": options.gigabytes * 1e9,
        "largest_tensor_mb": 2 * VOCAB * WIDTH["hidden_size"] / 2**20,
    }
    for name, measured in runs.items():
        result[name] = {
            "seconds": [round(run["seconds"], 2) for run in measured],
            "peak_mb": round(max(run["peak_mb"] for run in measured)),
        }
    for name in ("hf_to_orbax", "orbax_to_hf"):
        ratios = [cp["seconds"] / run["seconds"] for cp, run in zip(runs["cp"], runs[name], strict=True)]
        result[name + "_speed_of_cp"] = round(statistics.median(ratios), 2)
    result["files_equal"] = equal
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
