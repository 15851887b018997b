"""A function by numpy's kernels: what computes it where oneDNN cannot, for the sizes or the numbers of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

from byoc_core.errors import ArtifactError
from byoc_core.runtime.graph import KernelEngine
from byoc_core.runtime.graph_document import GraphFunction
from byoc_core.runtime.module import NDArray

__all__ = ["Reference"]


class Reference:
    """A function by numpy's kernels; any number of threads may call it at once.

    Args:
        function: what it computes, at any sizes.
        constants: arrays by digest.

    Raises:
        ArtifactError: a kernel does not take a node's operands or attributes.
    """

    def __init__(self, function: GraphFunction, constants: Mapping[str, NDArray]) -> None:
        self._engine = KernelEngine()
        for index, node in enumerate(function.nodes):
            reason = self._engine.check_node(node)
            if reason is not None:
                raise ArtifactError(f"graph function `{function.name}`, node {index} (`{node.op}`)", reason)
        self._function = function
        self._constants = constants

    def __call__(self, *arrays: NDArray) -> bool:
        """Runs it on inputs and outputs; ``True``, as of a program whose checks all hold."""
        self._call(*arrays)
        return True

    @cached_property
    def _call(self) -> Callable[..., object]:
        return self._engine.build(self._function, self._constants)

    def __str__(self) -> str:
        """How the ops are computed."""
        return "by numpy's kernels: oneDNN has no primitives for these sizes"
