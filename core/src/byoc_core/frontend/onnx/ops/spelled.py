"""Importers for ops declaring their own ONNX spelling: ops of the core and of plugins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.errors import IRError
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx_names import OnnxName
from byoc_core.opset.onnx_spelling import OnnxSpelling
from byoc_core.opset.opdef import OpDef

__all__ = ["spelled_importers"]


def spelled_importers(ops: Mapping[str, OpDef]) -> dict[OnnxName, NodeImporter]:
    """Return the importers of all ops with a declared ONNX spelling.

    Raises:
        IRError: two ops declare the same spelling.
    """
    found: dict[OnnxName, OpDef] = {}
    for op in ops.values():
        if op.onnx is not None:
            other = found.setdefault((op.onnx.domain, op.onnx.op_type), op)
            if other is not op:
                raise IRError(f"op `{op.name}`", f"has the ONNX spelling of op `{other.name}`", got=op.onnx.op_type)
    return {name: _importer(op.name, op.onnx) for name, op in found.items() if op.onnx is not None}


def _importer(op: str, spelling: OnnxSpelling) -> NodeImporter:
    def import_node(node: NodeContext) -> Sequence[Imported]:
        attrs: dict[str, object] = {name: node.attr_float(name, value) for name, value in spelling.attrs.items()}
        return node.emit_all(op, node.values(), attrs)

    return import_node
