"""The default policy."""

from __future__ import annotations

from dataclasses import dataclass

from byoc_core.ir import IRModule
from byoc_core.partitioning.claiming.request import PartitionRequest

__all__ = ["GreedyByOrder"]


@dataclass(frozen=True)
class GreedyByOrder:
    """A policy letting each backend, in order, take as much as possible: patterns first, then single ops."""

    def __call__(self, module: IRModule, request: PartitionRequest) -> IRModule:
        """Return the module with claims.

        Raises:
            HookError: a backend's hook failed.
            PatternError: a pattern's check raised.
        """
        for backend in request.backends:
            module = request.claim(module, backend)
        return module
