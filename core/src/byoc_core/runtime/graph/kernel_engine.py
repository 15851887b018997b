"""The engine of the core's own numpy host: kernels over arrays run the nodes of a graph in order."""

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

KernelCallable = Callable[..., Any]

KERNEL_ENGINE_KEY = "graph"
"""The type key of modules with the core's own engine."""


class KernelEngine(GraphEngine):
    """An engine that runs nodes in order with numpy kernels; a value is released after the last use.

    The body of a node with a body is run, unless :meth:`bind_composite` has a kernel for the whole node.

    Args:
        kernels: by op name; the core's own by default.
        plugin_kernels: kernels of plugins' ops, by op name, in addition to ``kernels``.
    """

    def __init__(
        self,
        kernels: Mapping[str, KernelCallable] | None = None,
        *,
        plugin_kernels: Mapping[str, KernelCallable] | None = None,
    ) -> None:
        self._has_own_kernels = kernels is None
        self._native_kernels: Mapping[str, KernelCallable] = {}
        if kernels is None:
            from byoc_core.opset.families import KERNELS
            from byoc_core.runtime.graph.native_kernels import native_kernels

            kernels, self._native_kernels = KERNELS, native_kernels()
        self._kernels = kernels
        self._kernels_of_plugins = dict(plugin_kernels or {})
        self.plugin_kernels = frozenset(self._kernels_of_plugins)

    @property
    def type_key(self) -> str:
        """``"graph"``."""
        return KERNEL_ENGINE_KEY

    @property
    def uses_threads(self) -> bool:
        """``False``: kernels run in the calling thread (threads of numpy's BLAS are not counted)."""
        return False

    @property
    def strided(self) -> bool:
        """``True`` with the default ``kernels``, the core's own; ``False`` with other kernels, and in subclasses.

        A subclass overrides this property if its library accepts strided arrays. Kernels of plugins get C-contiguous
        copies.
        """
        return self._has_own_kernels and type(self) is KernelEngine

    def check_node(self, node: GraphNode, operands: Sequence[GraphTensor] = ()) -> str | None:
        """Return a reason if the op has no kernel, or the kernel does not take these operands and attributes."""
        if node.body is not None:
            return None
        kernel = self._find(node.op)
        if kernel is None:
            return f"has no kernel. {near_names(node.op, {*self._kernels, *self._kernels_of_plugins})}".strip()
        return _misfit(kernel, len(node.inputs), tuple(node.attrs))

    def kernel_of(self, node: GraphNode) -> KernelCallable:
        """Return the kernel of a node without a body, accepted by :meth:`check_node`."""
        kernel = self._find(node.op)
        if kernel is None:
            raise KeyError(node.op)
        return kernel

    def _find(self, op: str) -> KernelCallable | None:
        """Return the kernel of an op; the core's kernels include delegated ops without listing them."""
        return self._native_kernels.get(op) or self._kernels.get(op) or self._kernels_of_plugins.get(op)

    def bind_composite(self, node: GraphNode, constants: Mapping[str, NDArray]) -> KernelCallable | None:
        """Return a kernel for a whole node with a body, or ``None`` to run the body node by node.

        Called once for each such node, when the module is made: the place to prepare weights. Override this method for
        a library with a single call for a pattern. The implementation must check the whole body, because the body may
        come from a file.

        Args:
            node: the composite; constants are cited in the body.
            constants: read-only arrays by digest.

        Returns:
            A callable over the node's inputs. The value is the node's output, or a tuple of several. The callable must
            be re-entrant.
        """
        return None

    def build(
        self, function: GraphFunction, constants: Mapping[str, NDArray], prepared: Any = None
    ) -> Callable[..., object]:
        """Return a callable that runs the nodes in order, with intermediate values in the workspace."""
        from byoc_core.runtime.graph.plan import implement  # imports the kernels, not needed by other engines

        def find(node: GraphNode) -> KernelCallable | None:
            return self.kernel_of(node) if node.body is None else self.bind_composite(node, constants)

        return BuiltFunction(*implement(function, constants, find))


@lru_cache(maxsize=1024)
def _misfit(kernel: KernelCallable, num_inputs: int, attr_names: tuple[str, ...]) -> str | None:
    """Return the reason why a kernel cannot be called with so many operands and these attributes, or ``None``."""
    try:
        signature = inspect.signature(kernel)
    except ValueError:  # a C function without a signature
        return None
    try:
        signature.bind(*range(num_inputs), **dict.fromkeys(attr_names))
    except TypeError as error:
        return f"the kernel does not take these operands and attributes: {error}"
    return None
