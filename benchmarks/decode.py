"""Decode speed beside transformers, on the same weights, prompts and threads, in the same run.

    python benchmarks/decode.py MODEL_DIRECTORY [--batch 1 8] [--prompt 128] [--new 64] [--repeat 3]

Needs torch and transformers (the test extra). Both generate greedily in float32 from the same prompts, in turn, so that
what else the machine does falls on both. Prefill is timed apart: decode speed counts the tokens after the first.
Prints one JSON object; the ratios are medians over the repeats.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import transformers

import zoo


def prompts(vocab: int, batch: int, length: int) -> list[list[int]]:
    random = np.random.default_rng(0)
    return random.integers(3, vocab, size=(batch, length)).tolist()


def ours(path: Path) -> Callable[[list[list[int]], int], None]:
    model = zoo.load(str(path), dtype="float32")

    def generate(ids: list[list[int]], new: int) -> None:
        results = model.generate(ids, max_new_tokens=new, ignore_eos=True)
        assert all(len(result.tokens) == new for result in results)

    return generate


def theirs(path: Path) -> Callable[[list[list[int]], int], None]:
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    model.eval()

    def generate(ids: list[list[int]], new: int) -> None:
        tokens = torch.tensor(ids)
        with torch.inference_mode():
            out = model.generate(  # pyright: ignore[reportAttributeAccessIssue]
                tokens,
                attention_mask=torch.ones_like(tokens),
                max_new_tokens=new,
                min_new_tokens=new,
                do_sample=False,
                pad_token_id=0,
            )
        assert out.shape[1] == tokens.shape[1] + new

    return generate


def seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description="Decode speed beside transformers, in one run.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    vocab = json.loads((options.model / "config.json").read_text())["vocab_size"]
    engines = {"zoo": ours(options.model), "transformers": theirs(options.model)}
    report: dict[str, object] = {"threads": torch.get_num_threads()}
    for batch in options.batch:
        ids = prompts(vocab, batch, options.prompt)
        speeds: dict[str, list[float]] = {name: [] for name in engines}
        prefill: dict[str, list[float]] = {name: [] for name in engines}
        for repeat in range(options.repeat + 1):
            for name, generate in engines.items():
                first = seconds(lambda: generate(ids, 1))  # noqa: B023
                whole = seconds(lambda: generate(ids, options.new))  # noqa: B023
                if repeat:  # the first round compiles and warms up
                    prefill[name].append(batch * options.prompt / first)
                    speeds[name].append(batch * (options.new - 1) / (whole - first))
        report[f"batch {batch}"] = {
            **{f"{name} decode tokens/s": [round(speed, 1) for speed in speeds[name]] for name in engines},
            **{f"{name} prefill tokens/s": [round(speed) for speed in prefill[name]] for name in engines},
            "decode ratio": round(statistics.median(a / b for a, b in zip(*speeds.values(), strict=True)), 2),
            "prefill ratio": round(statistics.median(a / b for a, b in zip(*prefill.values(), strict=True)), 2),
        }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
