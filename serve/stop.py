"""Stop strings in a text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Sequence

from zoo.models.errors import ZooError


class StopStrings:
    """Passes text on up to the first stop string.

    The end of the text so far is held back for as long as it may be the beginning of a stop string, so nothing is
    given out that has to be taken back.
    """

    def __init__(self, stops: Sequence[str]):
        if not all(stops):
            raise ZooError("a stop string is empty: it would match everywhere")
        self._stops = tuple(stops)
        self._held = ""
        self.stopped = False

    def push(self, piece: str) -> str:
        """The text that is certain to come before any stop string."""
        if self.stopped:
            return ""
        text = self._held + piece
        matches = [index for stop in self._stops if (index := text.find(stop)) >= 0]
        if matches:
            self.stopped, self._held = True, ""
            return text[: min(matches)]
        held = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def finish(self) -> str:
        """What was held back, now that no more will come."""
        rest, self._held = self._held, ""
        return rest


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` begin `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
