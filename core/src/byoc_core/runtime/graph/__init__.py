"""The run half of the graph kit: typed graph documents, and modules with an engine for these documents.

A library-style backend writes an engine (:class:`GraphEngine`). The engine turns each function of a document into a
callable, once, when the module is loaded. Everything else (the document's form and laws, signatures, saving, loading,
sources) is here. :class:`KernelEngine` is the engine of the core's own numpy host.

Helpers for engines: :func:`bind_sizes` and :func:`attrs_at` for the sizes of a call, :class:`RequestPool` for
concurrent calls, :class:`ReferenceFunction` and :class:`ReferenceNode` for calls beyond a library's abilities. The
graph document is :mod:`byoc_core.runtime.graph.document`. Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from byoc_core.runtime.graph.call_sizes import attrs_at, bind_sizes, call_symbols
    from byoc_core.runtime.graph.encoding import GRAPH_VERSION, decode_document
    from byoc_core.runtime.graph.engine import BuiltFunction, FunctionRefused, GraphEngine
    from byoc_core.runtime.graph.kernel_engine import KernelEngine
    from byoc_core.runtime.graph.module import ConstantSource, GraphModule, check_graph, load_graph, save_graph
    from byoc_core.runtime.graph.plugin_kernels import core_kernel
    from byoc_core.runtime.graph.reference_function import ReferenceFunction, ReferenceNode
    from byoc_core.runtime.graph.request_pool import RequestPool
    from byoc_core.runtime.graph.types import check_function_types

__all__ = [
    "GRAPH_VERSION",
    "BuiltFunction",
    "ConstantSource",
    "FunctionRefused",
    "GraphEngine",
    "GraphModule",
    "KernelEngine",
    "ReferenceFunction",
    "ReferenceNode",
    "RequestPool",
    "attrs_at",
    "bind_sizes",
    "call_symbols",
    "check_function_types",
    "check_graph",
    "core_kernel",
    "decode_document",
    "load_graph",
    "save_graph",
]

_HOMES = {
    "plugin_kernels": ("core_kernel",),
    "types": ("check_function_types",),
    "encoding": ("GRAPH_VERSION", "decode_document"),
    "call_sizes": (
        "attrs_at",
        "bind_sizes",
        "call_symbols",
    ),
    "engine": (
        "BuiltFunction",
        "FunctionRefused",
        "GraphEngine",
    ),
    "kernel_engine": ("KernelEngine",),
    "module": (
        "ConstantSource",
        "GraphModule",
        "check_graph",
        "load_graph",
        "save_graph",
    ),
    "reference_function": (
        "ReferenceFunction",
        "ReferenceNode",
    ),
    "request_pool": ("RequestPool",),
}


__getattr__ = lazy_names(__name__, _HOMES)
