"""Documents with types inferred from changed attributes, for mutants with consistent types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from byoc_core.dims import parse_dim
from byoc_core.errors import ByocError
from byoc_core.opset.contexts import TypeContext
from byoc_core.opset.families import find_op
from byoc_core.opset.types import TensorType

__all__ = ["retyped"]

Shapes = dict[tuple[str, ...], tuple[Any, ...]]


def retyped(document: Mapping[str, Any]) -> Shapes:
    """Set the inferred types of operands and attributes on the nodes of a document, if the rules permit.

    Returns:
        The new shape of each changed result, by the old shape; both in the notation of the document.
    """
    shapes: Shapes = {}
    for function in document["functions"]:
        values = [_type_of(item) for item in (*function["inputs"], *function["constants"])]
        for node in function.get("nodes", ()):
            _retype(node, values, shapes)
            values.extend(_type_of(output) for output in node["outputs"])
    return shapes


def _retype(node: Mapping[str, Any], values: list[TensorType], shapes: Shapes) -> None:
    op = find_op(node["op"])
    if op is None or op.declares_results:
        return
    try:
        attrs = op.normalise_attrs({name: _value(value) for name, value in node["attrs"].items()})
        operands = tuple(values[index] for index in node["inputs"])
        op.check_arity(len(operands))
        results = op.infer(TypeContext(op.name, operands, attrs))
    except (ByocError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError):
        return  # against the rules: the declared types stay
    for output, result in zip(node["outputs"], results, strict=False):
        if isinstance(result, TensorType) and result.shape is not None:
            made = [size if isinstance(size, int) else str(size) for size in result.shape]
            if made != output["shape"]:
                shapes[tuple(map(str, output["shape"]))] = tuple(made)
            output["shape"], output["dtype"] = made, result.dtype


def _type_of(item: Mapping[str, Any]) -> TensorType:
    return TensorType(tuple(parse_dim(size) for size in item["shape"]), item["dtype"])


def _value(value: object) -> Any:
    if isinstance(value, list):
        return tuple(map(_value, value))
    if isinstance(value, dict):
        return parse_dim(value["dim"]) if "dim" in value else float(value["float"])
    return value
