"""Rules for ops reading and writing elements at computed positions: gathers, scatters, sorting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.dims import Dim, product
from byoc_core.transform.gradients.pullback import Derivative, Pullback, Rule, by_operand
from byoc_core.transform.gradients.terms import Term

__all__ = ["RULES"]


def _zeros(term: Term) -> Term:
    """Return zeros of the type of a term."""
    return term.emitter.full(0, term.shape, term.dtype)


def _take(pullback: Pullback) -> Term:
    x, indices, cotangent = pullback.operand(0), pullback.operand(1), pullback.cotangent()
    axis = pullback.attrs["axis"] % x.rank
    size, count = x.shape[axis], indices.num_elements()
    positions = indices.cast("int64").reshape((count,))
    if pullback.attrs["mode"] == "clip":
        positions = positions.apply("maximum", 0).apply("minimum", pullback.emitter.size(size - 1))
    slices = cotangent.reshape((*x.shape[:axis], count, *x.shape[axis + 1 :]))
    return slices.scatter_slices(positions, axis, size)


def _gather_elements(pullback: Pullback) -> Term:
    x, indices = pullback.operand(0), pullback.operand(1)
    return _add_elements(x, indices, pullback.cotangent(), pullback.attrs["axis"])


def _add_elements(x: Term, indices: Term, updates: Term, axis: int) -> Term:
    """Return zeros of the type of ``x`` with updates added at indices along an axis."""
    return _zeros(x).apply("scatter_elements", indices, updates, axis=axis, reduction="add")


def _gather_nd(pullback: Pullback) -> Term:
    x, indices = pullback.operand(0), _with_batch(pullback.operand(1), pullback.attrs["batch_dims"])
    return _zeros(x).apply("scatter_nd", indices, pullback.cotangent(), reduction="add")


def _with_batch(indices: Term, batch_dims: int) -> Term:
    """Return tuples of indices extended by the positions along the batch axes."""
    if not batch_dims:
        return indices
    shape: tuple[Dim, ...] = (*indices.shape[:-1], 1)
    parts = []
    for axis in range(batch_dims):
        column = [size if other == axis else 1 for other, size in enumerate(shape)]
        parts.append(indices.emitter.positions(shape[axis]).reshape(column).broadcast_to(shape).cast(indices.dtype))
    return indices.emitter.emit("concat", [*parts, indices], {"axis": -1})[0]


def _scatter_elements(pullback: Pullback) -> Sequence[Term | None]:
    indices, axis = pullback.operand(1), {"axis": pullback.attrs["axis"]}
    cotangent, order = pullback.cotangent(), _count(indices, indices.shape)
    gathered = cotangent.apply("gather_elements", indices, **axis)
    if _adds(pullback):
        return cotangent, None, gathered
    remaining = cotangent.apply("scatter_elements", indices, _zeros(gathered), **axis)
    written = pullback.emitter.full(-1, cotangent.shape, "int64").apply("scatter_elements", indices, order, **axis)
    is_last = written.apply("gather_elements", indices, **axis).apply("equal", order)
    return remaining, None, gathered.where(is_last)


def _scatter_nd(pullback: Pullback) -> Sequence[Term | None]:
    indices, cotangent = pullback.operand(1), pullback.cotangent()
    gathered = cotangent.apply("gather_nd", indices)
    if _adds(pullback):
        return cotangent, None, gathered
    remaining = cotangent.apply("scatter_nd", indices, _zeros(gathered))
    tuples, depth = indices.shape[:-1], indices.shape[-1]
    assert isinstance(depth, int)  # the type rule of the op
    order = _count(indices, tuples)
    written = pullback.emitter.full(-1, cotangent.shape[:depth], "int64").apply("scatter_nd", indices, order)
    is_last = written.apply("gather_nd", indices).apply("equal", order)
    column = is_last.reshape((*tuples, *(1 for _ in range(gathered.rank - len(tuples)))))
    return remaining, None, gathered.where(column)


def _adds(pullback: Pullback) -> bool:
    """Return whether a scatter adds its updates; otherwise the last update of an element replaces the element.

    Raises:
        IRError: the scatter combines updates otherwise.
    """
    reduction: str = pullback.attrs["reduction"]
    if reduction not in ("add", "update"):
        raise pullback.refusal(f"with the reduction `{reduction}`")
    return reduction == "add"


def _count(term: Term, shape: Sequence[Dim]) -> Term:
    """Return the numbers of elements in row-major order, as a tensor of a shape."""
    return term.emitter.positions(product(shape)).reshape(shape)


def _topk(pullback: Pullback) -> Term:
    return _add_elements(pullback.operand(), pullback.result(1), pullback.cotangent(), pullback.attrs["axis"])


def _sort(pullback: Pullback) -> Term:
    x = pullback.operand()
    return _add_elements(x, x.apply("argsort", **pullback.attrs), pullback.cotangent(), pullback.attrs["axis"])


def _one_hot(index: int) -> Derivative:
    """Return the derivative by the value at the indices (1) or elsewhere (2): the sum of the cotangent there."""

    def derivative(pullback: Pullback) -> Term:
        cotangent = pullback.cotangent()
        ends = (cotangent.convert(1), cotangent.convert(0))
        selected = pullback.operand(0).apply("one_hot", *(ends if index == 1 else ends[::-1]), **pullback.attrs)
        return (cotangent * selected).sum(range(cotangent.rank))

    return derivative


RULES: Mapping[str, Rule] = {
    "take": by_operand(_take, None),
    "gather_elements": by_operand(_gather_elements, None),
    "gather_nd": by_operand(_gather_nd, None),
    "scatter_elements": _scatter_elements,
    "scatter_nd": _scatter_nd,
    "one_hot": by_operand(None, _one_hot(1), _one_hot(2)),
    "topk": by_operand(_topk),
    "sort": by_operand(_sort),
}
"""The family's rules, by op."""
