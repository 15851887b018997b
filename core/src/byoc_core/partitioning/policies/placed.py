"""The policy following a placement made before, such as a measured placement, and schedules chosen before."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from byoc_core.backend.registry import HOST_NAME
from byoc_core.errors import OptionsError
from byoc_core.ir import COMPOSITE, Binding, Function, IRModule
from byoc_core.partitioning.claiming.request import PartitionRequest
from byoc_core.partitioning.op_sites import OpKey, bodies_of, members_of, op_key
from byoc_core.pattern import Rejection
from byoc_core.printable import to_printable
from byoc_core.transform.rewrite import map_functions, map_regions, with_bindings

_LOGGER = logging.getLogger("byoc_core")

__all__ = ["PlacedOps", "placement_key", "with_schedules"]


def placement_key(key: OpKey) -> str:
    """Return the name of an op in placements: function and first result."""
    source, name = key
    return f"{source}/{name}"


@dataclass(frozen=True)
class PlacedOps:
    """A policy giving each op to a named backend, and some ops a schedule.

    Ops outside of the placement go to the first backend able to take these ops. A placement never makes a wrong
    program: an op unknown to the named backend stays on the host, and a backend ignores an unknown schedule.

    Attributes:
        ops: the backend of each op, or ``"host"``, by ``"FUNCTION/RESULT"`` (:func:`placement_key`): the names of the
            module before partition, as in the offload report.
        schedules: the schedules of ops, by the same names; other ops have the schedules chosen by their backends. The
            hook ``byoc_schedules`` names the schedules of an op.
    """

    ops: Mapping[str, str] = field(default_factory=dict)
    schedules: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _is_texts(self.ops):
            raise OptionsError(
                "PlacedOps, ops",
                "is not a mapping from ops to backends",
                got=repr(self.ops),
                expected="a mapping such as {'main/conv_0': 'mynpu', 'main/softmax_3': 'host'}",
            )
        if not _is_texts(self.schedules):
            raise OptionsError(
                "PlacedOps, schedules",
                "is not a mapping from ops to names of schedules",
                got=repr(self.schedules),
                expected="a mapping such as {'main/conv_0': 'tile=8'}",
            )

    def __call__(self, module: IRModule, request: PartitionRequest) -> IRModule:
        """Return the module with claims.

        Raises:
            HookError: a backend's hook failed.
            PatternError: a pattern's check raised.

        Cost: the claims of :class:`GreedyByOrder`.
        """
        self._warn_of_unknown_ops(module)
        for handle in request.backends:

            def refusal(source: str, binding: Binding, name: str = handle.name) -> Rejection | None:
                placed = self.ops.get(placement_key((source, binding.results[0].name)), name)
                if placed == name:
                    return None
                where = "the host" if placed == HOST_NAME else f"`{placed}`"
                return Rejection("placed", f"the placement gives the op to {where}")

            module = request.claim(module, handle, refusal)
        return with_schedules(module, self.schedules)

    def _warn_of_unknown_ops(self, module: IRModule) -> None:
        present = {
            placement_key(op_key(source, op))
            for source, body in bodies_of(module)
            for binding in body.bindings
            for op in members_of(binding)
        }
        named = {**self.ops, **self.schedules}
        unknown = [name for name in named if name not in present]
        if unknown:
            _LOGGER.warning(
                "the placement names %d of %d ops outside of the model, such as %s; another model, or another version?",
                len(unknown),
                len(named),
                to_printable(unknown[0]),
            )


def with_schedules(module: IRModule, schedules: Mapping[str, str]) -> IRModule:
    """Return the module with schedules noted on claimed ops; the ops of a composite share a schedule.

    Args:
        module: a module with claims.
        schedules: the names of schedules, by ``"FUNCTION/RESULT"`` (:func:`placement_key`).
    """

    def name_of(binding: Binding, source: str) -> str | None:
        names = (schedules.get(placement_key(op_key(source, member))) for member in members_of(binding))
        return next((name for name in names if name is not None), None)

    def change(function: Function, source: str) -> Function:
        if "Codegen" in function.attrs:
            return function
        bindings = []
        for binding in map_regions(function.bindings, lambda region: change(region, source)):
            name = None if binding.codegen is None else name_of(binding, source)
            bindings.append(binding if name is None else _scheduled(binding, name))
        return with_bindings(function, bindings)

    return map_functions(module, lambda function: change(function, function.name)) if schedules else module


def _scheduled(binding: Binding, name: str) -> Binding:
    """Return an op with a schedule; of a composite, all ops have the schedule."""
    if binding.op is not COMPOSITE:
        return replace(binding, schedule=name)
    (body,) = binding.regions
    members = tuple(replace(member, schedule=name) for member in body.bindings)
    return replace(binding, regions=(replace(body, bindings=members),))


def _is_texts(mapping: object) -> bool:
    """Return whether a value from anywhere maps texts to texts."""
    items = mapping.items() if isinstance(mapping, Mapping) else [(None, None)]
    return all(isinstance(name, str) and isinstance(text, str) for name, text in items)
