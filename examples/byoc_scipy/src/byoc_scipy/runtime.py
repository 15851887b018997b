"""The run half: saves and loads compiled modules. Never imports the compile half."""

from __future__ import annotations

from typing import cast

from byoc_core.runtime.graph import GraphModule, load_graph, save_graph
from byoc_core.runtime.hooks import LoadContext, RuntimeInfo, hookimpl
from byoc_core.runtime.module import RuntimeModule

from byoc_scipy.engine import Engine

__all__ = ["byoc_load_module", "byoc_runtime_info", "byoc_save_module"]


@hookimpl
def byoc_runtime_info() -> RuntimeInfo:
    """Describe the runtime. If your library admits only one thread at a time, set ``concurrency="serial"``."""
    return RuntimeInfo("scipy")


@hookimpl
def byoc_save_module(module: RuntimeModule) -> bytes:
    """Return the graph document as bytes; constants are cited by digest, and stored once in the artifact."""
    return save_graph(cast("GraphModule", module))  # byoc hands a runtime modules of its own type key only


@hookimpl
def byoc_load_module(payload: bytes, context: LoadContext) -> RuntimeModule:
    """Return the loaded module. An invalid document, or a node refused by the engine, raises an ``ArtifactError``."""
    return load_graph(payload, context, Engine())
