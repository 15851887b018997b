"""Einstein sums computed by products of matrices, products of elements, transposes and sums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod

from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Binding, IRModule, Value
from byoc_core.opset.equation import parse_equation
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewriter import RewriteGraph, rewrite_module
from byoc_core.transform.tensors import dtype_of, shape_of

__all__ = ["LowerEinsum"]

Labels = tuple[str, ...]

_LEAST_BITS = 32
"""With fewer bits in a number, the products of pairs are not rounded one after another: these may overflow."""
_USUAL_SIZE = 64
"""The size taken for a size known at run time, to compare orders."""


@dataclass(frozen=True)
class LowerEinsum(Pass):
    """Computation of ``einsum`` by ``matmul``, ``multiply``, ``sum``, ``permute_dims`` and ``reshape``.

    Backends have these ops, and recognise them in larger groups. More than two operands are multiplied in pairs, a pair
    with a common letter and a small product first. An op is left alone if it repeats a letter within an operand, if a
    pair has no letter in common, sums along a letter of one operand alone, or sums and has all letters in both
    operands, if the product of a pair is larger than all operands and the result, or for more than two operands of
    16-bit floats. Sums are in another order, so the results are equal in real numbers only; results of a pair
    without a sum are equal bit for bit.
    """

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module with Einstein sums replaced. Cost: linear."""
        return rewrite_module(module, {"einsum": (_lower,)})


@dataclass(frozen=True, eq=False, slots=True)
class _Operand:
    """An operand with a letter for each axis."""

    value: Value
    labels: Labels
    graph: RewriteGraph

    def ordered(self, labels: Labels) -> _Operand:
        """Return the operand with the axes in the order of these letters, a permutation of its own."""
        if labels == self.labels:
            return self
        axes = tuple(map(self.labels.index, labels))
        return _Operand(self.graph.emit("permute_dims", (self.value,), {"axes": axes}), labels, self.graph)

    def shaped(self, shape: Sequence[Dim]) -> Value:
        """Return the value in a shape of as many elements."""
        if shape_of(self.value) == tuple(shape):
            return self.value
        return self.graph.emit("reshape", (self.value,), {"shape": tuple(shape)})

    def sizes(self, labels: Labels) -> list[Dim]:
        """Return the sizes of the axes of these letters, and 1 for letters of other operands."""
        shape = shape_of(self.value)
        assert shape is not None
        return [shape[self.labels.index(label)] if label in self.labels else 1 for label in labels]


def _lower(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    shapes = [shape_of(value) for value in binding.operands]
    tensor_shapes = [shape for shape in shapes if shape is not None]
    if len(tensor_shapes) != len(shapes):
        return None
    equation = parse_equation(str(binding.attrs["equation"]), tensor_shapes)
    if any(len(set(labels)) != len(labels) for labels in equation.operands):
        return None
    operands = [_Operand(*pair, graph) for pair in zip(binding.operands, equation.operands, strict=True)]
    if len(operands) == 1:
        return (_summed(operands[0], equation.result),)
    order = _Order(equation.sizes, equation.result)
    if len(operands) > 2 and dtype_info(dtype_of(binding.result)).bits < _LEAST_BITS:
        return None
    while len(operands) > 2:
        first, second = min(combinations(operands, 2), key=lambda pair: order.cost(pair, operands))
        if not order.is_small((first, second), operands):
            return None
        waiting = [operand for operand in operands if operand is not first and operand is not second]
        joined = _joined(first, second, order.remaining_labels((first, second), operands))
        if joined is None:
            return None
        operands = [joined, *waiting]
    result = _joined(operands[0], operands[1], equation.result)
    return None if result is None else (result.value,)


@dataclass(frozen=True, slots=True)
class _Order:
    """The order of pairs: the size of each letter, and the letters of the result."""

    sizes: Mapping[str, Dim]
    result: Labels

    def remaining_labels(self, pair: Sequence[_Operand], operands: Sequence[_Operand]) -> Labels:
        """Return the letters of two operands read by other operands or the result."""
        used = {label for operand in operands if operand not in pair for label in operand.labels} | set(self.result)
        return tuple(label for label in dict.fromkeys((*pair[0].labels, *pair[1].labels)) if label in used)

    def cost(self, pair: Sequence[_Operand], operands: Sequence[_Operand]) -> tuple[bool, int, int]:
        """Return an order of pairs: first those with a common letter, a small product and few multiplications."""
        both = set(pair[0].labels) | set(pair[1].labels)
        has_common = bool(set(pair[0].labels) & set(pair[1].labels))
        return (
            not has_common,
            _num_elements(self.sizes[label] for label in self.remaining_labels(pair, operands)),
            _num_elements(self.sizes[label] for label in both),
        )

    def is_small(self, pair: Sequence[_Operand], operands: Sequence[_Operand]) -> bool:
        """Return whether two operands have a common letter, and a product no larger than an operand or the result."""
        if not set(pair[0].labels) & set(pair[1].labels):
            return False
        labels = self.remaining_labels(pair, operands)
        sizes = [self.sizes[label] for label in labels]
        tensors = [operand.sizes(operand.labels) for operand in operands]
        tensors.append([self.sizes[label] for label in self.result])
        if set(labels) <= set(self.result) or any(operand.sizes(labels) == sizes for operand in operands):
            return True
        are_numbers = all(isinstance(size, int) for size in sizes)
        return are_numbers and _num_elements(sizes) <= max(map(_num_elements, tensors))


def _num_elements(sizes: Iterable[Dim]) -> int:
    return prod(size if isinstance(size, int) else _USUAL_SIZE for size in sizes)


def _joined(left: _Operand, right: _Operand, result: Labels) -> _Operand | None:
    """Return the sum of products of two operands; ``None`` if other ops do not express the sum."""
    both, summed = set(left.labels) & set(right.labels), (set(left.labels) | set(right.labels)) - set(result)
    if not both >= summed:
        return None
    if not summed:
        factors = [_broadcastable(operand, result) for operand in (left, right)]
        return _Operand(left.graph.emit("multiply", factors), result, left.graph)
    contracted = tuple(label for label in left.labels if label in summed)
    if left.sizes(contracted) != right.sizes(contracted):
        return None
    return _multiplied(left, right, contracted, result)


def _summed(operand: _Operand, result: Labels) -> Value:
    dropped = tuple(axis for axis, label in enumerate(operand.labels) if label not in result)
    if dropped:
        total = operand.graph.emit("sum", (operand.value,), {"axis": dropped})
        labels = tuple(label for label in operand.labels if label in result)
        operand = _Operand(total, labels, operand.graph)
    return operand.ordered(result).value


def _broadcastable(operand: _Operand, result: Labels) -> Value:
    """Return an operand with an axis for each letter of the result, of size 1 for a letter of the other operand."""
    operand = operand.ordered(tuple(label for label in result if label in operand.labels))
    return operand.shaped(operand.sizes(result))


def _multiplied(left: _Operand, right: _Operand, contracted: Labels, result: Labels) -> _Operand | None:
    """Return the product of two operands as matrices, in stacks along the letters in both operands and the result."""
    stacked = tuple(label for label in result if label in left.labels and label in right.labels)
    rows = tuple(label for label in result if label not in right.labels)
    columns = tuple(label for label in result if label not in left.labels)
    if not rows and not columns:
        return None
    if rows and columns and result[-1] in rows:
        # The columns of a product are contiguous, as the last letter of the result.
        left, right, rows, columns = right, left, columns, rows
    left, right = left.ordered((*stacked, *rows, *contracted)), right.ordered((*stacked, *contracted, *columns))
    depth, width = [product(left.sizes(contracted))], [product(right.sizes(columns))] if columns else []
    if stacked:
        # Operands of rank 1 are rows and columns without stacks only.
        height, width = [product(left.sizes(rows))], width or [1]
        sizes = [*left.sizes(stacked), *height, *depth], [*right.sizes(stacked), *depth, *width]
    else:
        sizes = [*left.sizes(rows), *depth], [*depth, *width]
    factors = [operand.shaped(shape) for operand, shape in zip((left, right), sizes, strict=True)]
    graph = left.graph
    labels = (*stacked, *rows, *columns)
    matrices = _Operand(graph.emit("matmul", factors), labels, graph)
    stacks = [a if b == 1 else b for a, b in zip(left.sizes(stacked), right.sizes(stacked), strict=True)]
    value = matrices.shaped([*stacks, *left.sizes(rows), *right.sizes(columns)])
    return _Operand(value, labels, graph).ordered(result)
