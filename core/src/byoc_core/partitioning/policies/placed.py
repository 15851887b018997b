"""The policy following a placement made before, such as a measured placement."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from byoc_core.backend.registry import HOST_NAME
from byoc_core.errors import OptionsError
from byoc_core.ir import Binding, IRModule
from byoc_core.partitioning.claiming.request import PartitionRequest
from byoc_core.partitioning.op_sites import OpKey, bodies_of, members_of, op_key
from byoc_core.pattern import Rejection
from byoc_core.printable import to_printable

_LOGGER = logging.getLogger("byoc_core")

__all__ = ["PlacedOps", "placement_key"]


def placement_key(key: OpKey) -> str:
    """Return the name of an op in placements: function and first result."""
    source, name = key
    return f"{source}/{name}"


@dataclass(frozen=True)
class PlacedOps:
    """A policy giving each op to a named backend.

    Ops outside of the placement go to the first backend able to take these ops. A placement never makes a wrong
    program: an op unknown to the named backend stays on the host.

    Attributes:
        ops: the backend of each op, or ``"host"``, by ``"FUNCTION/RESULT"`` (:func:`placement_key`): the names of the
            module before partition, as in the offload report.
    """

    ops: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ops: object = self.ops  # from anywhere
        items = ops.items() if isinstance(ops, Mapping) else [(None, None)]
        if not all(isinstance(name, str) and isinstance(backend, str) for name, backend in items):
            raise OptionsError(
                "PlacedOps, ops",
                "is not a mapping from ops to backends",
                got=repr(self.ops),
                expected="a mapping such as {'main/conv_0': 'mynpu', 'main/softmax_3': 'host'}",
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
        return module

    def _warn_of_unknown_ops(self, module: IRModule) -> None:
        present = {
            placement_key(op_key(source, op))
            for source, body in bodies_of(module)
            for binding in body.bindings
            for op in members_of(binding)
        }
        unknown = [name for name in self.ops if name not in present]
        if unknown:
            _LOGGER.warning(
                "the placement names %d of %d ops outside of the model, such as %s; another model, or another version?",
                len(unknown),
                len(self.ops),
                to_printable(unknown[0]),
            )
