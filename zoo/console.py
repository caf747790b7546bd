"""How the command line speaks: results on stdout, all else on stderr, failures as one `error:` and an exit code."""

from __future__ import annotations

import errno
import json
import os
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import typer
from typer.exceptions import TyperException

from zoo.models.errors import ZooError

# Exit codes, beside those that errors carry: 0 done, 1 a check failed, 2 bad input or usage.
INTERNAL = 70
INTERRUPTED = 130


def show(result: Any, as_json: bool) -> None:
    """Prints a result: its `as_json()` as one line, or its `lines()`."""
    if as_json:
        print(json.dumps(result.as_json(), ensure_ascii=False))
    else:
        print("\n".join(result.lines()))


@contextmanager
def failures(debug: bool) -> Generator[None]:
    """Turns exceptions into messages and exit codes; with `debug` they come with their traceback.

    Raises:
        SystemExit: in the place of any exception.
    """
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt as interrupt:
        fail(f"interrupted: {interrupt}" if str(interrupt) else "interrupted", INTERRUPTED, debug)
    except BrokenPipeError:
        # The reader went away, which is its right; Python must not find out again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except typer.Exit as done:
        raise SystemExit(done.exit_code) from None
    except TyperException as error:
        fail(_usage(error), ZooError.exit_code, debug)
    except ZooError as error:
        fail(str(error), error.exit_code, debug)
    except OSError as error:
        fail(_system_error(error), ZooError.exit_code, debug)
    except Exception as error:  # the last resort: a person gets one line, not a page
        hint = "" if debug else "; run again with --debug for the traceback, and report it"
        fail(f"internal: {type(error).__name__}: {error}{hint}", INTERNAL, debug)


def fail(message: str, code: int, debug: bool) -> None:
    """Prints the error and leaves."""
    if debug:
        traceback.print_exc()
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(code) from None


def _usage(error: TyperException) -> str:
    """What is wrong with the command line, and where its help is."""
    context: Any = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "zoo"
    return f"{error.format_message()} (see `{command} --help`)"


def _system_error(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    advice = {
        errno.ENOSPC: "; free some space and run the same command again",
        errno.EDQUOT: "; free some space and run the same command again",
        errno.EACCES: "; check the permissions",
        errno.EPERM: "; check the permissions",
        errno.EROFS: "; choose a place that can be written",
    }
    return f"{where}{error.strerror or error}{advice.get(error.errno or 0, '')}"


class Steps:
    """What long work is at, on a terminal; silent elsewhere."""

    def __init__(self) -> None:
        self._status: Any = None

    def __enter__(self) -> Steps:
        if sys.stderr.isatty():
            from rich.console import Console

            self._status = Console(stderr=True).status("starting")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, what: str) -> None:
        if self._status is not None:
            self._status.update(what)


class Bar:
    """Progress with bytes, rate and time left on a terminal; silent elsewhere."""

    def __init__(self) -> None:
        self._progress: Any = None
        self._task: Any = None

    def start(self, total_bytes: int, what: str) -> None:
        if not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._progress.start()
        self._task = self._progress.add_task(what, total=total_bytes)

    def advance(self, nbytes: int) -> None:
        if self._progress is not None:
            self._progress.advance(self._task, nbytes)

    def finish(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
