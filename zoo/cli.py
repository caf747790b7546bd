"""The command line. Each command imports what it needs when it runs, so that help and mistakes are answered at once."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .console import Bar, failures, show

app = typer.Typer(
    name="zoo",
    help="Convert Hugging Face checkpoints to Orbax and back, byte for byte, and run them in JAX.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
convert = typer.Typer(name="convert", help="Convert a checkpoint.", rich_markup_mode=None)
app.add_typer(convert)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing destination.")]
Dtype = Annotated[str, typer.Option(help="Element type: keep, float32, bfloat16 or float16.")]
Destination = Annotated[Path, typer.Argument(help="What to make; it must not exist.")]
MODEL = "A store, a Hugging Face directory, a .gguf file or a catalog name."


@app.command("list")
def list_command(json: Json = False) -> None:
    """The model families and the named checkpoints."""
    from .listing import Listing

    show(Listing.of_everything(), json)


@app.command()
def inspect(path: Annotated[str, typer.Argument(help=MODEL)], json: Json = False) -> None:
    """What a checkpoint holds, from headers only."""
    from zoo.converters.inspect import inspect

    from .catalog import resolve

    show(inspect(resolve(path)), json)


@convert.command("hf-to-orbax")
def hf_to_orbax(
    source: Annotated[str, typer.Argument(help="A Hugging Face directory.")],
    destination: Destination,
    dtype: Dtype = "keep",
    plan: Annotated[
        bool, typer.Option("--plan", help="Only check, and say what it would take; reads no weights.")
    ] = False,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """A Hugging Face directory to a store: an Orbax checkpoint, and all it takes to get the directory back."""
    _prepare_conversion()
    from zoo.converters.hf_to_orbax import hf_to_orbax, plan_hf_to_orbax

    from .catalog import resolve

    path = resolve(source)
    if plan:
        show(plan_hf_to_orbax(path, destination, dtype=dtype, overwrite=overwrite), json)
        return
    show(hf_to_orbax(path, destination, dtype=dtype, overwrite=overwrite, progress=Bar()), json)


@convert.command("orbax-to-hf")
def orbax_to_hf(
    source: Annotated[Path, typer.Argument(help="A store.")],
    destination: Destination,
    dtype: Dtype = "keep",
    max_shard_size: Annotated[
        str | None, typer.Option(help="Divide the weights anew, into files of at most this size, such as 5GB.")
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """A store to a Hugging Face directory: the very files it came from, unless another form is asked for."""
    _prepare_conversion()
    from zoo.converters.orbax_to_hf import orbax_to_hf

    from .sizes import parse_size

    limit = None if max_shard_size is None else parse_size(max_shard_size, "--max-shard-size")
    report = orbax_to_hf(source, destination, dtype=dtype, max_shard_size=limit, overwrite=overwrite, progress=Bar())
    show(report, json)


@convert.command("gguf-to-hf")
def gguf_to_hf(
    source: Annotated[str, typer.Argument(help="A .gguf file or a catalog name.")],
    destination: Destination,
    dtype: Annotated[str, typer.Option(help="Element type: float32, bfloat16 or float16.")] = "bfloat16",
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """A GGUF file to a Hugging Face directory, dequantised, with its tokenizer and chat template."""
    _prepare_conversion()
    from zoo.converters.gguf_to_hf import gguf_to_hf

    from .catalog import resolve

    show(gguf_to_hf(resolve(source), destination, dtype=dtype, overwrite=overwrite, progress=Bar()), json)


@app.command()
def verify(
    store: Annotated[Path, typer.Argument(help="A store.")],
    against: Annotated[Path | None, typer.Option(help="A Hugging Face directory it must equal, bit by bit.")] = None,
    json: Json = False,
) -> None:
    """Check every tensor of a store against its digest; exits with 1 if one differs."""
    _prepare_conversion()
    from zoo.converters.verify import verify

    result = verify(store, against, Bar())
    show(result, json)
    if not result.ok:
        raise SystemExit(1)


@app.command()
def parity(
    model: Annotated[str, typer.Argument(help=MODEL)],
    against: Annotated[
        str | None,
        typer.Option(
            help="A Hugging Face directory, which transformers runs, or another store or .gguf file; by default what "
            "MODEL was converted from."
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="A folder to write report.json, report.md and report.html to.")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="A JSON lines file of prompts to compare beside the built-in documents.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="What our side computes in: float32, bfloat16 or float16.")] = "float32",
    longest: Annotated[int, typer.Option(help="The most tokens of a random document.")] = 1024,
    json: Json = False,
) -> None:
    """Compare a model's logits, block by block, with those of transformers; exits with 1 if they differ too much."""
    from .allocator import return_freed_memory

    return_freed_memory()
    from .comparison.check import parity
    from .comparison.report_folder import check_report_folder, write_report
    from .compilation import keep_compiled_programs
    from .console import Steps

    keep_compiled_programs()
    if report is not None:
        check_report_folder(report)
    with Steps() as steps:
        result = parity(model, against, dtype=dtype, prompts=prompts, longest=longest, on_progress=steps.show)
    if report is not None:
        write_report(result, report)
    show(result, json)
    if not result.passed:
        raise SystemExit(1)


@app.command()
def decode(
    model: Annotated[str, typer.Argument(help=MODEL)],
    prompt: Annotated[
        str | None, typer.Option(help="The prompt; a user turn where the model has a chat template.")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help='A JSON lines file of prompts: {"prompt": TEXT} or {"messages": [...]}.')
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Give the prompt to the model as it is, without chat template.")
    ] = False,
    max_new_tokens: Annotated[int, typer.Option(help="Tokens to make at most.")] = 256,
    temperature: Annotated[float, typer.Option(help="0 always takes the likeliest token.")] = 0.0,
    top_k: Annotated[int | None, typer.Option(help="Sample among this many likeliest tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Sample among the likeliest tokens of this total probability.")
    ] = None,
    min_p: Annotated[
        float | None, typer.Option(help="Sample among tokens at least this likely, relative to the likeliest.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Equal seeds make equal samples.")] = 0,
    stop: Annotated[list[str] | None, typer.Option(help="Text to stop before; may be given several times.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Element type to compute in: float32, bfloat16 or float16.")] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each prompt and nothing else.")
    ] = False,
) -> None:
    """Let a model speak; the text streams to stdout as it is made."""
    from .decoding import decode

    decode(
        model,
        prompt=prompt,
        prompts=prompts,
        raw=raw,
        dtype=dtype,
        as_json=json,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
        stop=stop or [],
    )


def _prepare_conversion() -> None:
    from .allocator import reuse_freed_memory

    reuse_freed_memory()
    # No accelerator takes part, and none is to be reserved.
    os.environ["JAX_PLATFORMS"] = "cpu"


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Convert Hugging Face checkpoints to Orbax and back, byte for byte, and run them in JAX."""
    if version:
        from . import __version__

        print(f"zoo {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


def main(arguments: list[str] | None = None) -> None:
    """Runs a command; exits with 0 done, 1 a check failed, 2 bad input or usage, 130 interrupted, 70 a fault of zoo."""
    given = sys.argv[1:] if arguments is None else arguments
    # Anywhere on the line: a person adds it to the end of a command that failed.
    debug = "--debug" in given
    signal.signal(signal.SIGTERM, _interrupt)
    # What the imports make stays: looking for garbage among it is a tenth of the time that they take.
    gc.set_threshold(200_000)
    with failures(debug):
        command = typer.main.get_command(app)
        # Not through the app itself, which has its own ways with interrupts and closed pipes.
        with command.make_context("zoo", [argument for argument in given if argument != "--debug"]) as context:
            command.invoke(context)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
