"""The run half: loads, saves and describes modules of oneDNN primitives. Never imports the compile half."""

from __future__ import annotations

from typing import cast

from byoc_core.runtime.graph import GraphModule, save_graph
from byoc_core.runtime.graph_encoding import GRAPH_VERSION, decode_document
from byoc_core.runtime.hooks import LoadContext, RuntimeInfo, hookimpl
from byoc_core.runtime.module import RuntimeModule
from byoc_core.runtime.status import Status

from byoc_dnnl.engine import DnnlEngine, DnnlModule
from byoc_dnnl.library import library_status

__all__ = ["byoc_load_module", "byoc_runtime_info", "byoc_runtime_status", "byoc_save_module"]


@hookimpl
def byoc_runtime_info() -> RuntimeInfo:
    """Gives the type key ``dnnl`` and the versions of graph documents that can be read."""
    return RuntimeInfo("dnnl", formats=tuple(range(1, GRAPH_VERSION + 1)))


@hookimpl
def byoc_runtime_status() -> Status:
    """Says which oneDNN is in use, or what is missing."""
    return library_status()


@hookimpl
def byoc_save_module(module: RuntimeModule) -> bytes:
    """Gives the module's graph document as JSON; primitives are made anew where it is loaded."""
    return save_graph(cast("GraphModule", module))


@hookimpl
def byoc_load_module(payload: bytes, context: LoadContext) -> RuntimeModule:
    """Gives the module of a graph document."""
    document = decode_document(payload)
    digests = dict.fromkeys(c.digest for f in document.functions.values() for c in f.all_constants())
    return DnnlModule(document, {digest: context.constant(digest) for digest in digests}, DnnlEngine())
