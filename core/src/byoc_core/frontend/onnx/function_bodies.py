"""Functions: model functions, and ops defined by other ops in the standard.

A node calls the model's function of the same name, if any. Otherwise the op's importer is taken, and the standard's
function only for ops without importer; :mod:`byoc_core.frontend.onnx.support` must predict the same choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import onnx

from byoc_core.dims import Dim, symbol
from byoc_core.errors import FrontendError
from byoc_core.frontend.onnx.graph_order import subgraphs
from byoc_core.frontend.onnx.node_context import NodeContext
from byoc_core.frontend.onnx.ops.strings import element_dtype, to_tensor
from byoc_core.frontend.onnx.sequence_value import STRING, RunTimeSequence, SequenceValue
from byoc_core.frontend.onnx.string_tensor import StringTensor
from byoc_core.frontend.onnx.weights import ELEMENT_TYPES

__all__ = ["fixed_body", "has_own_body", "instantiate", "standard_body"]


def fixed_body(op_type: str, opset: int) -> onnx.FunctionProto | None:
    """Return the standard's function defining an op, if this function is the same for all nodes."""
    schema = _schema(op_type, opset)
    version = None if schema is None else _newest(schema.function_opset_versions, opset)
    if schema is None or version is None:
        return None
    return _with_defaults(schema, schema.get_function_with_opset_version(version))


def has_own_body(op_type: str, opset: int) -> bool:
    """Return whether the standard defines an op by a function depending on the node."""
    schema = _schema(op_type, opset)
    return schema is not None and _newest(schema.context_dependent_function_opset_versions, opset) is not None


def standard_body(node: NodeContext, proto: onnx.NodeProto) -> onnx.FunctionProto:
    """Return the standard's function defining a node's op.

    Raises:
        FrontendError: no function exists for a node with these attributes and inputs.
    """
    schema = _schema(node.op_type, node.opset)
    body = fixed_body(node.op_type, node.opset)
    if body is None and has_own_body(node.op_type, node.opset):
        version = _newest(schema.context_dependent_function_opset_versions, node.opset)
        types = [_type_of(node, index).SerializeToString() for index in range(len(proto.input))]
        try:
            data = schema.get_context_dependent_function_with_opset_version(version, proto.SerializeToString(), types)
        except (RuntimeError, ValueError) as error:  # a needed input or attribute is missing
            raise node.error(f"the package onnx cannot make the standard's function of the node: {error}") from error
        body = _with_defaults(schema, data)
        if not body.node:
            raise node.error(
                "this variant of the op is not supported, and the standard has no function body for the variant"
            )
    if body is None:
        raise node.error("the op is not supported")
    node.ignore_attrs(*schema.attributes)  # the body refers to the attributes, or depends on the attributes
    return body


def _with_defaults(schema: Any, data: bytes) -> onnx.FunctionProto:
    """Return a function of a schema, including the schema's default values of attributes."""
    body: onnx.FunctionProto = onnx.FunctionProto.FromString(data)
    declared = [schema.attributes[name] for name in body.attribute if name in schema.attributes]
    body.attribute_proto.extend(attribute.default_value for attribute in declared if attribute.default_value.name)
    return body


def _schema(op_type: str, opset: int) -> Any:  # the package's declaration of schemas lacks functions
    """Return the schema of an op, or ``None`` if the operator set has no such op."""
    try:
        return onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        return None


def _newest(versions: Iterable[int], opset: int) -> int | None:
    return max((version for version in versions if version <= opset), default=None)


def _type_of(node: NodeContext, index: int) -> onnx.TypeProto:
    """Return the type of an input for the standard's functions; for a sequence the type of its first element."""
    if not node.has_input(index):
        return onnx.TypeProto()
    form = node.imported(index)
    if isinstance(form, StringTensor):
        return _tensor_type(STRING, node.shape_of(form))
    if not isinstance(form, SequenceValue | RunTimeSequence):
        return _tensor_type(node.type(index).dtype, node.shape(index))
    sequence = onnx.TypeProto()
    element = _element_type(node, form)
    if element is not None:
        sequence.sequence_type.elem_type.CopyFrom(element)
    return sequence


def _element_type(node: NodeContext, sequence: SequenceValue | RunTimeSequence) -> onnx.TypeProto | None:
    """Return the type of the first element of a sequence; ``None`` for an empty sequence of an unknown dtype."""
    if isinstance(sequence, SequenceValue):
        if sequence.elements:
            tensor = to_tensor(node, sequence.elements[0], "a sequence element")
            return _tensor_type(element_dtype(node, tensor), node.shape_of(tensor))
        return None if sequence.dtype is None else _tensor_type(sequence.dtype, None)
    rank = node.shape_of(sequence.shapes)[1]
    shape = [symbol("size")] * rank if isinstance(rank, int) else None
    return _tensor_type(element_dtype(node, sequence.elements), shape)


def _tensor_type(dtype: str, shape: Sequence[Dim] | None) -> onnx.TypeProto:
    kind = onnx.TensorProto.STRING if dtype == STRING else ELEMENT_TYPES[dtype]
    sizes = None if shape is None else [size if isinstance(size, int) else None for size in shape]
    type_: onnx.TypeProto = onnx.helper.make_tensor_type_proto(kind, sizes)
    return type_


def instantiate(function: onnx.FunctionProto, call: onnx.NodeProto, where: str) -> onnx.GraphProto:
    """Return a function's body as a graph for a single call; the graph has only the inputs present in the call.

    Args:
        function: the function.
        call: the calling node; its attributes replace references to attributes.
        where: the call, for messages.

    Raises:
        FrontendError: the call has more inputs or outputs than the function.
    """
    for kind, arguments, declared in (
        ("inputs", call.input, function.input),
        ("outputs", call.output, function.output),
    ):
        if len(arguments) > len(declared):
            raise FrontendError(
                where, f"has more {kind} than the called function", got=len(arguments), expected=len(declared)
            )
    attributes = {attribute.name: attribute for attribute in function.attribute_proto}
    attributes.update((attribute.name, attribute) for attribute in call.attribute)
    graph = onnx.GraphProto(name=function.name)
    graph.node.extend(function.node)
    arguments = dict(zip(function.input, call.input, strict=False))
    present = [name for name in function.input if arguments.get(name)]
    graph.input.extend(onnx.ValueInfoProto(name=name) for name in present)
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in function.output[: len(call.output)])
    absent = frozenset(function.input) - frozenset(present)
    for node in _all_nodes(graph.node):
        _resolve_attributes(node, attributes)
        for index, name in enumerate(node.input):
            if name in absent:
                node.input[index] = ""
    return graph


def _all_nodes(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for _, graph in subgraphs(node):
            yield from _all_nodes(graph.node)


def _resolve_attributes(node: onnx.NodeProto, attributes: Mapping[str, onnx.AttributeProto]) -> None:
    """Replace references by a call's attributes; references to missing attributes are removed."""
    if not any(attribute.ref_attr_name for attribute in node.attribute):
        return
    resolved = []
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            resolved.append(attribute)
        elif attribute.ref_attr_name in attributes:
            copy = onnx.AttributeProto()
            copy.CopyFrom(attributes[attribute.ref_attr_name])
            copy.name = attribute.name
            resolved.append(copy)
    holder = onnx.NodeProto()
    holder.attribute.extend(resolved)
    del node.attribute[:]
    node.attribute.extend(holder.attribute)
