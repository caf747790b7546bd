"""A GGUF file seen as Hugging Face tensors, through the GGUF column of its family."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

from zoo.models.config import Attention, GatedDeltaNet, ModelConfig
from zoo.models.errors import ZooError, report_all
from zoo.models.parameters import abstract_parameters

from .family import Family
from .gguf import GgufFile, GgufTensor
from .gguf_column import FURTHER_TOKENS, GgufColumn
from .gguf_config import PASSENGERS, column_of, hf_config
from .layout import Binding, Pattern, Row, bind, fill, match
from .source import FLOATS, SAFETENSORS_NAMES, TensorHeader


@dataclass(frozen=True)
class _Place:
    """Where a Hugging Face tensor is in the file: in these tensors, or this member of one, arranged like this."""

    tensors: tuple[GgufTensor, ...]
    arrange: Callable[..., np.ndarray]


@dataclass(frozen=True)
class GgufSource:
    """The tensors of a GGUF file under their Hugging Face names, dequantised as they are read. A `TensorSource`."""

    file: GgufFile
    config: Mapping[str, Any]
    family: Family
    headers: Mapping[str, TensorHeader]
    _places: Mapping[str, _Place]

    def read(self, name: str) -> np.ndarray:
        place = self._places[name]
        return place.arrange(*(tensor.read() for tensor in place.tensors))

    def where(self, name: str) -> str:
        return str(self.file.path)


def open_gguf(path: Path) -> GgufSource:
    """Opens a GGUF file and finds every tensor's row.

    Raises:
        ZooError: no row knows a tensor, or one that a row needs is missing.
    """
    file = GgufFile.open(path)
    family, column = column_of(file.metadata, str(path))
    config = hf_config(file.metadata, file.tensors, str(path))
    network = family.config(config)
    if len(network.layers) > len(file.tensors):
        # Said at once: a damaged number of blocks may be millions.
        raise ZooError(
            f"{path}: the metadata has {len(network.layers)} blocks, the file only {len(file.tensors)} tensors"
        )
    parameters = abstract_parameters(network)
    # A family may name and divide its tensors in several ways; the file is the same for all of them.
    results = [_find(file, column, table, parameters, network) for table in family.tables]
    places, problems = min(results, key=lambda result: len(result[1]))
    report_all(problems, f"{path}: the tensors do not fit the metadata:")
    headers = {name: header for name, (header, _) in places.items()}
    return GgufSource(file, config, family, headers, {name: place for name, (_, place) in places.items()})


def _find(
    file: GgufFile, column: GgufColumn, table: Sequence[Row], parameters: Mapping[str, Any], network: ModelConfig
) -> tuple[dict[str, tuple[TensorHeader, _Place]], list[str]]:
    """The place of each tensor that a table names, and what is wrong."""
    places: dict[str, tuple[TensorHeader, _Place]] = {}
    used: set[str] = set(PASSENGERS)
    bindings, problems = bind(table, parameters)
    for binding in bindings:
        places_of_row, wrong = _place(file, column, binding, parameters, _offset(network, binding.natives[0]), used)
        places |= places_of_row
        problems += wrong
    used |= {name for name in file.tensors if _takes_no_part(name, column, network)}
    problems += [f"unknown tensor {name} {list(t.shape)}" for name, t in file.tensors.items() if name not in used]
    return places, problems


def _place(
    file: GgufFile,
    column: GgufColumn,
    binding: Binding,
    parameters: Mapping[str, Any],
    offset: float,
    used: set[str],
) -> tuple[dict[str, tuple[TensorHeader, _Place]], list[str]]:
    """The places of a binding's source tensors, and what is wrong; the file's tensors among them are noted as used."""
    template = gguf_name(column, binding.row.source)
    name = fill(template, _indices(binding)) if template else None
    parts = _parts(column, binding, parameters)
    # Of what the converter divides, older files may have the whole.
    if parts and name not in file.tensors:
        shapes = {part.sources[0]: part.source_shape for part in parts}
        found, problems = _floats(file, shapes, used)
        if problems:
            return {}, problems
        kinds = {tensor.dtype for tensor in found}
        kind = kinds.pop() if len(kinds) == 1 else np.dtype(np.float32)
        header = TensorHeader(SAFETENSORS_NAMES[kind], binding.source_shape)
        return {binding.sources[0]: (header, _Place(tuple(found), _joined(binding, parts, kind)))}, []
    stacked = (len(binding.sources),) if binding.row.stacked_index is not None else ()
    whole = {name or binding.sources[0]: (*stacked, *binding.source_shape)}
    found, problems = _floats(file, whole, used, check_shapes=False)
    if problems:
        return {}, problems
    [tensor] = found
    members = tensor.members() if stacked else [tensor]
    arranged = _arrangement(column, binding, members[0].shape, parameters)
    if isinstance(arranged, list) or len(members) != len(binding.sources):
        expected = [*stacked, *(arranged if isinstance(arranged, list) else binding.source_shape)]
        return {}, [f"tensor {name} has shape {list(tensor.shape)}, the metadata asks for {expected}"]
    # GGUF holds the scales of norms as they multiply; some families' files hold what is added to an offset. Of rates
    # at which a state decays it holds what time is multiplied by, families' files the logarithm.
    kept = offset == 0
    arrange = arranged if kept else _unshifted(arranged, offset)
    if binding.natives[0].endswith(".decay_rate"):
        kept, arrange = False, _logarithms(arranged, f"{file.path}: tensor {name}")
    header = TensorHeader(SAFETENSORS_NAMES[tensor.dtype] if kept else "F32", binding.source_shape)
    return {
        source: (header, _Place((member,), arrange)) for source, member in zip(binding.sources, members, strict=True)
    }, []


def _floats(
    file: GgufFile, shapes: Mapping[str, tuple[int, ...]], used: set[str], *, check_shapes: bool = True
) -> tuple[list[GgufTensor], list[str]]:
    """The file's tensors of these names and shapes, noted as used, and what is wrong."""
    found: list[GgufTensor] = []
    problems: list[str] = []
    for name, shape in shapes.items():
        if name not in file.tensors:
            problems.append(f"missing tensor {name}, expected with shape {list(shape)}")
            continue
        used.add(name)
        tensor = file.tensors[name]
        kind = SAFETENSORS_NAMES[tensor.dtype]
        if kind not in FLOATS:
            problems.append(f"tensor {name} holds {kind}, expected floating point or a quantisation of it")
        elif check_shapes and tensor.shape != shape:
            problems.append(f"tensor {name} has shape {list(tensor.shape)}, the metadata asks for {list(shape)}")
        else:
            found.append(tensor)
    return found, problems


def _indices(binding: Binding) -> dict[str, int]:
    return match(binding.row.source, binding.sources[0]) or {}


def _parts(column: GgufColumn, binding: Binding, parameters: Mapping[str, Any]) -> list[Binding]:
    """The file's own division of a source tensor, one binding for each of its tensors; none where it has the whole."""
    divided = next((parts for end, parts in column.divided.items() if binding.row.source.endswith(end)), {})
    result: list[Binding] = []
    natives = list(binding.natives)
    for name, patterns in divided.items():
        count = 1 if isinstance(patterns, str) else len(patterns)
        mine, natives = natives[:count], natives[count:]
        row = Row(fill(name, _indices(binding)), mine[0] if isinstance(patterns, str) else tuple(mine), patterns)
        [part], _ = bind([row], {native: parameters[native] for native in mine})
        result.append(part)
    return result


def _joined(binding: Binding, parts: Sequence[Binding], kind: np.dtype) -> Callable[..., np.ndarray]:
    """What makes a source tensor of the file's tensors that divide its parameters among them."""

    def join(*arrays: np.ndarray) -> np.ndarray:
        natives = (
            native for part, array in zip(parts, arrays, strict=True) for native in part.import_([array.astype(kind)])
        )
        return binding.export(list(natives))[0]

    return join


def _offset(network: ModelConfig, native: str) -> float:
    """What a norm adds to its scale; 0 for what is no scale of a norm."""
    if not native.endswith(".scale"):
        return 0.0
    found = match("layers.{i}.attn.norm.scale", native)
    mixer = network.layers[found["i"]].attn if found else None
    return mixer.norm.offset if isinstance(mixer, GatedDeltaNet) else network.final_norm.offset


def _takes_no_part(name: str, column: GgufColumn, network: ModelConfig) -> bool:
    """Whether a tensor is of a block that predicts further tokens, or of keys and values where another's are used."""
    found = re.fullmatch(r"blk\.(\d+)\.(.*)", name)
    if found is None:
        return False
    index = int(found[1])
    if index >= len(network.layers):
        return FURTHER_TOKENS in column.fields
    mixer = network.layers[index].attn
    shares = isinstance(mixer, Attention) and mixer.shares is not None
    return shares and found[2] in ("attn_k.weight", "attn_v.weight", "attn_k_norm.weight")


@cache
def _library_names(architecture: str) -> Callable[[str], str | None]:
    """The `gguf` library's own table of an architecture's names, for its first block."""
    [number] = [number for number, name in MODEL_ARCH_NAMES.items() if name == architecture]
    names = get_tensor_name_map(number, 1)
    return lambda key: names.get_name(key, (".weight", ".bias"))


def gguf_name(column: GgufColumn, source: str) -> str | None:
    """The template of a tensor's name in GGUF, from that of its Hugging Face name; None where there is no such tensor.

    Members of a stack are one tensor there, so their index is dropped.
    """
    for end, name in column.tensors.items():
        if source.endswith(end):
            return name
    block, layer = "blk.0.", "{i}"
    key = re.sub(r"\.\{\w+\}", "", source.replace(layer, "0"))
    found = _library_names(column.architecture)(key)
    return found.replace(block, f"blk.{layer}.") if found and layer in source else found


def _arrangement(
    column: GgufColumn, binding: Binding, shape: tuple[int, ...], parameters: Mapping[str, Any]
) -> Callable[[np.ndarray], np.ndarray] | list[int]:
    """What brings a GGUF tensor into the Hugging Face layout, or the shape that it should have."""
    source = binding.row.source
    patterns = next((pattern for end, pattern in column.patterns.items() if source.endswith(end)), None)
    if patterns is None:
        return list(binding.source_shape) if shape != binding.source_shape else lambda array: array
    if isinstance(patterns, tuple):
        mine = {native: parameters[native] for native in binding.natives}
        [there], _ = bind([replace(binding.row, pattern=patterns)], mine)
        if shape != there.source_shape:
            return list(there.source_shape)
        # The source's own division of the same parameters.
        return lambda array: binding.export(there.import_([array]))[0]
    pattern = Pattern.parse(patterns)
    axes = {axis for group in pattern.left for axis in group}
    known = {axis: size for axis, size in binding.sizes[0].items() if axis in axes}
    if "pairs" in axes:
        # A rotation turns pairs: the axis `two` of a head is its pair, `pairs` are half of its width.
        known |= {"two": 2, "pairs": binding.sizes[0]["head_dim"] // 2}
    try:
        sizes = pattern.sizes(shape, known)
    except ValueError:
        return list(binding.source_shape)
    if pattern.left_shape(sizes) != binding.source_shape:
        return list(binding.source_shape)
    # The column's pattern leads from the Hugging Face layout to GGUF's.
    return lambda array: pattern.backward(array, sizes)


def _unshifted(arrange: Callable[[np.ndarray], np.ndarray], offset: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda array: arrange(array).astype(np.float32) - np.float32(offset)


def _logarithms(arrange: Callable[[np.ndarray], np.ndarray], what: str) -> Callable[[np.ndarray], np.ndarray]:
    def read(array: np.ndarray) -> np.ndarray:
        rates = -arrange(array).astype(np.float64)
        if not np.all(rates > 0):
            raise ZooError(f"{what} holds rates of decay, which are all below 0; the largest is {-rates.min():g}")
        return np.log(rates).astype(np.float32)

    return read
