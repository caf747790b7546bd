"""How soon the command line answers: `zoo --help`, and `zoo inspect` of a checkpoint with about 1,000 tensors.

    python benchmarks/startup.py [--repeat 5]

Each command is run in a process of its own; the median and the worst of the repeats are printed as one JSON object,
beside those of `python -c pass`, which no command can be faster than.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from conversion import VOCAB, WIDTH, layer_shapes, write_shard

LAYERS = 111
SHRINK = 64


def make_checkpoint(folder: Path) -> int:
    """A llama of many small tensors; returns their number."""
    hidden = WIDTH["hidden_size"]
    shapes = {
        "lm_head.weight": (VOCAB, hidden),
        "model.embed_tokens.weight": (VOCAB, hidden),
        "model.norm.weight": (hidden,),
    }
    for layer in range(LAYERS):
        shapes |= layer_shapes(layer)
    small = {name: tuple(size // SHRINK for size in shape) for name, shape in shapes.items()}
    folder.mkdir()
    write_shard(folder / "model.safetensors", small)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": LAYERS,
        "vocab_size": VOCAB // SHRINK,
        "hidden_size": hidden // SHRINK,
        "intermediate_size": WIDTH["intermediate_size"] // SHRINK,
        "num_attention_heads": 1,
        "rope_theta": 10000.0,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return len(small)


def measure(command: list[str], repeat: int) -> dict[str, float]:
    seconds: list[float] = []
    for _ in range(repeat):
        start = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        seconds.append(time.perf_counter() - start)
    return {"median_seconds": round(statistics.median(seconds), 3), "worst_seconds": round(max(seconds), 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description="How soon the command line answers.")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    zoo = str(Path(sys.executable).with_name("zoo"))
    with tempfile.TemporaryDirectory() as work:
        count = make_checkpoint(Path(work) / "model")
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "zoo --help": [zoo, "--help"],
            f"zoo inspect, {count} tensors": [zoo, "inspect", str(Path(work) / "model")],
        }
        print(json.dumps({name: measure(command, options.repeat) for name, command in commands.items()}, indent=2))


if __name__ == "__main__":
    main()
