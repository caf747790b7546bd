"""The decoder's parameters as one flat mapping from dotted path to array, the form in which they are stored.

`layers.3.attn.q.kernel` is the path of an attribute, so this module knows no name: it walks the modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
from flax import nnx

from .abstract import AbstractParameter
from .config import ModelConfig
from .decoder import Decoder
from .errors import report_all


def abstract_parameters(config: ModelConfig) -> dict[str, AbstractParameter]:
    """Every parameter of the model by path. Allocates nothing, so it is cheap for the largest model."""
    return {
        path: AbstractParameter(tuple(variable.shape), variable.get_metadata("axes"))
        for path, variable in _variables(nnx.state(Decoder(config), nnx.Param)).items()
    }


def split(model: Decoder) -> dict[str, jax.Array]:
    """The parameters of a model by path."""
    return {path: variable.get_value() for path, variable in _variables(nnx.state(model, nnx.Param)).items()}


def merge(config: ModelConfig, parameters: Mapping[str, jax.Array], *, fused: bool = False) -> Decoder:
    """The model with these parameters, `fused` or not; inside a traced function it costs nothing at run time.

    Raises:
        ZooError: a parameter is missing, unknown or of another shape.
    """
    return fill(Decoder(config, fused=fused), parameters)


def fill(model: Decoder, parameters: Mapping[str, jax.Array], *, partly: bool = False) -> Decoder:
    """The model, now with these parameters; where `partly`, the others stay abstract, and their parts must not be used.

    Raises:
        ZooError: a parameter is missing, unknown or of another shape.
    """
    variables = _variables(nnx.state(model, nnx.Param))
    if partly:
        variables = {path: variable for path, variable in variables.items() if path in parameters}
    report_all(_differences(variables, parameters), "the parameters do not fit the model's configuration:")
    for path, variable in variables.items():
        variable.set_value(parameters[path])
    return model


def _variables(state: nnx.State[Any, Any]) -> dict[str, nnx.Param[jax.Array]]:
    return {".".join(map(str, path)): variable for path, variable in nnx.to_flat_state(state)}


def _differences(expected: Mapping[str, nnx.Param[jax.Array]], found: Mapping[str, jax.Array]) -> list[str]:
    missing = [f"{path}: missing" for path in expected if path not in found]
    unknown = [f"{path}: no such parameter in the model" for path in found if path not in expected]
    misshapen = [
        f"{path}: expected shape {tuple(expected[path].shape)}, found {tuple(found[path].shape)}"
        for path in expected
        if path in found and tuple(expected[path].shape) != tuple(found[path].shape)
    ]
    return missing + unknown + misshapen
