"""The policies of the first race: each backend alone, and the orders of backends."""

from __future__ import annotations

from dataclasses import dataclass

from byoc_core.ir import IRModule
from byoc_core.partitioning import PartitionRequest

__all__ = ["InOrder", "OneBackend"]


@dataclass(frozen=True)
class OneBackend:
    """A policy for one backend alone; prepared like a model for all backends."""

    name: str

    def __call__(self, module: IRModule, request: PartitionRequest) -> IRModule:
        """Return the module with the claims of the backend."""
        for handle in request.backends:
            if handle.name == self.name:
                module = request.claim(module, handle)
        return module


@dataclass(frozen=True)
class InOrder:
    """Greedy by another order of the backends."""

    names: tuple[str, ...]

    def __call__(self, module: IRModule, request: PartitionRequest) -> IRModule:
        """Return the module with the claims of all backends."""
        for name in self.names:
            for handle in request.backends:
                if handle.name == name:
                    module = request.claim(module, handle)
        return module
