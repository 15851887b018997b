"""The run half: loads, saves and describes modules of oneDNN primitives. Never imports the compile half."""

from __future__ import annotations

from typing import cast

from byoc_core.runtime.graph import GRAPH_VERSION, check_graph, decode_document, save_graph
from byoc_core.runtime.hooks import LoadContext, RuntimeInfo, Status, hookimpl
from byoc_core.runtime.module import RuntimeModule

from byoc_dnnl.engine import DnnlEngine, DnnlModule, open_engine
from byoc_dnnl.library import library_status
from byoc_dnnl.native import extension_status
from byoc_dnnl.payload import Payload, join_payload, split_payload
from byoc_dnnl.stored.grammar import cited_digests
from byoc_dnnl.stored.plans import StoredPlans
from byoc_dnnl.stored_arrays import StoredArrays

__all__ = ["byoc_check_payload", "byoc_load_module", "byoc_runtime_info", "byoc_runtime_status", "byoc_save_module"]


@hookimpl
def byoc_runtime_info() -> RuntimeInfo:
    """Return the type key ``dnnl`` and the readable versions of graph documents."""
    return RuntimeInfo("dnnl", formats=tuple(range(1, GRAPH_VERSION + 1)))


@hookimpl
def byoc_runtime_status() -> Status:
    """Return the oneDNN in use and the mode of calling, or the missing part."""
    status = library_status()
    if not status.ok:
        return status
    reason = extension_status()
    mode = f"Python calls each primitive separately: {reason}" if reason else "a region is one native call"
    return Status(ok=True, reason=f"{status.reason}; {mode}")


@hookimpl
def byoc_save_module(module: RuntimeModule) -> bytes:
    """Serialise the graph document, with precision, chosen schedules and stored plans (:mod:`byoc_dnnl.payload`).

    Python creates primitives anew when the module is loaded; stored plans are for programs without Python.
    """
    graph = cast("DnnlModule", module)
    plans = b"" if graph.stored is None else graph.stored.text
    return join_payload(Payload(save_graph(graph), graph.precision, graph.schedules, plans))


@hookimpl
def byoc_load_module(payload: bytes, context: LoadContext) -> RuntimeModule:
    """Load a module from a graph document.

    Raises:
        ArtifactError: the payload is no such document, names an unknown precision, or has malformed stored plans.
        PluginError: no usable oneDNN exists.
    """
    open_engine()  # regions with symbolic sizes would need it in their first call only
    parts = split_payload(payload)
    document = decode_document(parts.document)
    digests = dict.fromkeys(c.digest for f in document.functions.values() for c in f.all_constants())
    stored = None
    if parts.plans:
        cited = {digest: context.constant(digest) for digest in cited_digests(parts.plans)}
        stored = StoredPlans(parts.plans, cited)
    constants = {digest: context.constant(digest) for digest in digests}
    module = DnnlModule(document, constants, parts.precision, parts.schedules, stored)
    module.offer(StoredArrays(context.constants, digests))
    return module


@hookimpl
def byoc_check_payload(payload: bytes) -> None:
    """Check a graph document, including the existence of a primitive for each op, and the lines of stored plans.

    Needs no oneDNN.
    """
    parts = split_payload(payload)
    check_graph(parts.document, DnnlEngine(parts.precision))
