"""The ONNX front end: :func:`from_onnx` converts a model into an IR module.

Supports all opsets up to the newest known to the installed ``onnx`` package; models of opsets below 7 are converted by
this package first. Needs the extra ``byoc-core[onnx]``.

Importers of foreign operators get a :class:`NodeContext`. Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from byoc_core.frontend.onnx.model_import import from_onnx
    from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
    from byoc_core.frontend.onnx.ops.strings import emit_key_index, read_strings
    from byoc_core.frontend.onnx.sequence_value import MapValue
    from byoc_core.frontend.onnx.shape_value import ShapeValue
    from byoc_core.frontend.onnx.string_tensor import StringTensor

__all__ = [
    "Imported",
    "MapValue",
    "NodeContext",
    "NodeImporter",
    "ShapeValue",
    "StringTensor",
    "emit_key_index",
    "from_onnx",
    "read_strings",
]

_HOMES = {
    "model_import": ("from_onnx",),
    "node_context": ("Imported", "NodeContext", "NodeImporter"),
    "ops.strings": ("emit_key_index", "read_strings"),
    "sequence_value": ("MapValue",),
    "shape_value": ("ShapeValue",),
    "string_tensor": ("StringTensor",),
}

__getattr__ = lazy_names(__name__, _HOMES)
