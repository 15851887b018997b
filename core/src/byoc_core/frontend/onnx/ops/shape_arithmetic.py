"""Elementwise ops and reductions on known shapes: the numbers in ``Reshape`` and ``Expand`` targets.

Each function returns the node's results, or ``None`` for unknown results. In this case the node is imported in the
ordinary way, and computed at run time. Results of comparisons and signs are proven for all sizes of zero or more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod

import numpy as np

from byoc_core.dims import Dim, ceildiv, dim_max, dim_min, has_calls, is_nonnegative, is_positive
from byoc_core.dims.algebra import terms_of
from byoc_core.dtypes import is_float
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, ShapeImporter
from byoc_core.frontend.onnx.ops.data_sizes import as_size, number, size_value
from byoc_core.frontend.onnx.shape_value import (
    FLOAT_SHAPE_DTYPES,
    SHAPE_DTYPES,
    Element,
    Objects,
    Ratio,
    ShapeValue,
)
from byoc_core.frontend.onnx.weights import DTYPES

__all__ = ["IMPORTERS", "Results", "wrapped"]

Results = Sequence[Imported] | None
"""The imported form of each output, or ``None`` if unknown."""


def wrapped(objects: object, dtype: str) -> Results:
    """Return an array of elements as a node's only result; ``None`` if not representable as :class:`ShapeValue`."""
    value = ShapeValue.from_objects(objects, dtype)
    return None if value is None else (value,)


def _elementwise(compute: Callable[..., Element | None], dtype: str | None = None) -> ShapeImporter:
    """Build the importer of an op on integers, computed by ``compute``; for bools, floats and mixed dtypes ``None``."""

    def import_node(node: NodeContext, inputs: Sequence[ShapeValue]) -> Results:
        dtypes = {value.dtype for value in inputs}
        if len(dtypes) != 1 or dtypes & {"bool", *FLOAT_SHAPE_DTYPES}:
            return None
        return _mapped(compute, inputs, dtype or inputs[0].dtype)

    return import_node


def _mapped(compute: Callable[..., Element | None], inputs: Sequence[ShapeValue], dtype: str) -> Results:
    """Apply a function to the elements of broadcasting tensors; return ``None`` if any result is ``None``."""
    try:
        columns = np.broadcast_arrays(*(value.objects for value in inputs))
    except ValueError:
        return None
    elements = [compute(*row) for row in zip(*(column.reshape(-1).tolist() for column in columns), strict=True)]
    results = tuple(element for element in elements if element is not None)
    if len(results) != len(elements):
        return None
    result = np.empty(len(results), object)
    result[:] = results
    return wrapped(result.reshape(columns[0].shape), dtype)


def _number(compute: Callable[..., Dim | None], of_ratios: Callable[[Ratio, Ratio], Ratio | None]) -> ShapeImporter:
    """Build an importer like :func:`_elementwise`; floats are exact ratios, but constants alone give ``None``."""
    of_integers = _elementwise(compute)

    def import_node(node: NodeContext, inputs: Sequence[ShapeValue]) -> Results:
        dtype = inputs[0].dtype
        if dtype not in FLOAT_SHAPE_DTYPES:
            return of_integers(node, inputs)
        if any(value.dtype != dtype for value in inputs) or all(value.is_static for value in inputs):
            return None
        return _mapped(of_ratios, inputs, dtype)

    return import_node


def _divide(left: Dim, right: Dim) -> Dim | None:
    """Divide with truncation, following ONNX; by a symbolic divisor only if the divisor is not negative."""
    if right == 0:
        return None
    if isinstance(left, int) and isinstance(right, int):
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    if is_nonnegative(left):
        return left // right if is_nonnegative(right) else None
    if not is_positive(right):
        return None
    # PyTorch exports sizes of strided convolutions as `(n - 1) / 2 + 1`: the dividend is negative for `n = 0`.
    from_zero = dim_max(0, left // right)
    if is_nonnegative(left + right - 1):
        return from_zero
    # The dividend occurs twice: a chain of such divisions would double in length with each.
    return None if has_calls(left) else from_zero + dim_min(0, ceildiv(left, right))


def _divided(node: NodeContext, inputs: Sequence[ShapeValue]) -> Results:
    """Divide; a quotient of a difference that is negative for some sizes becomes a size of its own, computed when run.

    So further sizes and shapes stay known, as sizes with this symbol.
    """
    results = _number(_divide, _divide_ratios)(node, inputs)
    left, right = inputs
    if results is not None or left.dtype != "int64" or right.dtype != "int64" or left.shape or right.shape:
        return results
    (dividend,), (divisor,) = left.elements, right.elements
    if isinstance(dividend, Ratio) or not isinstance(divisor, int) or divisor <= 0:
        return None
    constant = dict(terms_of(dividend)).get((), 0)
    if not is_nonnegative(dividend - constant):
        return None
    shift = -(constant // divisor)
    quotient = node.emit("divide", size_value(node, dividend), number(node, divisor))
    return (ShapeValue.scalar(as_size(node, node.emit("add", quotient, number(node, shift))) - shift),)


def _mod(node: NodeContext, inputs: Sequence[ShapeValue]) -> Results:
    truncates = node.attr_flag("fmod")

    def compute(left: Dim, right: Dim) -> Dim | None:
        if right == 0 or (truncates and not (is_nonnegative(left) and is_nonnegative(right))):
            return None
        return left % right

    return _elementwise(compute)(node, inputs)


def _is_exact(*ratios: Ratio) -> bool:
    """Return whether floats represent ratios of sizes exactly: all denominators are powers of two."""
    return all(ratio.denominator & (ratio.denominator - 1) == 0 for ratio in ratios)


def _add_ratios(left: Ratio, right: Ratio) -> Ratio | None:
    common = max(left.denominator, right.denominator)
    if not _is_exact(left, right):
        return None
    return Ratio(
        left.numerator * (common // left.denominator) + right.numerator * (common // right.denominator), common
    )


def _subtract_ratios(left: Ratio, right: Ratio) -> Ratio | None:
    return _add_ratios(left, Ratio(-right.numerator, right.denominator))


def _multiply_ratios(left: Ratio, right: Ratio) -> Ratio | None:
    if not _is_exact(left, right):
        return None
    return Ratio(left.numerator * right.numerator, left.denominator * right.denominator)


def _divide_ratios(left: Ratio, right: Ratio) -> Ratio | None:
    """Divide by a constant; a single division may round, but later floor or truncation gives the exact integer."""
    divisor = right.numerator
    if not isinstance(divisor, int) or divisor <= 0 or not _is_exact(left, right):
        return None
    return Ratio(left.numerator * right.denominator, left.denominator * divisor)


def _rounding(function: Callable[[Dim, Dim], Dim]) -> ShapeImporter:
    def import_node(node: NodeContext, inputs: Sequence[ShapeValue]) -> Results:
        (value,) = inputs
        if value.dtype not in FLOAT_SHAPE_DTYPES or value.is_static:
            return None
        return _mapped(lambda ratio: Ratio(function(ratio.numerator, ratio.denominator)), inputs, value.dtype)

    return import_node


def _cast(node: NodeContext, inputs: Sequence[ShapeValue]) -> Results:
    (value,) = inputs
    dtype = DTYPES.get(node.attr_int("to"), "")
    if node.has_attr("saturate"):
        node.ignore_attrs("saturate")  # concerns 8-bit floats only
    to_float = dtype in FLOAT_SHAPE_DTYPES
    if not to_float and dtype not in SHAPE_DTYPES:
        return None
    if dtype == "bool":
        return _mapped(_truth, inputs, dtype) if not is_float(value.dtype) else None
    if is_float(value.dtype):
        return (ShapeValue(value.elements, dtype, value.shape),) if to_float else _mapped(_truncated, inputs, dtype)
    return _mapped(Ratio, inputs, dtype) if to_float else (ShapeValue(value.elements, dtype, value.shape),)


def _truncated(ratio: Ratio) -> Dim | None:
    if isinstance(ratio.numerator, int):
        return int(ratio.numerator / ratio.denominator)
    return ratio.numerator // ratio.denominator if is_nonnegative(ratio.numerator) else None


def _truth(element: Dim) -> Dim | None:
    equal = _equal(element, 0)
    return None if equal is None else 1 - equal


def _equal(left: Dim, right: Dim) -> Dim | None:
    difference = left - right
    if isinstance(difference, int):
        return int(difference == 0)
    return 0 if is_positive(difference) or is_positive(-difference) else None


def _less(left: Dim, right: Dim) -> Dim | None:
    if is_positive(right - left):
        return 1
    return 0 if is_nonnegative(left - right) else None


def _less_or_equal(left: Dim, right: Dim) -> Dim | None:
    if is_nonnegative(right - left):
        return 1
    return 0 if is_positive(left - right) else None


def _logical(function: Callable[..., Dim]) -> ShapeImporter:
    def import_node(node: NodeContext, inputs: Sequence[ShapeValue]) -> Results:
        return _mapped(function, inputs, "bool") if all(value.dtype == "bool" for value in inputs) else None

    return import_node


def _where(node: NodeContext, inputs: Sequence[ShapeValue]) -> Results:
    condition, left, right = inputs
    if condition.dtype != "bool" or left.dtype != right.dtype:
        return None
    return _mapped(lambda test, a, b: a if test else b, inputs, left.dtype)


def _extremum(function: Callable[[Dim, Dim], Dim]) -> ShapeImporter:
    return _elementwise(lambda *elements: reduce(function, elements))


def _reduction(function: Callable[[Objects], Dim], *, axes_input_since: int) -> ShapeImporter:
    """Build the importer of a reduction of a vector of sizes to a number."""

    def import_node(node: NodeContext, inputs: Sequence[ShapeValue]) -> Results:
        value = inputs[0]
        axes: tuple[int, ...] | None = ()
        if node.opset >= axes_input_since:
            axes = inputs[1].ints if len(inputs) > 1 else ()
            if node.attr_flag("noop_with_empty_axes") and not axes:
                return (value,)
        elif node.has_attr("axes"):
            axes = node.attr_ints("axes")
        keepdims = node.attr_flag("keepdims", default=True)
        if axes not in ((), (0,), (-1,)) or len(value.shape) != 1 or is_float(value.dtype) or not value.elements:
            return None
        result = ShapeValue((function(value.objects),), value.dtype, (1,) if keepdims else ())
        return (result,) if result.is_representable else None

    return import_node


IMPORTERS: dict[str, ShapeImporter] = {
    "Abs": _elementwise(lambda x: dim_max(x, -x)),
    "Add": _number(lambda x, y: x + y, _add_ratios),
    "And": _logical(lambda x, y: x and y),
    "Cast": _cast,
    "Ceil": _rounding(ceildiv),
    "Div": _divided,
    "Equal": _elementwise(_equal, "bool"),
    "Floor": _rounding(lambda x, y: x // y),
    "Greater": _elementwise(lambda x, y: _less(y, x), "bool"),
    "GreaterOrEqual": _elementwise(lambda x, y: _less_or_equal(y, x), "bool"),
    "Less": _elementwise(_less, "bool"),
    "LessOrEqual": _elementwise(_less_or_equal, "bool"),
    "Max": _extremum(dim_max),
    "Min": _extremum(dim_min),
    "Mod": _mod,
    "Mul": _number(lambda x, y: x * y, _multiply_ratios),
    "Neg": _elementwise(lambda x: -x),
    "Not": _logical(lambda x: 1 - x),
    "Or": _logical(lambda x, y: x or y),
    "ReduceMax": _reduction(lambda sizes: reduce(dim_max, sizes), axes_input_since=18),
    "ReduceMin": _reduction(lambda sizes: reduce(dim_min, sizes), axes_input_since=18),
    "ReduceProd": _reduction(prod, axes_input_since=18),
    "ReduceSum": _reduction(sum, axes_input_since=13),
    "Sub": _number(lambda x, y: x - y, _subtract_ratios),
    "Where": _where,
}
"""The ops computed on known shapes, by ONNX name."""
