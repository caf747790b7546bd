"""Everything a command takes as a MODEL, behind one face: a store, a model directory or a GGUF file."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from zoo.converters.family import family_of
from zoo.converters.gguf_config import generation_config
from zoo.converters.gguf_source import open_gguf
from zoo.converters.gguf_tokenizer import write_tokenizer
from zoo.converters.hf_dir import open_hf_directory
from zoo.converters.load import load_parameters
from zoo.converters.plan import plan_conversion
from zoo.models.checkpoint import is_store, looks_unfinished, open_store
from zoo.models.config import ModelConfig
from zoo.models.parameters import abstract_parameters

Shardings = Mapping[str, Any] | None


class Load(Protocol):
    """Loads parameters, all or those with these paths, as arrays of an element type in their shardings."""

    def __call__(self, dtype: Any, shardings: Shardings, paths: Iterable[str] | None = None) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Source:
    """A checkpoint ready to be loaded: its network, its parameters on demand, and the folder of its tokenizer."""

    config: ModelConfig
    load: Load
    tokenizer_folder: Path


@contextmanager
def open_source(path: Path) -> Generator[Source]:
    """Opens a checkpoint of any kind; headers and configuration are checked, no weight is read yet.

    The tokenizer's folder is there until the context ends.

    Raises:
        ZooError: there is no checkpoint, or it contradicts itself.
    """
    if path.is_file():
        with TemporaryDirectory(prefix="zoo-") as folder:
            yield _gguf(path, Path(folder))
    elif is_store(path) or looks_unfinished(path) or not path.exists():
        store = open_store(path)
        every = list(abstract_parameters(store.config))

        def load(dtype: Any, shardings: Shardings, paths: Iterable[str] | None = None) -> dict[str, Any]:
            return store.load(every if paths is None else paths, shardings, dtype)

        yield Source(store.config, load, store.side_files)
    else:
        directory = open_hf_directory(path)
        family = family_of(directory.config, str(path / "config.json"))
        plan = plan_conversion(family, directory.config, directory)
        yield Source(plan.config, partial(load_parameters, plan, directory), path)


def _gguf(path: Path, folder: Path) -> Source:
    gguf = open_gguf(path)
    plan = plan_conversion(gguf.family, gguf.config, gguf)
    (folder / "config.json").write_text(json.dumps(gguf.config), encoding="utf-8")
    (folder / "generation_config.json").write_text(json.dumps(generation_config(gguf.file.metadata)), encoding="utf-8")
    write_tokenizer(gguf.file.metadata, folder, str(path))
    return Source(plan.config, partial(load_parameters, plan, gguf), folder)
