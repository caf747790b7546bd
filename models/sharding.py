"""Where parameters live on a mesh of devices: logical axes meet mesh axes in one table of rules.

Parameters name their logical axes where they are declared; a mesh names its own. Re-targeting a model to another mesh
is editing the rules, never the layers.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .abstract import AbstractParameter
from .errors import report_all

# Axes of a mesh: copies of the model, parts of every parameter, parts of the matrices that compute in parallel,
# parts of the experts.
MESH_AXES = ("data", "fsdp", "tensor", "expert")
# For each logical axis the mesh axis that divides it; an axis that is not here is whole on every device.
RULES: Mapping[str, str] = {
    "embed": "fsdp",
    "vocab": "tensor",
    "heads": "tensor",
    "kv_heads": "tensor",
    "ffn": "tensor",
    "channels": "tensor",
    "experts": "expert",
}


def parameter_shardings(
    parameters: Mapping[str, AbstractParameter], mesh: Mesh, rules: Mapping[str, str] = RULES
) -> dict[str, NamedSharding]:
    """The sharding of each parameter.

    An axis whose size the mesh axis does not divide is left whole, as with 3 key heads on 2 devices.

    Raises:
        ZooError: the mesh has unknown axes, or the rules put two axes of one parameter on one mesh axis.
    """
    unknown = [name for name in mesh.axis_names if name not in MESH_AXES]
    report_all((f"{name}: expected one of {', '.join(MESH_AXES)}" for name in unknown), "the mesh has unknown axes:")
    report_all(_collisions(parameters, rules), "the sharding rules put two axes of a parameter on one mesh axis:")
    return {
        path: NamedSharding(
            mesh, PartitionSpec(*(_divide(axis, size, mesh, rules) for axis, size in zip(p.axes, p.shape, strict=True)))
        )
        for path, p in parameters.items()
    }


def _divide(axis: str, size: int, mesh: Mesh, rules: Mapping[str, str]) -> str | None:
    target = rules.get(axis)
    return target if target in mesh.axis_names and size % mesh.shape[target] == 0 else None


def _collisions(parameters: Mapping[str, AbstractParameter], rules: Mapping[str, str]) -> list[str]:
    problems: list[str] = []
    for path, parameter in parameters.items():
        targets = [rules[axis] for axis in parameter.axes if axis in rules]
        for target in sorted({t for t in targets if targets.count(t) > 1}):
            both = [axis for axis in parameter.axes if rules.get(axis) == target]
            problems.append(f"{path}: {' and '.join(both)} are both on {target}")
    return problems


def make_mesh(**sizes: int) -> Mesh:
    """A mesh over the first devices, such as `make_mesh(fsdp=4, tensor=2)`."""
    return jax.make_mesh(tuple(sizes.values()), tuple(sizes), axis_types=(jax.sharding.AxisType.Auto,) * len(sizes))
