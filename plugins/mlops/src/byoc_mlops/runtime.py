"""The run half: graphs of the ops of the package, and the kernels for ops on the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from byoc_core.runtime.graph import GraphModule, KernelEngine, load_graph, save_graph
from byoc_core.runtime.hooks import LoadContext, RuntimeInfo, hookimpl

from byoc_mlops.coupling_kernel import couple_probabilities
from byoc_mlops.key_kernel import key_index
from byoc_mlops.tree_kernel import tree_ensemble

KERNELS: Mapping[str, Callable[..., object]] = MappingProxyType(
    {
        "mlops.couple_probabilities": couple_probabilities,
        "mlops.key_index": key_index,
        "mlops.tree_ensemble": tree_ensemble,
    }
)
"""The kernels, by op."""


class Engine(KernelEngine):
    """Runs graphs by the kernels."""

    type_key = "mlops"

    def __init__(self) -> None:
        super().__init__(KERNELS)


@hookimpl
def byoc_runtime_info() -> RuntimeInfo:
    """Describe the runtime."""
    return RuntimeInfo(type_key="mlops")


@hookimpl
def byoc_save_module(module: GraphModule) -> bytes:
    """Return the graphs of a module as bytes."""
    return save_graph(module)


@hookimpl
def byoc_load_module(payload: bytes, context: LoadContext) -> GraphModule:
    """Load a module from bytes."""
    return load_graph(payload, context, Engine)


@hookimpl
def byoc_kernels() -> Mapping[str, Callable[..., object]]:
    """Return the kernels, by op."""
    return KERNELS
