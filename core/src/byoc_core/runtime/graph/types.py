"""Type checks of graph documents: every node against the op's type rule.

A document from a file may have any content. Kernels and libraries trust attributes and shapes, so a document must be
possible output of a compiler: attributes have the right kind and their stored form, and results have the types inferred
from operands and attributes. Sizes are compared as far as symbols permit.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

from byoc_core.dims import Dim
from byoc_core.errors import ArtifactError, IRTypeError
from byoc_core.opset.attributes import AttrKind
from byoc_core.opset.contexts import TypeContext
from byoc_core.opset.families import find_op
from byoc_core.opset.opdef import OpDef
from byoc_core.opset.types import TensorType, Type
from byoc_core.runtime.graph.document import GraphAttr, GraphDocument, GraphFunction, GraphNode, GraphTensor
from byoc_core.runtime.module import TensorSpec

__all__ = ["check_document_types", "check_function_types", "with_all_attributes"]

_T = TypeVar("_T")
_A = TypeVar("_A")
_SIZES = (AttrKind.DIM, AttrKind.DIMS)


def check_document_types(document: GraphDocument, where: str) -> None:
    """Check all functions of a document; see :func:`check_function_types`."""
    checker = _Checker()
    for function in document.functions.values():
        checker.check(function, f"{where}, function `{function.name}`")


def check_function_types(function: GraphFunction, where: str) -> None:
    """Check the nodes of a function, and of the bodies in it, against the type rules of their ops.

    The engine judges nodes with other ops than byoc's.

    Args:
        function: the function.
        where: the function, for errors.

    Cost: linear in the nodes; equal nodes are checked once.

    Raises:
        ArtifactError: a node has an attribute unknown to the op, or cannot give results of the declared types.
    """
    _Checker().check(function, where)


def with_all_attributes(document: GraphDocument) -> GraphDocument:
    """Return a checked document whose nodes, including nodes in bodies, state every attribute of their ops.

    A document may omit attributes with default values: an op may have gained an attribute since the document was
    written. Engines and kernels see all attributes. The same document is returned if nothing is missing.
    """
    found = {name: _completed_function(function) for name, function in document.functions.items()}
    is_complete = all(map(operator.is_, found.values(), document.functions.values()))
    return document if is_complete else replace(document, functions=MappingProxyType(found))


def _completed_function(function: GraphFunction) -> GraphFunction:
    nodes = tuple(map(_completed, function.nodes))
    return function if all(map(operator.is_, nodes, function.nodes)) else replace(function, nodes=nodes)


def _completed(node: GraphNode) -> GraphNode:
    if node.body is not None:
        body = _completed_function(node.body)
        return node if body is node.body else replace(node, body=body)
    op = find_op(node.op)
    if op is None or len(node.attrs) == len(op.attrs):
        return node
    normal = op.normalise_attrs(node.attrs)
    return replace(node, attrs=MappingProxyType({name: node.attrs.get(name, value) for name, value in normal.items()}))


class _Checker:
    """The checked parts of a document."""

    def __init__(self) -> None:
        # By identity: a decoder makes equal types, and equal attributes, one object. The objects are held here.
        self._types: dict[int, tuple[GraphTensor, TensorType]] = {}
        self._attrs: dict[tuple[str, int], tuple[object, Mapping[str, Any]]] = {}
        self._checked: set[tuple[str, int, tuple[int, ...], tuple[int, ...]]] = set()

    def check(self, function: GraphFunction, where: str) -> None:
        values = function.values
        for index, node in enumerate(function.nodes):
            try:
                if node.body is None:
                    self._check_node(node, [values[id_] for id_ in node.inputs])
                else:
                    _check_border(node, [values[id_] for id_ in node.inputs], node.body)
            except IRTypeError as error:
                location = f"{where}, node {index} (`{node.op}`)"
                text = str(error).removeprefix(f"op `{node.op}`").lstrip(":, ")
                raise ArtifactError(location, f"breaks the type rule of the op: {text}") from error
            if node.body is not None:
                self.check(node.body, f"{where}, node {index} (`{node.op}`), body")

    def _check_node(self, node: GraphNode, operands: Sequence[GraphTensor]) -> None:
        key = (node.op, id(node.attrs), tuple(map(id, operands)), tuple(map(id, node.outputs)))
        if key in self._checked:
            return
        op = find_op(node.op)
        if op is None:
            return
        results = _infer(op, [self._type_of(operand) for operand in operands], self._normal(op, node.attrs), node)
        if len(results) != len(node.outputs):
            raise IRTypeError(f"op `{op.name}`", "has another number of results", got=len(node.outputs))
        for index, (result, declared) in enumerate(zip(results, node.outputs, strict=True)):
            if not _is_type(result, declared):
                raise IRTypeError(f"op `{op.name}`", f"result {index} has another type", got=declared, expected=result)
        self._checked.add(key)

    def _type_of(self, tensor: GraphTensor) -> TensorType:
        cached = self._types.get(id(tensor))
        if cached is None:
            cached = self._types[id(tensor)] = tensor, TensorType(tensor.shape, tensor.dtype)
        return cached[1]

    def _normal(self, op: OpDef, attrs: Mapping[str, GraphAttr]) -> Mapping[str, Any]:
        cached = self._attrs.get((op.name, id(attrs)))
        if cached is None:
            cached = self._attrs[op.name, id(attrs)] = attrs, _normalised(op, attrs)
        return cached[1]


def _normalised(op: OpDef, attrs: Mapping[str, GraphAttr]) -> Mapping[str, Any]:
    """Return all attributes of an op; given attributes must have the compiler's stored form."""
    if any(_has_text_size(op, name, value) for name, value in attrs.items()):
        raise IRTypeError(f"op `{op.name}`", "has a size as text", got=dict(attrs))
    normal = _guarded(op, op.normalise_attrs, attrs)
    for name, value in attrs.items():
        is_nan = isinstance(value, float) and math.isnan(value)  # equal to nothing, and stored as it is
        if normal[name] != value and not is_nan:
            raise IRTypeError(
                f"op `{op.name}`, attribute `{name}`", "is not in the stored form", got=value, expected=normal[name]
            )
    return normal


def _has_text_size(op: OpDef, name: str, value: GraphAttr) -> bool:
    """Return whether an attribute of sizes holds text in place of sizes; such text would be parsed."""
    spec = next((spec for spec in op.attrs if spec.name == name), None)
    items = value if isinstance(value, tuple) else (value,)
    return spec is not None and spec.kind in _SIZES and any(isinstance(item, str) for item in items)


def _infer(op: OpDef, operands: Sequence[Type], attrs: Mapping[str, Any], node: GraphNode) -> tuple[Type, ...]:
    op.check_arity(len(operands))
    declared = None
    if op.declares_results:
        declared = tuple(TensorType(output.shape, output.dtype) for output in node.outputs)
    names = op.operand_names(len(operands))
    return _guarded(op, op.infer, TypeContext(op.name, tuple(operands), attrs, declared=declared, operand_names=names))


def _guarded(op: OpDef, rule: Callable[[_A], _T], argument: _A) -> _T:
    """Return the result of a rule; a failure on an argument no compiler would write is a misfit too."""
    try:
        return rule(argument)
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError) as error:
        raise IRTypeError(f"op `{op.name}`", f"the type rule fails: {type(error).__name__}: {error}") from error


def _is_type(result: Type, declared: GraphTensor) -> bool:
    if not isinstance(result, TensorType) or result.dtype != declared.dtype:
        return False
    shape = result.shape
    return shape is None or shape == declared.shape or _may_be_equal(shape, declared.shape)


def _check_border(node: GraphNode, operands: Sequence[GraphTensor], body: GraphFunction) -> None:
    """Check the known sizes between a node and the node's body; dtypes and ranks have been compared while decoding."""
    results = [body.values[id_] for _, id_ in body.outputs]
    pairs: list[tuple[GraphTensor, GraphTensor | TensorSpec]] = [
        *zip(operands, body.inputs, strict=True),
        *zip(node.outputs, results, strict=True),
    ]
    for outer, inner in pairs:
        sizes = zip(outer.shape, inner.shape, strict=True)
        # The symbols of a body are its own.
        if any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in sizes):
            got = GraphTensor(inner.dtype, inner.shape)
            raise IRTypeError(f"op `{node.op}`", "the body has other sizes than the node", got=got, expected=outer)


def _may_be_equal(left: Sequence[Dim], right: Sequence[Dim]) -> bool:
    """Return whether two shapes may be equal for some sizes of the symbols, judged by their difference."""
    if len(left) != len(right):
        return False
    differences = (a - b for a, b in zip(left, right, strict=True))
    return all(difference == 0 or not isinstance(difference, int) for difference in differences)
