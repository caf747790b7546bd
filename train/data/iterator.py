"""Batches in an order that the seed decides, from any point of it.

The survey says how many places each row takes, so which rows are in which batch of an epoch is known before any is
read: batch b of epoch e is a function. Where a run stands is these two numbers, however far it came; each process
makes its part of a batch from just the rows that are in it; and how many processes there are changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import xxhash

from zoo.models.errors import ZooError, report_all

from .dataset import Dataset
from .examples import Example
from .order import epoch_order
from .packing import Batch, Plan, fill, pack, pad
from .survey import Survey

STATE_VERSION = 1


@dataclass(frozen=True)
class BatchOptions:
    """What a batch is.

    Attributes:
        batch_size: rows of a batch, over all processes.
        seq_len: places of a row; a row of one example has place for `seq_len + 1` tokens.
        pack: put several examples into a row.
        shuffle: another order in each epoch.
    """

    batch_size: int
    seq_len: int
    pack: bool = True
    shuffle: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        wrong = [
            f"{name}: expected at least {least}, found {value}"
            for name, value, least in (
                ("batch_size", self.batch_size, 1),
                ("seq_len", self.seq_len, 1),
                ("seed", self.seed, 0),
            )
            if value < least
        ]
        report_all(wrong, "the batches cannot be made:")


class Batches:
    """An iterator over the batches of `epochs` epochs, or without end.

    The last batch of an epoch is filled up with rows of padding, which have no weight.
    """

    def __init__(
        self,
        dataset: Dataset,
        survey: Survey,
        options: BatchOptions,
        *,
        epochs: int | None = None,
        process_index: int = 0,
        process_count: int = 1,
    ):
        """
        Raises:
            ZooError: the processes cannot have equal parts of a batch, or an example is longer than a row.
        """
        if options.batch_size % process_count:
            raise ZooError(
                f"batch_size: expected a multiple of the {process_count} processes, found {options.batch_size}"
            )
        if not 0 <= process_index < process_count:
            raise ZooError(f"process_index: expected 0 to {process_count - 1}, found {process_index}")
        self.options = options
        self.epochs = epochs
        self._dataset = dataset
        self._survey = survey
        mine = options.batch_size // process_count
        self._mine = range(process_index * mine, (process_index + 1) * mine)
        self._usable = [
            rows.start + np.flatnonzero(survey.places[rows.start : rows.stop])
            for rows in map(dataset.rows_of, range(len(dataset.sources)))
        ]
        self._epoch = self._batch = 0
        self._planned: tuple[int, np.ndarray, Plan] | None = None
        self._plan(0)

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Batch:
        """The next batch: this process's rows of it, [batch_size / process_count, seq_len]."""
        if self.epochs is not None and self._epoch >= self.epochs:
            raise StopIteration
        batch = self.batch(self._epoch, self._batch)
        self._batch += 1
        if self._batch == self.steps(self._epoch):
            self._epoch, self._batch = self._epoch + 1, 0
        return batch

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, from 0."""
        return self._epoch

    def steps(self, epoch: int) -> int:
        """How many batches an epoch has; packed, two epochs may differ by a few."""
        return -(-len(self._plan(epoch)[1]) // self.options.batch_size)

    def total_steps(self) -> int:
        """How many batches all epochs have.

        Raises:
            ZooError: there is no end.
        """
        if self.epochs is None:
            raise ZooError("epochs: expected a number, found none; batches without end have no total")
        return sum(map(self.steps, range(self.epochs)))

    def rows(self, epoch: int, batch: int) -> list[list[int]]:
        """Which rows of the dataset are in each row of a batch, of all processes."""
        order, plan = self._plan(epoch)
        first = batch * self.options.batch_size
        numbers = range(first, first + self.options.batch_size)
        return [order[plan[number]].tolist() if number < len(plan) else [] for number in numbers]

    def batch(self, epoch: int, batch: int) -> Batch:
        """This process's rows of any batch."""
        rows = self.rows(epoch, batch)
        return fill([[self._example(index) for index in rows[number]] for number in self._mine], self.options.seq_len)

    def state(self) -> dict[str, Any]:
        """Where the iterator stands, as JSON can hold it: the same on each process, and of the same size always."""
        return {
            "version": STATE_VERSION,
            "epoch": self._epoch,
            "batch": self._batch,
            "options": asdict(self.options),
            "data": self._digest(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on where `state` was taken, on however many processes.

        Raises:
            ZooError: it was taken of other data or other options, with which the rows would be others; names them.
        """
        expected = self.state()
        if state.get("version") != STATE_VERSION:
            raise ZooError(f"data state: expected version {STATE_VERSION}, found {state.get('version')!r}")
        taken = state.get("options", {})
        wrong = [
            f"{name}: {taken.get(name)!r} when it was saved, {value!r} now"
            for name, value in expected["options"].items()
            if taken.get(name) != value
        ]
        if state.get("data") != expected["data"]:
            wrong.append("the data: rows, their lengths or the weights of the mixture are not those of the saved run")
        epoch, batch = state.get("epoch"), state.get("batch")
        if not isinstance(epoch, int) or not isinstance(batch, int) or epoch < 0 or batch < 0:
            wrong.append(f"epoch, batch: expected numbers from 0, found {epoch!r} and {batch!r}")
        report_all(wrong, "the order of the data cannot be continued; start anew, or undo these changes:")
        self._epoch, self._batch = int(state["epoch"]), int(state["batch"])

    def _example(self, index: int) -> Example:
        example = self._dataset.example(index)
        found = len(example.tokens) - 1, example.learned.sum()
        if found != (self._survey.places[index], self._survey.learned[index]):
            raise ZooError(
                f"{self._dataset.where(index)}: the row has other tokens than when the run began: the file was "
                "changed, or the chat template writes today's date, which can be set (variables)"
            )
        return example

    def _plan(self, epoch: int) -> tuple[np.ndarray, Plan]:
        """The rows of an epoch in their order, and which of them share a row; one epoch is remembered."""
        if self._planned is None or self._planned[0] != epoch:
            options = self.options
            order = epoch_order(
                self._usable, self._dataset.weights, seed=options.seed, epoch=epoch, shuffle=options.shuffle
            )
            arrange = pack if options.pack else pad
            self._planned = epoch, order, arrange(self._survey.places[order], options.seq_len)
        return self._planned[1:]

    def _digest(self) -> str:
        """Of all that decides the order beside the options."""
        digest = xxhash.xxh3_128(self._survey.places.tobytes())
        digest.update(self._survey.learned.tobytes())
        digest.update(repr([(len(part), source.weight) for part, source in self._parts()]).encode())
        return digest.hexdigest()

    def _parts(self) -> list[tuple[Any, Any]]:
        return list(zip(self._dataset.parts, self._dataset.sources, strict=True))
