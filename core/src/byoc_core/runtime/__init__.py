"""The run side of backends: modules of compiled functions, their hooks, and the runtimes of this process.

Runtime plugins need the names of this package: :class:`RuntimeModule` and :class:`PackedFunction`, the hooks
(:mod:`byoc_core.runtime.hooks`), and the run halves of the authoring kits (:class:`GraphModule` with
:class:`GraphEngine`, :class:`CSourceModule`). Names are imported on first use.

The modules directly in the package handle calls: modules, signatures, arguments, hooks, the registry, and the plugins
named by the core's entry points. Subpackages are :mod:`~byoc_core.runtime.graph` and :mod:`~byoc_core.runtime.csource`,
the run halves of the two kits, and :mod:`~byoc_core.runtime.threads`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from byoc_core.runtime.arguments import argument_places, bind_symbols
    from byoc_core.runtime.csource import CSourceModule
    from byoc_core.runtime.graph import (
        BuiltFunction,
        FunctionRefused,
        GraphEngine,
        GraphModule,
        KernelEngine,
        ReferenceFunction,
        ReferenceNode,
        RequestPool,
        attrs_at,
        bind_sizes,
        call_symbols,
        check_graph,
        load_graph,
        save_graph,
    )
    from byoc_core.runtime.graph.document import (
        GraphConstant,
        GraphDocument,
        GraphFunction,
        GraphNode,
        GraphTensor,
    )
    from byoc_core.runtime.hooks import LoadContext, RuntimeInfo, hookimpl
    from byoc_core.runtime.module import (
        CallTraits,
        NativeEntry,
        NDArray,
        PackedFunction,
        RuntimeModule,
        Signature,
        TensorSpec,
    )
    from byoc_core.runtime.registry import RuntimeHandle, runtimes
    from byoc_core.runtime.status import Status
    from byoc_core.runtime.workspaces import caller_nbytes

__all__ = [
    "BuiltFunction",
    "CSourceModule",
    "CallTraits",
    "FunctionRefused",
    "GraphConstant",
    "GraphDocument",
    "GraphEngine",
    "GraphFunction",
    "GraphModule",
    "GraphNode",
    "GraphTensor",
    "KernelEngine",
    "LoadContext",
    "NDArray",
    "NativeEntry",
    "PackedFunction",
    "ReferenceFunction",
    "ReferenceNode",
    "RequestPool",
    "RuntimeHandle",
    "RuntimeInfo",
    "RuntimeModule",
    "Signature",
    "Status",
    "TensorSpec",
    "argument_places",
    "attrs_at",
    "bind_sizes",
    "bind_symbols",
    "call_symbols",
    "caller_nbytes",
    "check_graph",
    "hookimpl",
    "load_graph",
    "runtimes",
    "save_graph",
]

_HOMES = {
    "workspaces": ("caller_nbytes",),
    "arguments": ("argument_places", "bind_symbols"),
    "csource": ("CSourceModule",),
    "graph": (
        "BuiltFunction",
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
        "check_graph",
        "load_graph",
        "save_graph",
    ),
    "graph.document": ("GraphConstant", "GraphDocument", "GraphFunction", "GraphNode", "GraphTensor"),
    "hooks": ("LoadContext", "RuntimeInfo", "hookimpl"),
    "module": ("CallTraits", "NDArray", "NativeEntry", "PackedFunction", "RuntimeModule", "Signature", "TensorSpec"),
    "registry": ("RuntimeHandle", "runtimes"),
    "status": ("Status",),
}


__getattr__ = lazy_names(__name__, _HOMES)
