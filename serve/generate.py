"""Continuing many prompts on an engine's slots, and turning their tokens into text.

The newest tokens stay on the device: step n + 1 is started before the tokens of step n are read, so the host's work on
text runs while the device computes. An end token is therefore seen one step late, and the surplus token thrown away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import jax
import numpy as np

from zoo.models.errors import ZooError, report_all
from zoo.models.tokenizer import TextStream

from .sampler import NOT_A_NUMBER, Sampling
from .stop import StopStrings

if TYPE_CHECKING:
    from .engine import Engine, Slots

FinishReason = Literal["stop", "length"]
# Room for new tokens that the cache has from the start; it grows where a continuation gets longer.
ROOM = 256


@dataclass(frozen=True)
class Request:
    """A prompt and how to continue it."""

    prompt: tuple[int, ...]
    max_new_tokens: int
    sampling: Sampling
    stop: tuple[str, ...]
    ignore_eos: bool


@dataclass(frozen=True)
class Result:
    """A continuation.

    Attributes:
        text: what was written, without the end token and up to the stop string; empty without a tokenizer.
        tokens: all tokens that were made, the end token among them.
        finish_reason: "stop" at an end token or a stop string, "length" at a limit.
    """

    text: str
    tokens: list[int]
    finish_reason: FinishReason


@dataclass(frozen=True)
class Piece:
    """What one new token adds to the continuation of prompt `index`; the last piece has the result.

    There is no token where the limit allows none.
    """

    index: int
    text: str
    token: int | None
    result: Result | None


@dataclass
class _Sequence:
    """A request while it is being continued. `started` counts its tokens whose computation has begun."""

    index: int
    request: Request
    limit: int
    eos: frozenset[int]
    stream: TextStream | None
    stops: StopStrings
    tokens: list[int] = field(default_factory=list)
    started: int = 0
    text: str = ""
    result: Result | None = None

    @property
    def length(self) -> int:
        """Tokens that the sequence has or will have when all that was started is done."""
        return len(self.request.prompt) + self.started

    def accept(self, token: int) -> Piece:
        """Takes the next token."""
        if token == NOT_A_NUMBER:
            raise ZooError(f"prompt {self.index}: the model's logits are not numbers: are its weights damaged?")
        self.tokens.append(token)
        ended = token in self.eos
        new = "" if ended or self.stream is None else self.stops.push(self.stream.push(token))
        finished = ended or self.stops.stopped or len(self.tokens) == self.limit
        if finished and self.stream is not None:
            new += self.stops.push(self.stream.finish()) + self.stops.finish()
        self.text += new
        if finished:
            reason: FinishReason = "stop" if ended or self.stops.stopped else "length"
            self.result = Result(self.text, self.tokens, reason)
        return Piece(self.index, new, token, self.result)


# Tokens that are being computed, and the sequence that each row of them belongs to.
_Pending = tuple[jax.Array, dict[int, _Sequence]]


def run(engine: Engine, requests: Sequence[Request]) -> Iterator[Piece]:
    """Continues all requests, as many at a time as the engine has slots."""
    _check(engine, requests)
    return _continue(engine, [_sequence(engine, index, request) for index, request in enumerate(requests)])


def _continue(engine: Engine, sequences: Sequence[_Sequence]) -> Iterator[Piece]:
    for sequence in sequences:
        if sequence.limit <= 0:
            yield Piece(sequence.index, "", None, Result("", [], "length"))
    waiting = deque(sequence for sequence in sequences if sequence.limit > 0)
    if not waiting:
        return
    batch = min(1 << (len(waiting) - 1).bit_length(), engine.slots)
    slots = engine.start(batch, max(sequence.length + min(sequence.limit, ROOM) for sequence in waiting))
    seated: dict[int, _Sequence] = {}
    pending: deque[_Pending] = deque()
    while waiting or seated:
        slots = _admit(engine, slots, batch, waiting, seated, pending)
        unfinished = {slot: sequence for slot, sequence in seated.items() if sequence.started < sequence.limit}
        steady = {slot: one for slot, one in unfinished.items() if engine.can_extend(one.length - 1)}
        outgrown = unfinished.keys() - steady.keys()
        if steady:
            slots = engine.reserve(slots, max(sequence.length for sequence in steady.values()))
            slots, tokens = engine.step(slots)
            for sequence in steady.values():
                sequence.started += 1
            pending.append((tokens, steady))
        # While a step is on its way, the ones before it are read; a sequence that is to be read again must be whole.
        while len(pending) > (1 if steady and not outgrown else 0):
            yield from _read(*pending.popleft())
        for slot, sequence in list(seated.items()):
            if sequence.result is not None or slot in outgrown:
                del seated[slot]
            if sequence.result is None and slot in outgrown:
                waiting.appendleft(sequence)


def _admit(
    engine: Engine,
    slots: Slots,
    batch: int,
    waiting: deque[_Sequence],
    seated: dict[int, _Sequence],
    pending: deque[_Pending],
) -> Slots:
    """Fills free slots; a sequence that had to leave its slot is read again with all that it has so far."""
    for slot in range(batch):
        if not waiting:
            break
        if slot in seated:
            continue
        sequence = waiting.popleft()
        prefix = engine.prefill((*sequence.request.prompt, *sequence.tokens), sequence.request.sampling)
        slots = engine.insert(slots, prefix, slot)
        sequence.started += 1
        seated[slot] = sequence
        pending.append((prefix.token, {0: sequence}))
    return slots


def _read(tokens: jax.Array, owners: dict[int, _Sequence]) -> Iterator[Piece]:
    """Waits for tokens and hands each to its sequence, unless that has ended meanwhile."""
    values = np.asarray(tokens)
    for row, sequence in owners.items():
        if sequence.result is None:
            yield sequence.accept(int(values[row]))


def _sequence(engine: Engine, index: int, request: Request) -> _Sequence:
    tokenizer = engine.tokenizer
    return _Sequence(
        index=index,
        request=request,
        limit=min(request.max_new_tokens, engine.config.max_positions - len(request.prompt)),
        eos=frozenset() if tokenizer is None or request.ignore_eos else tokenizer.eos,
        stream=None if tokenizer is None else TextStream(tokenizer),
        stops=StopStrings(request.stop),
    )


def _check(engine: Engine, requests: Sequence[Request]) -> None:
    problems: list[str] = []
    for index, request in enumerate(requests):
        length, longest, vocab = len(request.prompt), engine.config.max_positions, engine.config.vocab
        if not length:
            problems.append(f"prompt {index} is empty: expected at least one token")
        if length > longest:
            problems.append(f"prompt {index} has {length} tokens, but the model's longest sequence is {longest}")
        if unknown := sorted({token for token in request.prompt if not 0 <= token < vocab}):
            problems.append(f"prompt {index} has ids outside the vocabulary of {vocab}: {unknown[:5]}")
        if request.max_new_tokens < 0:
            problems.append(f"max_new_tokens is {request.max_new_tokens}: expected 0 or more")
        if request.stop and engine.tokenizer is None:
            problems.append("stop strings need a tokenizer, and the engine has none")
    report_all(problems, "cannot continue the prompts:")
