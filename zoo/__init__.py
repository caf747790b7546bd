"""Convert Hugging Face checkpoints to Orbax and back, byte for byte, and run them in JAX.

    model = zoo.load("PATH-or-name", dtype="float32")
    model.generate(["What is the capital of France?"], max_new_tokens=32)
    zoo.convert("SOURCE", "DESTINATION", to="orbax")

Nothing heavy is imported before it is used.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import convert
    from .comparison.check import parity
    from .model import load

__all__ = ["convert", "load", "parity"]

_HOMES = {"convert": ".api", "load": ".model", "parity": ".comparison.check"}

try:
    __version__ = version("zoo-jax")
except PackageNotFoundError:  # run from a folder that was never installed
    __version__ = "0"


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
