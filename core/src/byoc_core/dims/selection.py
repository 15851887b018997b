"""Selection between two sizes: the larger, the smaller, or the broadcast size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType

from byoc_core.dims.algebra import CALL_NAMES, Dim, call, only_atom
from byoc_core.dims.bounds import is_nonnegative, is_positive
from byoc_core.errors import IRTypeError

__all__ = ["CALLS", "broadcast_dim", "dim_max", "dim_min"]


def dim_max(left: Dim, right: Dim) -> Dim:
    """Return the larger of two dimensions, decided immediately if the sign of the difference is known."""
    return _extremum("max", left, right, lambda candidate, other: is_nonnegative(candidate - other))


def dim_min(left: Dim, right: Dim) -> Dim:
    """Return the smaller of two dimensions, decided immediately if the sign of the difference is known."""
    return _extremum("min", left, right, lambda candidate, other: is_nonnegative(other - candidate))


def _extremum(op: str, left: Dim, right: Dim, wins: Callable[[Dim, Dim], bool]) -> Dim:
    """Return the call on all operands of nested calls of the same op, without dominated operands."""
    operands: list[Dim] = []
    for part in sorted({*_operands(op, left), *_operands(op, right)}, key=str):
        if not any(wins(other, part) for other in operands):
            operands = [other for other in operands if not wins(part, other)] + [part]
    return _chain(op, operands)


def broadcast_dim(left: Dim, right: Dim) -> Dim:
    """Return the broadcast size of two dimensions (numpy's rule: equal sizes, or either size 1).

    A size certainly more than 1 is the result: the other size must be equal, or 1.

    Raises:
        IRTypeError: both sizes are known and do not fit.
    """
    if left == right or right == 1:
        return left
    if left == 1:
        return right
    if isinstance(left, int) and isinstance(right, int):
        raise IRTypeError("broadcast", f"sizes {left} and {right} do not fit", expected="equal sizes, or a size of 1")
    parts = {*_operands("broadcast", left), *_operands("broadcast", right)}
    decided = [part for part in parts if isinstance(part, int) or is_positive(part - 1)]
    if decided:
        return min(decided, key=lambda part: (not isinstance(part, int), str(part)))
    return _chain("broadcast", sorted(parts, key=str))


def _operands(op: str, dim: Dim) -> tuple[Dim, ...]:
    """Return the operands of nested calls of an op; the dimension itself if not a call of the op."""
    atom = only_atom(dim)
    if atom is None or atom.op != op:
        return (dim,)
    return tuple(operand for arg in atom.args for operand in _operands(op, arg))


def _chain(op: str, operands: Sequence[Dim]) -> Dim:
    return reduce(lambda left, right: call(op, left, right, commutative=True), operands)


CALLS: Mapping[str, Callable[[Dim, Dim], Dim]] = MappingProxyType(
    dict(zip(CALL_NAMES, (dim_max, dim_min, broadcast_dim), strict=True))
)
"""The functions that text may call by name."""
