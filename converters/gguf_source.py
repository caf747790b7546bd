"""A GGUF file seen as Hugging Face tensors, through the GGUF column of its family's table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zoo.models.errors import ZooError, report_all
from zoo.models.parameters import abstract_parameters

from .family import Family, family_of
from .gguf import GgufFile
from .gguf_config import PASSENGERS, hf_config
from .layout import Pattern, bind, fill, match
from .source import FLOATS, SAFETENSORS_NAMES, TensorHeader


@dataclass(frozen=True)
class _Column:
    """One tensor's place in the file: its name there, and how to bring it into the Hugging Face layout."""

    name: str
    pattern: Pattern | None
    sizes: Mapping[str, int]


@dataclass(frozen=True)
class GgufSource:
    """The tensors of a GGUF file under their Hugging Face names, dequantised as they are read. A `TensorSource`."""

    file: GgufFile
    config: Mapping[str, Any]
    family: Family
    headers: Mapping[str, TensorHeader]
    _columns: Mapping[str, _Column]

    def read(self, name: str) -> np.ndarray:
        column = self._columns[name]
        array = self.file.read(column.name)
        if column.pattern is None:
            return array
        # The column's pattern leads from the Hugging Face layout to GGUF's.
        return column.pattern.backward(array, column.sizes)

    def where(self, name: str) -> str:
        return str(self.file.path)


def open_gguf(path: Path) -> GgufSource:
    """Opens a GGUF file and finds every tensor's row.

    Raises:
        ZooError: no row knows a tensor, or one that a row needs is missing.
    """
    file = GgufFile.open(path)
    config = hf_config(file.metadata, file.tensors, str(path))
    blocks = config["num_hidden_layers"]
    if blocks > len(file.tensors):
        # Said at once: a damaged number of blocks may be millions.
        raise ZooError(f"{path}: the metadata has {blocks} blocks, the file only {len(file.tensors)} tensors")
    family = family_of(config, str(path))
    columns: dict[str, _Column] = {}
    headers: dict[str, TensorHeader] = {}
    bindings, problems = bind(family.tables[0], abstract_parameters(family.config(config)))
    for binding in bindings:
        column = binding.row.gguf
        values = match(binding.row.source, binding.sources[0]) or {}
        name = fill(column.name, values) if column else None
        if column is None or name is None or name not in file.tensors:
            problems.append(
                f"missing tensor {name or binding.sources[0]}, expected with shape {list(binding.source_shape)}"
            )
            continue
        tensor = file.tensors[name]
        if tensor.shape != binding.source_shape:
            problems.append(
                f"tensor {name} has shape {list(tensor.shape)}, the metadata asks for {list(binding.source_shape)}"
            )
            continue
        dtype = SAFETENSORS_NAMES[tensor.dtype]
        if dtype not in FLOATS:
            problems.append(f"tensor {name} holds {dtype}, expected floating point or a quantisation of it")
            continue
        columns[binding.sources[0]] = _column(name, column.pattern, binding.sizes[0])
        headers[binding.sources[0]] = TensorHeader(dtype, tensor.shape)
    known = {column.name for column in columns.values()} | set(PASSENGERS)
    problems += [f"unknown tensor {name} {list(t.shape)}" for name, t in file.tensors.items() if name not in known]
    report_all(problems, f"{path}: the tensors do not fit the metadata:")
    return GgufSource(file, config, family, headers, columns)


def _column(name: str, text: str | None, row_sizes: Mapping[str, int]) -> _Column:
    if text is None:
        return _Column(name, None, {})
    pattern = Pattern.parse(text)
    sizes = {axis: size for axis, size in row_sizes.items() if any(axis in group for group in pattern.left)}
    # A rotation turns pairs: the axis `two` of a head is its pair, `pairs` are half of its width.
    sizes |= {"two": 2, "pairs": row_sizes["head_dim"] // 2}
    return _Column(name, pattern, sizes)
