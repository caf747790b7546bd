"""Work spread over threads whose results come in order and whose memory is bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

# Reading, permuting, hashing and writing all leave Python's lock; a third thread fills two cores' waits for the disk.
WORKERS = 3


def in_order(
    tasks: Iterable[Task], work: Callable[[Task], Result], cost: Callable[[Task], int], budget: int
) -> Iterator[Result]:
    """Yields `work(task)` for each task, in order, working ahead while the results held cost at most `budget`.

    A task that costs more than the budget runs alone. A result is held until the next one is asked for.
    """
    waiting: deque[tuple[Future[Result], int]] = deque()
    held = 0
    executor = ThreadPoolExecutor(WORKERS)
    try:
        for task in tasks:
            price = cost(task)
            while waiting and held + price > budget:
                future, paid = waiting.popleft()
                yield future.result()
                del future
                held -= paid
            waiting.append((executor.submit(work, task), price))
            held += price
        while waiting:
            yield waiting.popleft()[0].result()
    finally:
        executor.shutdown(wait=True, cancel_futures=True)
