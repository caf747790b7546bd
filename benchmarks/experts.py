"""A layer of experts beside the reference's, in one run: `python benchmarks/experts.py [--repeat 5]`.

Qwen3's shape in small: 512 wide, 32 experts of 1024, 4 chosen, float32, for 1 and for 64 tokens. Prints one JSON object
with the best milliseconds of each, taken in turn, and the largest difference of the outputs. The reference's layer is
that of a whole model, loaded: one made alone would compute its experts in another way than users get.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import torch
from flax import nnx
from jax import numpy as jnp
from transformers import AutoConfig, AutoModelForCausalLM

from zoo.models import config as configs
from zoo.models.mlp import MixtureOfExperts

WIDTH, EXPERTS, FFN, CHOSEN = 512, 32, 1024, 4
CALLS = 20


def milliseconds(call: Callable[[], Any]) -> float:
    """Of the fastest of several calls in a row: on a busy machine others last as long as what else runs."""
    times: list[float] = []
    for _ in range(CALLS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def reference() -> tuple[torch.nn.Module, str]:
    """The layer, and what transformers calls the way in which it computes experts."""
    config = AutoConfig.for_model(
        "qwen3_moe",
        vocab_size=32,
        hidden_size=WIDTH,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=4,
        moe_intermediate_size=FFN,
        num_experts=EXPERTS,
        num_experts_per_tok=CHOSEN,
        norm_topk_prob=True,
    )
    model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.model.layers[0].mlp.parameters():
            parameter.normal_(0, parameter.shape[-1] ** -0.5, generator=generator)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        loaded: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return loaded.eval().model.layers[0].mlp, loaded.config._experts_implementation


def ours(block: torch.nn.Module) -> MixtureOfExperts:
    """The same layer with the same weights."""
    router = configs.Router(top_k=CHOSEN, score="softmax", normalise=True)
    config = configs.MixtureOfExperts(experts=EXPERTS, ffn=FFN, activation="silu", router=router)
    layer = MixtureOfExperts(config, WIDTH, dtype=jnp.float32, rngs=nnx.Rngs(0))
    weights = {name: value.detach().numpy() for name, value in block.named_parameters()}
    gate, up = np.split(weights["experts.gate_up_proj"], 2, axis=1)
    layer.router.kernel.set_value(jnp.asarray(weights["gate.weight"].T))
    layer.experts.gate.kernel.set_value(jnp.asarray(gate.swapaxes(1, 2)))
    layer.experts.up.kernel.set_value(jnp.asarray(up.swapaxes(1, 2)))
    layer.experts.down.kernel.set_value(jnp.asarray(weights["experts.down_proj"].swapaxes(1, 2)))
    return layer


def compare(apply: Any, state: Any, block: torch.nn.Module, tokens: int, repeat: int) -> dict[str, float]:
    x = np.random.default_rng(tokens).standard_normal((1, tokens, WIDTH), np.float32)
    torch_x, jax_x = torch.from_numpy(x), jnp.asarray(x)
    with torch.inference_mode():
        difference = np.abs(np.asarray(apply(state, jax_x)) - block(torch_x).numpy()).max()
        times = [
            (milliseconds(lambda: apply(state, jax_x).block_until_ready()), milliseconds(lambda: block(torch_x)))
            for _ in range(repeat)
        ]
    zoo, transformers = (round(min(column), 3) for column in zip(*times, strict=True))
    return {
        "zoo ms": zoo,
        "transformers ms": transformers,
        "ratio": round(transformers / zoo, 2),
        "largest difference": float(difference),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Experts beside the reference's, in one run.")
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    block, implementation = reference()
    graph, state = nnx.split(ours(block))
    apply = jax.jit(lambda state, x: nnx.merge(graph, state)(x))
    result = {f"{tokens} tokens": compare(apply, state, block, tokens, repeat) for tokens in (1, 64)}
    print(json.dumps({"experts of transformers": implementation, **result}, indent=2))


if __name__ == "__main__":
    main()
