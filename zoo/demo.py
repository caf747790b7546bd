"""`make demo`: the main job, end to end, on a real model; what an earlier run finished is used again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from .catalog import catalog, resolve
from .console import failures

NAME = "smollm2-135m-instruct"
QUESTION = "What is the capital of France?"
ANSWER = "Paris"
FOLDER = Path("demo")


def main() -> None:
    """Converts, checks, exports and asks; exits with 1 where a check fails."""
    with failures(debug="--debug" in sys.argv):
        start = time.monotonic()
        weights = catalog()[NAME].weights
        package = "" if weights is None else f", from the package {weights.requirement}"
        gguf = _step(f"the checkpoint {NAME}{package}", lambda: resolve(NAME))
        source, store, back = FOLDER / "hf", FOLDER / "store", FOLDER / "hf-again"
        _make("GGUF to Hugging Face", gguf, source)
        _make("Hugging Face to Orbax", source, store)
        _make("Orbax to Hugging Face", store, back)
        _verify(store, source)
        _compare(source, back)
        _ask(store)
        print(f"done in {time.monotonic() - start:.1f} s")


def _step(what: str, work: Callable[[], Path]) -> Path:
    start = time.monotonic()
    path = work()
    print(f"{what}: {_size(path)}, {time.monotonic() - start:.1f} s", flush=True)
    return path


def _make(what: str, source: Path, destination: Path) -> None:
    from .api import convert

    if destination.exists():
        # A destination appears whole or not at all, so one that is there is complete.
        print(f"{what}: {destination} is there, {_size(destination)}", flush=True)
        return
    to = "orbax" if destination.name == "store" else "hf"
    _step(f"{what}: {destination}", lambda: (convert(source, destination, to=to), destination)[1])


def _size(path: Path) -> str:
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return f"{sum(p.stat().st_size for p in files) / 1e6:.1f} MB"


def _verify(store: Path, source: Path) -> None:
    from zoo.converters.verify import verify

    result = verify(store, source)
    print("\n".join(result.lines()), flush=True)
    if not result.ok:
        raise SystemExit(1)


def _compare(one: Path, other: Path) -> None:
    """The two directories, file by file, by sha256."""
    from zoo.converters.digest import file_sha256

    digests = [{p.relative_to(f): file_sha256(p) for p in sorted(f.rglob("*")) if p.is_file()} for f in (one, other)]
    for name in sorted(digests[0].keys() | digests[1].keys()):
        first, second = (side.get(name) for side in digests)
        print(f"  {'equal  ' if first == second else 'DIFFERS'} {(first or second or '')[:16]}... {name}", flush=True)
    if digests[0] != digests[1]:
        print(f"error: {one} and {other} differ; remove {other} and run again to make it anew", file=sys.stderr)
        raise SystemExit(1)
    print(f"{one} and {other} are equal, file by file, by sha256", flush=True)


def _ask(store: Path) -> None:
    from .compilation import keep_compiled_programs
    from .model import load

    keep_compiled_programs()
    start = time.monotonic()
    model = load(store)
    print(f"> {QUESTION}", flush=True)

    def stream(_: int, text: str) -> None:
        print(text, end="", flush=True)

    [result] = model.generate([QUESTION], max_new_tokens=32, on_text=stream)
    print(f"\n({len(result.tokens)} tokens, {time.monotonic() - start:.1f} s with loading and compiling)", flush=True)
    if ANSWER not in result.text:
        print(f"error: expected an answer that names {ANSWER}", file=sys.stderr)
        raise SystemExit(1)


if __name__ == "__main__":
    main()
