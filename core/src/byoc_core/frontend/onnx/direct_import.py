"""The importer of an operator equal to an op: operands in order, attributes by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.opset.attributes import REQUIRED, AttrKind
from byoc_core.opset.contexts import TypeContext
from byoc_core.opset.opdef import OpDef

__all__ = ["direct_importer"]

_READERS: Mapping[AttrKind, Callable[[NodeContext, str], object]] = {
    AttrKind.BOOL: lambda node, name: bool(node.attr_int(name)),
    AttrKind.INT: NodeContext.attr_int,
    AttrKind.FLOAT: NodeContext.attr_float,
    AttrKind.STR: NodeContext.attr_string,
    AttrKind.DTYPE: NodeContext.attr_dtype,
    AttrKind.INTS: NodeContext.attr_ints,
    AttrKind.FLOATS: NodeContext.attr_floats,
    AttrKind.STRS: NodeContext.attr_strings,
    AttrKind.DIM: NodeContext.attr_int,
    AttrKind.DIMS: NodeContext.attr_ints,
}
"""The reading of a node's attribute, by the kind of the op's attribute."""


def direct_importer(op: OpDef) -> NodeImporter:
    """Return the importer of an operator with the operands and attributes of an op.

    An attribute of the op is read from the node's attribute of the same name. A missing attribute has the default of
    the op. The import of a node is refused for an op with regions, or with declared results.
    """

    def import_node(node: NodeContext) -> Sequence[Imported]:
        if op.num_regions or (op.declares_results and op.sized_results is None):
            raise node.error(f"op `{op.name}` has regions or declared results, so the operator needs an importer")
        attrs = {
            spec.name: _READERS[spec.kind](node, spec.name)
            for spec in op.attrs
            if spec.default is REQUIRED or node.has_attr(spec.name)
        }
        operands = node.values()
        if op.sized_results is None:
            return node.emit_all(op.name, operands, attrs)
        op.check_arity(len(operands))
        types = tuple(operand.type for operand in operands)
        names = op.operand_names(len(operands))
        context = TypeContext(op.name, types, op.attrs_for(attrs, types), operand_names=names)
        declared = op.sized_results(context, node.fresh_size(op.name))
        return node.emit_all(op.name, operands, attrs, out_types=declared)

    return import_node
