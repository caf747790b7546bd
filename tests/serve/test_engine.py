"""The engine on a toy model: endings, limits, company, and how often anything is compiled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import jax
import numpy as np
import pytest
from flax import nnx
from jax import numpy as jnp

from zoo.models.decoder import Decoder
from zoo.models.errors import ZooError
from zoo.models.parameters import split
from zoo.models.tokenizer import Tokenizer
from zoo.serve.engine import Engine
from zoo.serve.sampler import Sampling

from ..models.test_parameters import model_config
from ..models.test_tokenizer import byte_level

CONFIG = model_config(layers=1)  # 64 positions, 100 tokens
WARM = Sampling(temperature=1.0, top_k=20, top_p=0.9, min_p=0.01, seed=7)


def successor_parameters(vocab: int = 100) -> dict[str, jax.Array]:
    """A model that answers every token with the next one: the layers add nothing, and the head is shifted by one."""
    config = CONFIG.model_copy(update={"vocab": vocab, "embed": 32})
    parameters = {path: jnp.zeros_like(array) for path, array in split(Decoder(config, rngs=nnx.Rngs(0))).items()}
    codes = np.random.default_rng(0).choice([-1.0, 1.0], (vocab, 32)).astype(np.float32)
    parameters["embed.embedding"] = jnp.asarray(codes)
    parameters["final_norm.scale"] = jnp.ones(32)
    parameters["head.kernel"] = jnp.asarray(np.roll(codes, 1, axis=0).T)
    return parameters


@pytest.fixture(scope="module")
def random_engine() -> Engine:
    parameters = split(Decoder(CONFIG, rngs=nnx.Rngs(0)))
    return Engine(CONFIG, {path: array if "norm" in path else 4 * array for path, array in parameters.items()})


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(byte_level(merges=False), frozenset({90}))


@pytest.fixture(scope="module")
def successor(tokenizer: Tokenizer) -> Engine:
    return Engine(CONFIG, successor_parameters(), tokenizer=tokenizer)


def test_tokens_follow_each_other(successor: Engine) -> None:
    result = successor.generate([[3, 4, 5]], 6)[0]
    assert (result.tokens, result.finish_reason) == ([6, 7, 8, 9, 10, 11], "length")


def test_an_end_token_stops_and_is_not_in_the_text(successor: Engine, tokenizer: Tokenizer) -> None:
    result = successor.generate([[86]], 20)[0]
    assert (result.tokens, result.finish_reason) == ([87, 88, 89, 90], "stop")
    assert result.text == tokenizer.decode([87, 88, 89])


def test_an_end_token_may_be_ignored(successor: Engine) -> None:
    result = successor.generate([[86]], 6, ignore_eos=True)[0]
    assert (result.tokens, result.finish_reason) == ([87, 88, 89, 90, 91, 92], "length")


def test_the_first_token_may_be_the_end(successor: Engine) -> None:
    result = successor.generate([[89]], 6)[0]
    assert (result.tokens, result.text, result.finish_reason) == ([90], "", "stop")


def test_text_ends_before_a_stop_string_that_spans_tokens(successor: Engine, tokenizer: Tokenizer) -> None:
    text = tokenizer.decode(list(range(41, 60)))
    pieces: list[str] = []
    result = successor.generate([[40]], 15, stop=[text[6:9], "nothing"], on_text=lambda _, piece: pieces.append(piece))[
        0
    ]
    assert result.text == text[:6] == "".join(pieces)
    assert result.finish_reason == "stop"


def test_what_began_like_a_stop_string_comes_out_at_the_end(successor: Engine, tokenizer: Tokenizer) -> None:
    text = tokenizer.decode(list(range(41, 60)))
    result = successor.generate([[40]], 8, stop=[text[6:20]])[0]
    assert (result.text, result.finish_reason) == (text[:8], "length")


def test_texts_of_a_batch_arrive_in_pieces_that_add_up(successor: Engine) -> None:
    pieces = ["", "", ""]

    def collect(index: int, piece: str) -> None:
        pieces[index] += piece

    results = successor.generate([[40], [50, 51], [84]], 9, on_text=collect)
    assert pieces == [result.text for result in results]


@pytest.mark.parametrize(("prompt", "limit", "expected"), [(10, 100, 54), (63, 5, 1), (64, 5, 0), (5, 0, 0)])
def test_a_sequence_never_outgrows_the_model(random_engine: Engine, prompt: int, limit: int, expected: int) -> None:
    result = random_engine.generate([[1] * prompt], limit)[0]
    assert len(result.tokens) == expected and result.finish_reason == "length"


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([[1], []], "prompt 1 is empty"),
        ([[1] * 65], "prompt 0 has 65 tokens, but the model's longest sequence is 64"),
        ([[1, 100, -1]], r"prompt 0 has ids outside the vocabulary of 100: \[-1, 100\]"),
    ],
)
def test_bad_prompts_are_refused_before_anything_runs(
    random_engine: Engine, prompts: list[list[int]], message: str
) -> None:
    with pytest.raises(ZooError, match=message):
        random_engine.stream(prompts)


def test_weights_that_are_no_numbers_are_noticed() -> None:
    parameters = successor_parameters() | {"final_norm.scale": jnp.full(32, jnp.nan)}
    with pytest.raises(ZooError, match="not numbers"):
        Engine(CONFIG, parameters).generate([[1]], 3)


@pytest.mark.parametrize("sampling", [Sampling(), WARM], ids=["greedy", "sampled"])
def test_company_changes_nothing(random_engine: Engine, sampling: Sampling) -> None:
    prompts = [[1], [5, 6, 7], list(range(30)), [9] * 11, [50, 60], [7], [8, 8], [1, 2, 3], [4], [99, 98]]
    together = random_engine.generate(prompts, 12, sampling)
    for prompt, result in zip(prompts, together, strict=True):
        assert random_engine.generate([prompt], 12, sampling)[0].tokens == result.tokens


def test_each_prompt_may_have_settings_of_its_own(random_engine: Engine) -> None:
    settings = [Sampling(), WARM, Sampling(temperature=2.0, seed=1)]
    together = random_engine.generate([[1, 2]] * 3, 12, settings)
    alone = [random_engine.generate([[1, 2]], 12, setting)[0] for setting in settings]
    assert [result.tokens for result in together] == [result.tokens for result in alone]
    assert len({tuple(result.tokens) for result in together}) == 3


def test_equal_seeds_make_equal_samples(random_engine: Engine) -> None:
    first, second, other = (
        random_engine.generate([[1]], 12, Sampling(temperature=1.5, seed=seed))[0].tokens for seed in (1, 1, 2)
    )
    assert first == second != other


def test_a_reused_slot_shows_no_trace_of_its_former_owner(random_engine: Engine) -> None:
    rows: list[list[int]] = []
    for poison in (0.0, 1e4):
        state = random_engine.start(2, 64)
        state = replace(state, cache=jax.tree.map(lambda array, value=poison: array + value, state.cache))
        state = random_engine.insert(state, random_engine.prefill([5, 6, 7], Sampling()), 1)
        row: list[int] = []
        for _ in range(8):
            state, tokens = random_engine.step(state)
            row.append(int(tokens[1]))
        rows.append(row)
    assert rows[0] == rows[1]


@pytest.fixture
def compilations() -> Iterator[list[str]]:
    events: list[str] = []

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield events
    jax.monitoring.unregister_event_duration_listener(listen)


def test_nothing_is_compiled_for_a_token_or_for_a_length(compilations: list[str]) -> None:
    engine = Engine(CONFIG, split(Decoder(CONFIG, rngs=nnx.Rngs(1))))

    def one_round() -> None:
        for length in range(1, 51):
            sampling = Sampling() if length % 2 else Sampling(temperature=0.5 + length, top_k=length, seed=length)
            engine.generate([[3] * length], 1 + length % 7, sampling)

    compilations.clear()
    one_round()
    # Prefill and insertion for 16, 32 and 64 tokens each, with an empty cache of each size, and one step.
    assert len(compilations) <= 12
    compilations.clear()
    one_round()
    assert not compilations


def test_the_cache_is_updated_in_place(random_engine: Engine) -> None:
    slots = random_engine.start(2, 64)
    before = [array.unsafe_buffer_pointer() for array in jax.tree.leaves(slots.cache)]
    slots, _ = random_engine.step(slots)
    assert before == [array.unsafe_buffer_pointer() for array in jax.tree.leaves(slots.cache)]
