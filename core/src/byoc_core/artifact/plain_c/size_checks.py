"""Checks of symbolic sizes in exported C, before any other size is computed from these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from byoc_core.dims import Dim, DimExpr, is_nonnegative, is_positive, linear_form, symbol
from byoc_core.native.c_text import c_string

__all__ = ["LARGEST_SIZE", "size_checks"]

LARGEST_SIZE = 1 << 62
"""The largest size computed by exported C, a bound of bytes, offsets and all parts of expressions."""


def size_checks(
    name: str,
    symbols: Sequence[tuple[str, int | None]],
    axes: Iterable[Dim],
    derived: Iterable[Dim],
    text: Callable[[Dim], str],
) -> list[str]:
    """Return C statements returning -1 for sizes without a meaning.

    A symbol is not negative, and not larger than its largest size. No axis is negative, no divisor is 0, broadcast
    sizes fit. Without largest sizes, no expression exceeds :data:`LARGEST_SIZE`.

    Args:
        name: the function, for error texts.
        symbols: the C variable and the largest size of each symbol; without largest sizes, ``None`` for all.
        axes: the sizes of all axes.
        derived: further sizes computed by the C: bytes, offsets, strides.
        text: returns the C of a size.
    """
    checks = _Checks(name, text, is_bounded=all(largest is not None for _, largest in symbols))
    axes = list(dict.fromkeys(axes))
    for dim in (*axes, *dict.fromkeys(derived)):
        checks.visit(dim)
    for dim in axes:
        if not is_nonnegative(dim):
            checks.fail_if(f"{text(dim)} < 0", "an axis has a negative size", text(dim))
    first = []
    for variable, largest in symbols:
        limit = checks.limits.get(variable, LARGEST_SIZE) if largest is None else largest
        condition = f"{variable} < 0 || {variable} > {limit}"
        first.append(checks.failure(condition, "a size is negative or too large", variable))
    return [*first, *checks.statements]


class _Checks:
    def __init__(self, name: str, text: Callable[[Dim], str], *, is_bounded: bool) -> None:
        self._name = name
        self._text = text
        self._is_bounded = is_bounded
        self._visited: set[Dim] = set()
        self.statements: list[str] = []
        self.limits: dict[str, int] = {}

    def visit(self, dim: Dim) -> None:
        """Check the parts of a size, then the size."""
        if isinstance(dim, int) or dim in self._visited:
            return
        self._visited.add(dim)
        for monomial, _ in dim.terms:
            for atom, _ in monomial:
                for arg in atom.args:
                    self.visit(arg)
                if atom.op in ("floordiv", "mod") and not is_positive(atom.args[1]):
                    divisor = self._text(atom.args[1])
                    self.fail_if(f"{divisor} == 0", "a size is divided by 0", divisor)
                elif atom.op == "broadcast":
                    left, right = map(self._text, atom.args)
                    check = f"byoc_check_broadcast({c_string(self._name)}, {left}, {right})"
                    self._add(f"  if ({check}) return -1;")
        if not self._is_bounded:
            self._limit(dim)

    def fail_if(self, condition: str, problem: str, got: str) -> None:
        """Add a check."""
        self._add(self.failure(condition, problem, got))

    def failure(self, condition: str, problem: str, got: str) -> str:
        """Return a statement failing under a condition."""
        text = c_string(f"function `{self._name}`: {problem}; got %lld")
        return f'  if ({condition}) return byoc_fail("ValueError", {text}, (long long){got});'

    def _add(self, statement: str) -> None:
        if statement not in self.statements:
            self.statements.append(statement)

    def _limit(self, dim: DimExpr) -> None:
        """Limit the magnitude of a size: by the symbol of a linear size, else by an estimate in floating point."""
        linear = linear_form(dim)
        if linear is not None and linear[1] > 0 and linear[2] >= 0:
            name, factor, offset = linear
            variable = self._text(symbol(name))
            limit = (LARGEST_SIZE - offset) // factor
            self.limits[variable] = min(limit, self.limits.get(variable, LARGEST_SIZE))
            return
        terms = []
        for monomial, factor in dim.terms:
            parts = [f"{abs(factor)}.0"]
            for atom, exponent in monomial:
                single = DimExpr(((((atom, 1),), 1),))
                value = self._text(single)
                size = value if is_nonnegative(single) else f"byoc_max({value}, -{value})"
                parts += [f"(double){size}"] * exponent
            terms.append(" * ".join(parts))
        # The size is not evaluated: the expression would overflow.
        self.fail_if(f"{' + '.join(terms)} > {LARGEST_SIZE}.0", "a size is too large", "INT64_MAX")
