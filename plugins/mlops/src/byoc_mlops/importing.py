"""The core's interface of importers, in a single place."""

from __future__ import annotations

from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter

__all__ = ["Imported", "NodeContext", "NodeImporter"]
