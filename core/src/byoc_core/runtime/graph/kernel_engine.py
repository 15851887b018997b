"""The engine of the core's own numpy host: it runs the nodes of a graph one by one with kernels over arrays."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from byoc_core.errors import near_names
from byoc_core.runtime.graph.document import GraphFunction, GraphNode, GraphTensor
from byoc_core.runtime.graph.engine import BuiltFunction, GraphEngine
from byoc_core.runtime.module import NDArray

__all__ = ["KERNEL_ENGINE_KEY", "KernelEngine"]

Kernel = Callable[..., Any]

KERNEL_ENGINE_KEY = "graph"
"""The type key of modules that the core's own engine runs."""


class KernelEngine(GraphEngine):
    """Runs nodes one by one with numpy kernels; a value is released as soon as nothing reads it any more.

    A node with a body is run as its body, unless :meth:`bind_composite` has one kernel for it.

    Args:
        kernels: by op name; the core's own where not given.
        plugin_kernels: kernels of plugins' ops, by op name, beside these.
    """

    def __init__(
        self, kernels: Mapping[str, Kernel] | None = None, *, plugin_kernels: Mapping[str, Kernel] | None = None
    ) -> None:
        self._has_own_kernels = kernels is None
        if kernels is None:
            from byoc_core.opset.families import KERNELS

            kernels = KERNELS
        self._kernels: Mapping[str, Kernel] = {**plugin_kernels, **kernels} if plugin_kernels else kernels
        self.plugin_kernels = frozenset(plugin_kernels or ())

    @property
    def type_key(self) -> str:
        """``"graph"``."""
        return KERNEL_ENGINE_KEY

    @property
    def uses_threads(self) -> bool:
        """``False``: kernels run in the calling thread (what numpy's BLAS does is its own business)."""
        return False

    @property
    def strided(self) -> bool:
        """``True`` where all that runs is the core's own; a subclass says for itself what its library takes."""
        return self._has_own_kernels and type(self) is KernelEngine

    def check_node(self, node: GraphNode, operands: Sequence[GraphTensor] = ()) -> str | None:
        """Gives a reason where the op has no kernel, or its kernel does not take these operands and attributes."""
        if node.body is not None:
            return None
        kernel = self._kernels.get(node.op)
        if kernel is None:
            return f"is not an op that has a kernel. {near_names(node.op, self._kernels)}".strip()
        return _misfit(kernel, len(node.inputs), tuple(node.attrs))

    def kernel_of(self, node: GraphNode) -> Kernel:
        """Return the kernel of a node without a body that has passed :meth:`check_node`."""
        return self._kernels[node.op]

    def bind_composite(self, node: GraphNode, constants: Mapping[str, NDArray]) -> Kernel | None:
        """Gives what computes a node with a body in one call, or ``None`` to run its body node by node.

        Called once for each such node, when the module is made: the place to prepare weights. An engine whose library
        computes a pattern in one call overrides it, and looks at the whole body, which may come from a file.

        Args:
            node: the composite; its body cites its constants.
            constants: read-only arrays by digest.

        Returns:
            A callable over the node's inputs that gives its output, or a tuple of several. It must be re-entrant.
        """
        return None

    def build(
        self, function: GraphFunction, constants: Mapping[str, NDArray], prepared: Any = None
    ) -> Callable[..., object]:
        """Gives a callable that runs the nodes in order, with what they make in the workspace."""
        from byoc_core.runtime.graph.plan import implement  # the kernels, which other engines do without

        def find(node: GraphNode) -> Kernel | None:
            return self.kernel_of(node) if node.body is None else self.bind_composite(node, constants)

        return BuiltFunction(*implement(function, constants, find))


@lru_cache(maxsize=1024)
def _misfit(kernel: Kernel, num_inputs: int, attr_names: tuple[str, ...]) -> str | None:
    """Gives the reason why a kernel cannot be called with so many operands and these attributes, or ``None``."""
    try:
        signature = inspect.signature(kernel)
    except ValueError:  # a function in C that does not tell
        return None
    try:
        signature.bind(*range(num_inputs), **dict.fromkeys(attr_names))
    except TypeError as error:
        return f"the kernel does not take these operands and attributes: {error}"
    return None
