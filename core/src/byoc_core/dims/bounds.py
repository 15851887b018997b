"""Proofs about sizes for all values of their symbols: zero or more, or one or more.

A proof may be missed, but a proved statement must be true: the verifier of programs, layouts of views, storage
planning and loops of generated C rely on every proof.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from byoc_core.dims.algebra import Atom, Dim, DimExpr, Monomial, from_terms

__all__ = ["is_nonnegative", "is_positive", "upper_bound"]

_MAX_BOUNDED_CALLS = 6  # bounds branch in two at each call


def is_nonnegative(dim: Dim) -> bool:
    """Return whether a dimension is certainly zero or more (``False``: not provable this way).

    If the signs of the terms are inconclusive, calls are replaced in turn by their bounds.
    """
    return dim >= 0 if isinstance(dim, int) else _Proofs().is_nonnegative(dim)


def is_positive(dim: Dim) -> bool:
    """Return whether a dimension is certainly one or more (``False``: not provable this way)."""
    return is_nonnegative(dim - 1)


def upper_bound(dim: Dim, largest: Mapping[str, int]) -> int:
    """Return a number not exceeded by a dimension for all sizes from 0 to the largest size of each symbol.

    The bound is the value at the largest sizes for sums of products with positive factors, and not smaller otherwise.
    Sizes with a zero divisor, or with a broadcast of unequal sizes, do not count.

    Args:
        dim: the dimension.
        largest: the largest size of each symbol of the dimension.

    Raises:
        KeyError: a symbol has no largest size.
    """
    return _interval(dim, largest)[1]


_Interval = tuple[int, int]


def _interval(dim: Dim, largest: Mapping[str, int]) -> _Interval:
    """Return the least and the largest value, by interval arithmetic: both may be too far out."""
    if isinstance(dim, int):
        return dim, dim
    low = high = 0
    for monomial, factor in dim.terms:
        term = (factor, factor)
        for atom, exponent in monomial:
            value = _atom_interval(atom, largest)
            for _ in range(exponent):
                term = _hull(x * y for x in term for y in value)
        low, high = low + term[0], high + term[1]
    return low, high


def _atom_interval(atom: Atom, largest: Mapping[str, int]) -> _Interval:
    if not atom.op:
        return 0, largest[atom.name]
    left, right = (_interval(argument, largest) for argument in atom.args)
    if atom.op == "max":
        return max(left[0], right[0]), max(left[1], right[1])
    if atom.op == "min":
        return min(left[0], right[0]), min(left[1], right[1])
    if atom.op == "broadcast":  # one of the two
        return _hull((*left, *right))
    if atom.op == "mod":
        low, high = min(0, right[0] + 1), max(0, right[1] - 1)
        return (low, min(high, left[1])) if left[0] >= 0 and right[0] >= 0 else (low, high)
    # The quotient is monotonous in the divisor on each side of 0.
    divisors = [divisor for divisor in (right[0], -1, 1, right[1]) if divisor and right[0] <= divisor <= right[1]]
    return _hull(dividend // divisor for dividend in left for divisor in divisors) if divisors else (0, 0)


def _hull(values: Iterable[int]) -> _Interval:
    found = list(values)
    return min(found), max(found)


class _Proofs:
    """Proofs for the parts of one dimension; each part is tried once, so nested calls take no exponential time."""

    def __init__(self) -> None:
        self._answers: dict[tuple[Dim, int], bool] = {}

    def is_nonnegative(self, dim: Dim, calls_left: int = _MAX_BOUNDED_CALLS) -> bool:
        """Return whether a dimension is provably zero or more; at most ``calls_left`` calls are bounded in turn."""
        if isinstance(dim, int):
            return dim >= 0
        key = (dim, calls_left)
        if key not in self._answers:
            self._answers[key] = self._prove(dim, calls_left)
        return self._answers[key]

    def _prove(self, dim: DimExpr, calls_left: int) -> bool:
        if all(factor >= 0 and self._are_nonnegative(monomial) for monomial, factor in dim.terms):
            return True
        for monomial, factor in dim.terms if calls_left else ():
            for atom, exponent in monomial:
                cofactor = tuple(item for item in monomial if item[0] != atom)
                if not atom.op or exponent != 1 or not self._are_nonnegative(cofactor):
                    continue
                rest, scale = (
                    from_terms(term for term in dim.terms if term[0] != monomial),
                    from_terms([(cofactor, factor)]),
                )
                conditions, needed = self._sufficient(atom, rest, scale, is_added=factor > 0)
                return bool(conditions) and needed(self.is_nonnegative(bound, calls_left - 1) for bound in conditions)
        return False

    def _are_nonnegative(self, monomial: Monomial) -> bool:
        return all(self._atom_is_nonnegative(atom) for atom, _ in monomial)

    def _atom_is_nonnegative(self, atom: Atom) -> bool:
        if not atom.op:
            return True
        if atom.op == "mod":
            return self.is_nonnegative(atom.args[1] - 1)
        if atom.op == "max":
            return any(map(self.is_nonnegative, atom.args))
        return all(map(self.is_nonnegative, atom.args))

    def _sufficient(
        self, atom: Atom, rest: Dim, scale: Dim, *, is_added: bool
    ) -> tuple[list[Dim], Callable[[Iterable[bool]], bool]]:
        """Return dimensions without ``atom``; if all (or any) are zero or more, so is ``rest + scale * atom``.

        Args:
            atom: a call.
            rest: the other summand.
            scale: the factor of the atom; of known sign.
            is_added: whether the sign of the factor is plus.
        """
        left, right = atom.args
        if atom.op in ("max", "min", "broadcast"):  # a broadcast size is one of the two
            one_is_enough = atom.op == ("max" if is_added else "min")
            return [rest + scale * left, rest + scale * right], any if one_is_enough else all
        if isinstance(right, int) and right > 0:
            if atom.op == "mod":
                return [rest if is_added else rest + scale * (right - 1)], all
            return [right * rest + scale * (left - (right - 1) if is_added else left)], all
        conditions: list[Dim] = []
        if not is_added and self.is_nonnegative(right - 1):
            # Neither quotient nor remainder is larger than a nonnegative dividend.
            conditions += [rest + scale * left] if self.is_nonnegative(left) else []
            conditions += [rest + scale * (right - 1)] if atom.op == "mod" else []
        return conditions, any
