"""Numbers computed at run time as sizes, shapes and axes of other ops.

An element of a tensor becomes a symbol by the op ``as_size``; ops take the symbol like any other dynamic size. A rank
is known during import: a shape, or a list of axes, has a known number of elements.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byoc_core.dims import Dim, product
from byoc_core.frontend.onnx.node_context import NodeContext
from byoc_core.frontend.onnx.ops.data_dependent import emit_sized
from byoc_core.frontend.onnx.shape_value import ShapeValue
from byoc_core.ir.module import Value

__all__ = [
    "as_number",
    "as_size",
    "as_sizes",
    "count_of",
    "elements",
    "int_vector",
    "is_computed",
    "number",
    "read_ints",
    "read_sizes",
    "size_value",
    "sizes_value",
]


def is_computed(node: NodeContext, index: int) -> bool:
    """Return whether the elements of an input are known only at run time; no elements are known."""
    return node.shape_value(index) is None and product(node.shape(index)) != 0


def count_of(node: NodeContext, index: int, expected: int | None = None) -> int:
    """Return the number of elements of an input, a scalar or a vector.

    Args:
        node: the node.
        index: the input.
        expected: the number demanded by the operator: taken where the number is known only at run time.

    Raises:
        FrontendError: the number is known only at run time and not demanded, or the input has several axes.
    """
    shape = node.shape(index)
    count = product(shape)
    if not isinstance(count, int) and expected is not None:
        count = expected
    if len(shape) > 1 or not isinstance(count, int):
        raise node.error(
            f"input {index} holds numbers computed at run time, of an unknown count",
            got=ShapeValue(shape),
            expected="a vector of a known size",
        )
    return count


def int_vector(node: NodeContext, index: int, count: Dim | None = None) -> Value:
    """Return an input as an int64 vector; floats are rounded towards zero.

    Args:
        node: the node.
        index: the input.
        count: the number of elements, checked at run time where not known; by default that of the input.
    """
    value = node.value(index)
    if node.type(index).dtype != "int64":
        value = node.emit("cast", value, dtype="int64")
    return node.reshape(value, (product(node.shape(index)) if count is None else count,))


_MOST_ELEMENTS = 1 << 12
"""The most numbers read one by one at run time: sizes of axes, or of the parts of a split."""


def elements(node: NodeContext, vector: Value, count: int) -> list[Value]:
    """Return the elements of a vector as scalars.

    Raises:
        FrontendError: there are more elements than a tensor of any model has axes or parts.
    """
    if count > _MOST_ELEMENTS:
        raise node.error("too many numbers are known only at run time", got=count, expected=f"at most {_MOST_ELEMENTS}")
    return [node.emit("take", vector, number(node, position), axis=0) for position in range(count)]


def as_sizes(node: NodeContext, vector: Value, count: int) -> tuple[Dim, ...]:
    """Return the elements of an integer vector, not negative, as sizes."""
    return tuple(as_size(node, element) for element in elements(node, vector, count))


def as_number(node: NodeContext, scalar: Value) -> Dim:
    """Return an integer of either sign as a difference of sizes."""
    zero = number(node, 0)
    positive = node.emit("maximum", scalar, zero)
    return as_size(node, positive) - as_size(node, node.emit("subtract", positive, scalar))


def read_sizes(node: NodeContext, index: int, expected: int | None = None) -> tuple[Dim, ...]:
    """Return the elements of an input as sizes, known during import or at run time.

    Args:
        node: the node.
        index: the input.
        expected: the number of sizes demanded by the operator: taken where the number is known only at run time.

    Raises:
        FrontendError: the number of sizes is unknown.
    """
    if not is_computed(node, index):
        return read_ints(node, index) if node.shape_value(index) is None else node.dims(index)
    count = count_of(node, index, expected)
    return as_sizes(node, int_vector(node, index, count), count)


def read_ints(node: NodeContext, index: int) -> tuple[int, ...]:
    """Return the elements of an input known during import; an input without elements is known.

    Raises:
        FrontendError: the elements are computed at run time, or depend on symbolic sizes.
    """
    return () if node.shape_value(index) is None and product(node.shape(index)) == 0 else node.ints(index)


def number(node: NodeContext, value: int) -> Value:
    """Return an int64 scalar."""
    return node.constant(np.int64(value))


def size_value(node: NodeContext, dim: Dim) -> Value:
    """Return a size as an int64 scalar."""
    return node.to_value(ShapeValue.scalar(dim), "a size")


def sizes_value(node: NodeContext, dims: Sequence[Dim]) -> Value:
    """Return sizes as an int64 vector."""
    return node.to_value(ShapeValue(tuple(dims)), "sizes")


def as_size(node: NodeContext, scalar: Value) -> Dim:
    """Return an integer scalar, not negative, as a size."""
    (empty,) = emit_sized(node, "as_size", scalar)
    return node.shape_of(empty)[0]
