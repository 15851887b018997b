"""Graph functions and nodes by the core's reference kernels: for calls beyond an engine's abilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from byoc_core.dtypes import to_numpy
from byoc_core.errors import ArtifactError
from byoc_core.runtime.arguments import bind_symbols, concrete_shape
from byoc_core.runtime.graph.call_sizes import attrs_at
from byoc_core.runtime.graph.computed_once import computed_once
from byoc_core.runtime.graph.document import GraphFunction, GraphNode
from byoc_core.runtime.graph.engine import BuiltFunction, build_function, node_refusals
from byoc_core.runtime.graph.kernel_engine import KernelEngine
from byoc_core.runtime.module import NDArray

__all__ = ["ReferenceFunction", "ReferenceNode"]

Kernels = Mapping[str, Callable[..., Any]]


class ReferenceFunction:
    """A graph function by the reference kernels of the ops; any number of threads may call the function at once.

    An engine makes a reference while preparing or building the function. The reference runs the calls that the library
    cannot run: empty tensors, sizes beyond a limit, NaN if the library loses NaN. The first call binds the kernels.

    Args:
        function: the function, at any sizes. Nodes with bodies are computed as their bodies.
        constants: read-only arrays by digest; holds at least the cited constants.
        kernels: the kernels of the package's own ops, as returned by the hook ``byoc_kernels``.

    Raises:
        ArtifactError: the core has no kernel of a node's op, or the kernel does not take the node's operands and
            attributes.
    """

    def __init__(
        self, function: GraphFunction, constants: Mapping[str, NDArray], kernels: Kernels | None = None
    ) -> None:
        self._engine = _engine_with(kernels or {})
        for refusal in node_refusals(function, self._engine, f"graph function `{function.name}`"):
            raise ArtifactError(refusal.location, refusal.reason)
        self._function = function
        self._constants = constants

    def __call__(self, *arrays: NDArray) -> object:
        """Run the function on inputs and outputs; on inputs alone if the function returns its results.

        Raises:
            ExecutionError: a kernel failed.
        """
        return self._built.call(*arrays)

    def results(self, inputs: Sequence[NDArray]) -> tuple[NDArray, ...]:
        """Return the results for inputs, in new arrays.

        Raises:
            CallError: the inputs do not determine the size of a result.
            ExecutionError: a kernel failed.
        """
        signature = self._function.signature
        if signature.new_symbols:
            returned = self._built.call(*inputs)
            assert isinstance(returned, tuple)
            return returned
        sizes = bind_symbols(signature.inputs, inputs)
        where = f"graph function `{self._function.name}`"
        outputs = tuple(
            np.empty(concrete_shape(spec, sizes, where), to_numpy(spec.dtype)) for spec in signature.outputs
        )
        self._built.call(*inputs, *outputs)
        return outputs

    @computed_once
    def _built(self) -> BuiltFunction:
        return build_function(self._engine, self._function, self._constants, None)


class ReferenceNode:
    """A node by the op's reference kernel, or by the kernels of the node's body; see :class:`ReferenceFunction`.

    Args:
        node: the node.
        constants: read-only arrays by digest; holds at least the constants cited by a body.
        kernels: as for :class:`ReferenceFunction`.

    Raises:
        ArtifactError: the core has no kernel of the op, or the kernel does not take these operands and attributes.
    """

    def __init__(self, node: GraphNode, constants: Mapping[str, NDArray], kernels: Kernels | None = None) -> None:
        self._node = node
        self._body = None if node.body is None else ReferenceFunction(node.body, constants, kernels)
        self._engine = _engine_with(kernels or {})
        reason = self._engine.check_node(node)
        if reason is not None:
            raise ArtifactError(f"node `{node.op}`", reason)

    def __call__(self, sizes: Mapping[str, int], *inputs: NDArray) -> tuple[NDArray, ...]:
        """Return the results in arrays; as for a reshape, an array may share memory with the inputs.

        Args:
            sizes: of the symbols in the attributes; see :func:`~byoc_core.runtime.graph.call_sizes.bind_sizes`.
            inputs: the operands of the node.
        """
        if self._body is not None:
            return self._body.results(inputs)
        found = self._engine.kernel_of(self._node)(*inputs, **attrs_at(self._node, sizes))
        return found if isinstance(found, tuple) else (found,)


def _engine_with(kernels: Kernels) -> KernelEngine:
    """Return an engine with the reference kernels, and with the given kernels checked against their contract."""
    from byoc_core.kernels.plugin_kernel import PluginKernel  # imports the kernels, not needed by most processes

    return KernelEngine(plugin_kernels={op: PluginKernel(op, kernel) for op, kernel in kernels.items()})
