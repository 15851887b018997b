"""Rules for reductions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from byoc_core.opset.permutation import inverse
from byoc_core.transform.gradients.pullback import Pullback, Rule, by_operand
from byoc_core.transform.gradients.terms import Term

__all__ = ["RULES"]


def _axes(pullback: Pullback) -> tuple[int, ...]:
    """Return the reduced axes, ascending."""
    rank, axes = pullback.operand().rank, pullback.attrs["axis"]
    return tuple(range(rank)) if axes is None else tuple(sorted(axis % rank for axis in axes))


def _expanded(pullback: Pullback, reduced: Term) -> Term:
    """Return a term of the shape of the result with size 1 in place of the reduced axes."""
    axes = _axes(pullback)
    return reduced.reshape([1 if axis in axes else size for axis, size in enumerate(pullback.operand().shape)])


def _reduction(formula: Callable[[Pullback, Term, Term], Term]) -> Rule:
    """Return the rule of a reduction from a formula in result and cotangent, both with the reduced axes of size 1."""

    def derivative(pullback: Pullback) -> Term:
        terms = (_expanded(pullback, term) for term in (pullback.result(), pullback.cotangent()))
        return formula(pullback, *terms).broadcast_to(pullback.operand().shape)

    return by_operand(derivative)


def _sum(pullback: Pullback, result: Term, cotangent: Term) -> Term:
    return cotangent


def _mean(pullback: Pullback, result: Term, cotangent: Term) -> Term:
    return cotangent.over_size(pullback.operand().num_elements(_axes(pullback)))


def _extreme(pullback: Pullback, result: Term, cotangent: Term) -> Term:
    """Return equal shares of the cotangent for all elements equal to the extreme."""
    is_extreme = pullback.operand().apply("equal", result).cast(result.dtype)
    return cotangent * (is_extreme / is_extreme.sum(_axes(pullback), keepdims=True))


def _logsumexp(pullback: Pullback, result: Term, cotangent: Term) -> Term:
    return cotangent * (pullback.operand() - result).apply("exp")


def _prod(pullback: Pullback, result: Term, cotangent: Term) -> Term:
    """Return the products of all other elements, from the products before and after each element: no division by 0."""
    x, axes = pullback.operand(), _axes(pullback)
    if not axes:
        return cotangent
    remaining = tuple(axis for axis in range(x.rank) if axis not in axes)
    lines = x.permute((*remaining, *axes))
    joined = lines.reshape((*lines.shape[: len(remaining)], x.num_elements(axes)))
    before, after = (
        joined.apply("cumprod", axis=len(remaining), exclusive=True, reverse=is_reverse) for is_reverse in (False, True)
    )
    return cotangent * (before * after).reshape(lines.shape).permute(inverse((*remaining, *axes)))


RULES: Mapping[str, Rule] = {
    "sum": _reduction(_sum),
    "mean": _reduction(_mean),
    "max": _reduction(_extreme),
    "min": _reduction(_extreme),
    "prod": _reduction(_prod),
    "logsumexp": _reduction(_logsumexp),
}
"""The family's rules, by op."""
