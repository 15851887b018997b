"""The run half: loads, saves and describes modules of oneDNN primitives. Never imports the compile half."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

from byoc_core.errors import ArtifactError
from byoc_core.runtime.graph import GRAPH_VERSION, check_graph, decode_document, save_graph
from byoc_core.runtime.hooks import LoadContext, RuntimeInfo, Status, hookimpl
from byoc_core.runtime.module import RuntimeModule

from byoc_dnnl.engine import DnnlEngine, DnnlModule, open_engine
from byoc_dnnl.library import library_status
from byoc_dnnl.native import extension_status
from byoc_dnnl.precision import Precision

__all__ = ["byoc_check_payload", "byoc_load_module", "byoc_runtime_info", "byoc_runtime_status", "byoc_save_module"]

_PRECISION = "precision="
"""The prefix of a payload with a line before the document."""

_SCHEDULES = "schedules="
"""The prefix of the line with schedules, behind the line with the precision, if any."""


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
    """Serialise the graph document as JSON, after lines with the precision if not float32, and with chosen schedules.

    Primitives are created anew when the module is loaded.
    """
    graph = cast("DnnlModule", module)
    line = b"" if graph.precision == "float32" else f"{_PRECISION}{graph.precision}\n".encode()
    if graph.schedules:
        names = {function: dict(by_result) for function, by_result in graph.schedules.items()}
        line += f"{_SCHEDULES}{json.dumps(names, sort_keys=True)}\n".encode()
    return line + save_graph(graph)


@hookimpl
def byoc_load_module(payload: bytes, context: LoadContext) -> RuntimeModule:
    """Load a module from a graph document.

    Raises:
        ArtifactError: the payload is no such document, or names an unknown precision.
        PluginError: no usable oneDNN exists.
    """
    open_engine()  # regions with symbolic sizes would need it in their first call only
    precision, schedules, text = _split(payload)
    document = decode_document(text)
    digests = dict.fromkeys(c.digest for f in document.functions.values() for c in f.all_constants())
    return DnnlModule(document, {digest: context.constant(digest) for digest in digests}, precision, schedules)


@hookimpl
def byoc_check_payload(payload: bytes) -> None:
    """Check a graph document, including the existence of a primitive for each op; needs no oneDNN."""
    precision, _, text = _split(payload)
    check_graph(text, DnnlEngine(precision))


def _split(payload: bytes) -> tuple[Precision, Mapping[str, Mapping[str, str]], bytes]:
    """Return the precision and the schedules named by a payload, and the document.

    Raises:
        ArtifactError: the payload names an unknown precision, or schedules of another form.
    """
    precision: Precision = "float32"
    if payload.startswith(_PRECISION.encode()):
        line, _, payload = payload.partition(b"\n")
        if line != f"{_PRECISION}bfloat16".encode():
            got = line.removeprefix(_PRECISION.encode()).decode(errors="replace")
            raise ArtifactError("payload of byoc-dnnl", "names an unknown precision", got=got, expected="bfloat16")
        precision = "bfloat16"
    if not payload.startswith(_SCHEDULES.encode()):
        return precision, {}, payload
    line, _, document = payload.partition(b"\n")
    try:
        schedules = json.loads(line.removeprefix(_SCHEDULES.encode()))
    except (ValueError, RecursionError) as error:
        raise ArtifactError("payload of byoc-dnnl", f"has malformed schedules: {error}") from error
    functions = schedules.values() if isinstance(schedules, dict) else [None]
    if not all(
        isinstance(names, dict) and all(isinstance(name, str) for name in names.values()) for names in functions
    ):
        raise ArtifactError("payload of byoc-dnnl", "has malformed schedules", expected="names by function and result")
    return precision, schedules, document
