"""Ops on known shapes: what ``Reshape`` and ``Expand`` targets are computed with.

Each function gives the node's result, or ``None`` where it cannot be known; then the node is imported as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from byoc_core.dims import Dim, dim_max, dim_min, is_nonnegative
from byoc_core.frontend.onnx.node_context import NodeContext, ShapeImporter
from byoc_core.frontend.onnx.ops.movement import read_axes, read_slice
from byoc_core.frontend.onnx.shape_value import SHAPE_DTYPES, ShapeValue
from byoc_core.frontend.onnx.weights import DTYPES

__all__ = ["IMPORTERS"]


def _elementwise(function: Callable[[Dim, Dim], Dim | None], dtype: str | None = None) -> ShapeImporter:
    def compute(node: NodeContext, inputs: Sequence[ShapeValue]) -> ShapeValue | None:
        left, right = inputs
        if left.dtype == "bool" or left.dtype != right.dtype:
            return None
        pairs = _broadcast((left, right))
        results = [None if pairs is None else function(a, b) for a, b in pairs or ()]
        known = tuple(result for result in results if result is not None)
        if pairs is None or len(known) != len(results):
            return None
        return ShapeValue(known, dtype or left.dtype, left.is_scalar and right.is_scalar)

    return compute


def _folded(function: Callable[[Dim, Dim], Dim]) -> ShapeImporter:
    """Gives the importer of ops on any number of inputs, taken two at a time."""
    pairwise = _elementwise(function)

    def compute(node: NodeContext, inputs: Sequence[ShapeValue]) -> ShapeValue | None:
        result: ShapeValue | None = inputs[0]
        for other in inputs[1:]:
            result = None if result is None else pairwise(node, (result, other))
        return result

    return compute


def _broadcast(values: Sequence[ShapeValue]) -> list[tuple[Dim, ...]] | None:
    """Gives the elements side by side, single ones repeated; ``None`` where the lengths do not fit."""
    lengths = {len(value.elements) for value in values if len(value.elements) != 1}
    if len(lengths) > 1:
        return None
    length = lengths.pop() if lengths else 1
    columns = [value.elements * length if len(value.elements) == 1 else value.elements for value in values]
    return list(zip(*columns, strict=True))


def _add(left: Dim, right: Dim) -> Dim:
    return left + right


def _subtract(left: Dim, right: Dim) -> Dim:
    return left - right


def _multiply(left: Dim, right: Dim) -> Dim:
    return left * right


def _divide(left: Dim, right: Dim) -> Dim | None:
    """Truncates, as ONNX does; for symbolic sizes that is known only where nothing is negative."""
    if right == 0:
        return None
    if isinstance(left, int) and isinstance(right, int):
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    return left // right if is_nonnegative(left) and is_nonnegative(right) else None


def _equal(left: Dim, right: Dim) -> Dim | None:
    difference = left - right
    if isinstance(difference, int):
        return int(difference == 0)
    # Sizes are zero or more, so no size equals a negative number.
    return 0 if is_nonnegative(difference - 1) or is_nonnegative(-difference - 1) else None


def _where(node: NodeContext, inputs: Sequence[ShapeValue]) -> ShapeValue | None:
    condition, left, right = inputs
    rows = _broadcast(inputs)
    if rows is None or not condition.is_static or left.dtype != right.dtype:
        return None
    chosen = tuple(a if test else b for test, a, b in rows)
    return ShapeValue(chosen, left.dtype, all(value.is_scalar for value in inputs))


def _cast(node: NodeContext, inputs: Sequence[ShapeValue]) -> ShapeValue | None:
    dtype = DTYPES.get(node.attr_int("to"), "")
    value = inputs[0]
    if dtype not in SHAPE_DTYPES or (dtype == "bool" and value.dtype != "bool"):
        return None
    return ShapeValue(value.elements, dtype, value.is_scalar)


def _concat(node: NodeContext, inputs: Sequence[ShapeValue]) -> ShapeValue | None:
    if node.attr_int("axis") not in (0, -1) or any(value.is_scalar for value in inputs):
        return None
    return ShapeValue(tuple(element for value in inputs for element in value.elements), inputs[0].dtype)


def _gather(node: NodeContext, inputs: Sequence[ShapeValue]) -> ShapeValue | None:
    data, positions = inputs
    if data.is_scalar or node.attr_int("axis", 0) not in (0, -1) or positions.ints is None:
        return None
    size = len(data.elements)
    for position in positions.ints:
        if not -size <= position < size:
            raise node.error(f"takes an element that a shape of {size} sizes does not have", got=position)
    return ShapeValue(tuple(data.elements[p] for p in positions.ints), data.dtype, positions.is_scalar)


def _slice(node: NodeContext, inputs: Sequence[ShapeValue]) -> ShapeValue | None:
    data = inputs[0]
    if data.is_scalar or not all(value.is_static for value in inputs[1:]):
        return None
    axes, begin, end, strides = read_slice(node)
    if tuple(axes) not in ((0,), (-1,)) or strides[0] < 1:
        return None
    return ShapeValue(data.elements[begin[0] : end[0] : strides[0]], data.dtype)


def _unsqueeze(node: NodeContext, inputs: Sequence[ShapeValue]) -> ShapeValue | None:
    if not inputs[0].is_scalar or read_axes(node) not in ((0,), (-1,)):
        return None
    return ShapeValue(inputs[0].elements, inputs[0].dtype)


def _squeeze(node: NodeContext, inputs: Sequence[ShapeValue]) -> ShapeValue | None:
    if len(inputs[0].elements) != 1 or inputs[0].is_scalar or read_axes(node) not in (None, (0,), (-1,)):
        return None
    return ShapeValue(inputs[0].elements, inputs[0].dtype, is_scalar=True)


def _reshape(node: NodeContext, inputs: Sequence[ShapeValue]) -> ShapeValue | None:
    data, target = inputs
    node.attr_flag("allowzero")
    if target.elements == () and len(data.elements) == 1:
        return ShapeValue(data.elements, data.dtype, is_scalar=True)
    if target.elements in ((-1,), (len(data.elements),)):
        return ShapeValue(data.elements, data.dtype)
    return None


IMPORTERS: dict[str, ShapeImporter] = {
    "Add": _elementwise(_add),
    "Cast": _cast,
    "Concat": _concat,
    "Div": _elementwise(_divide),
    "Equal": _elementwise(_equal, "bool"),
    "Gather": _gather,
    "Max": _folded(dim_max),
    "Min": _folded(dim_min),
    "Mul": _elementwise(_multiply),
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Sub": _elementwise(_subtract),
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
"""The ops that compute on known shapes, by ONNX name."""
