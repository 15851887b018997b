"""The protocol of policies."""

from __future__ import annotations

from typing import Protocol

from byoc_core.ir import IRModule
from byoc_core.partitioning.claiming.request import PartitionRequest

__all__ = ["Policy"]


class Policy(Protocol):
    """A policy: sets ``codegen`` on bindings, or makes claimed composites; a policy may ignore convexity."""

    def __call__(self, module: IRModule, request: PartitionRequest, /) -> IRModule:
        """Return the module with claims."""
