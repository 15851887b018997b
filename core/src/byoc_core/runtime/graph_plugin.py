"""The runtime plugin ``graph``: loads and saves modules compiled by the core's own numpy host."""

from __future__ import annotations

from typing import cast

from byoc_core.runtime.graph import GraphModule, check_graph, load_graph, save_graph
from byoc_core.runtime.graph.encoding import GRAPH_VERSION
from byoc_core.runtime.hooks import LoadContext, RuntimeInfo, hookimpl
from byoc_core.runtime.module import RuntimeModule
from byoc_core.runtime.status import Status

__all__ = [
    "byoc_check_payload",
    "byoc_load_file",
    "byoc_load_module",
    "byoc_runtime_info",
    "byoc_runtime_status",
    "byoc_save_module",
]


@hookimpl
def byoc_runtime_info() -> RuntimeInfo:
    """Return the type key ``graph`` and the readable versions of graph documents."""
    return RuntimeInfo("graph", formats=tuple(range(1, GRAPH_VERSION + 1)), file_formats=("graph",))


@hookimpl
def byoc_runtime_status() -> Status:
    """Return ``ok``: numpy is the only requirement."""
    return Status(ok=True)


@hookimpl
def byoc_save_module(module: RuntimeModule) -> bytes:
    """Return the module's graph document as JSON."""
    return save_graph(cast("GraphModule", module))


@hookimpl
def byoc_load_module(payload: bytes, context: LoadContext) -> RuntimeModule:
    """Return the module of a graph document."""
    return load_graph(payload, context)


@hookimpl
def byoc_check_payload(payload: bytes) -> None:
    """Check a graph document, including the presence of a kernel for each node."""
    check_graph(payload)


@hookimpl
def byoc_load_file(data: bytes, context: LoadContext) -> RuntimeModule:
    """Return the module of a graph document in a file; the document can cite no constants."""
    return load_graph(data, context)
