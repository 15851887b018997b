"""Rules for ops moving elements by attributes alone: reshape, transpose, join, slice, pad; for the cumulative sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.dims import Dim
from byoc_core.opset.permutation import inverse
from byoc_core.transform.gradients.pullback import Pullback, Rule, by_operand, elementwise
from byoc_core.transform.gradients.terms import Term

__all__ = ["RULES"]


def _keep(pullback: Pullback) -> Term:
    """Return the cotangent; its elements are in the order of the operand."""
    return pullback.cotangent()


def _as_dynamic(pullback: Pullback) -> Sequence[Term | None]:
    return [pullback.cotangent(index) for index in range(pullback.num_operands)]


def _permute_dims(pullback: Pullback) -> Term:
    cotangent, axes = pullback.cotangent(), pullback.attrs["axes"]
    order = reversed(range(cotangent.rank)) if axes is None else (axis % cotangent.rank for axis in axes)
    return cotangent.permute(inverse(tuple(order)))


def _concat(pullback: Pullback) -> Sequence[Term | None]:
    cotangent = pullback.cotangent()
    axis = pullback.attrs["axis"] % cotangent.rank
    return cotangent.split([pullback.operand(index).shape[axis] for index in range(pullback.num_operands)], axis)


def _stack(pullback: Pullback) -> Sequence[Term | None]:
    cotangent = pullback.cotangent()
    return cotangent.split([1] * pullback.num_operands, pullback.attrs["axis"] % cotangent.rank)


def _split(pullback: Pullback) -> Term:
    parts = [pullback.cotangent(index) for index in range(len(pullback.binding.results))]
    return pullback.emitter.emit("concat", parts, {"axis": pullback.attrs["axis"]})[0]


def _tile(pullback: Pullback) -> Term:
    """Return the sum over the repetitions: each axis is an axis of repetitions and an axis of elements."""
    x, repeats = pullback.operand(), pullback.attrs["repeats"]
    pairs = [size for pair in zip(repeats, x.shape, strict=True) for size in pair]
    return pullback.cotangent().reshape(pairs).sum(range(0, len(pairs), 2))


def _flip(pullback: Pullback) -> Term:
    return pullback.cotangent().apply("flip", axis=pullback.attrs["axis"])


def _roll(pullback: Pullback) -> Term:
    shift = tuple(-distance for distance in pullback.attrs["shift"])
    return pullback.cotangent().apply("roll", shift=shift, axis=pullback.attrs["axis"])


def _reverse_sequence(pullback: Pullback) -> Term:
    return pullback.cotangent().apply("reverse_sequence", pullback.operand(1), **pullback.attrs)


def _trilu(pullback: Pullback) -> Term:
    return pullback.cotangent().apply("trilu", **pullback.attrs)


def _blocks(op: str) -> Rule:
    """Return the rule of a rearrangement of blocks from the inverse op."""
    return by_operand(lambda p: p.cotangent().apply(op, **p.attrs))


def _cumsum(pullback: Pullback) -> Term:
    attrs = {**pullback.attrs, "reverse": not pullback.attrs["reverse"]}
    return pullback.cotangent().apply("cumsum", **attrs)


def _pad(pullback: Pullback) -> Term:
    x, widths = pullback.operand(), pullback.attrs["pad_width"]
    axes = [axis for axis in range(x.rank) if widths[2 * axis] or widths[2 * axis + 1]]
    if not axes:
        return pullback.cotangent()
    begin = [widths[2 * axis] for axis in axes]
    end = [first + x.shape[axis] for first, axis in zip(begin, axes, strict=True)]
    return pullback.cotangent().apply("strided_slice", axes=axes, begin=begin, end=end, strides=(1,) * len(axes))


def _border_pad(pullback: Pullback) -> Term:
    """Return the slices added at the positions of their sources, found by padding the positions along each axis."""
    x, cotangent, widths = pullback.operand(), pullback.cotangent(), pullback.attrs["pad_width"]
    for axis, size in enumerate(x.shape):
        width = widths[2 * axis : 2 * axis + 2]
        if any(width):
            positions = pullback.emitter.positions(size)
            sources = positions.apply("nn.border_pad", pad_width=width, mode=pullback.attrs["mode"])
            cotangent = cotangent.scatter_slices(sources, axis, size)
    return cotangent


def _strided_slice(pullback: Pullback) -> Term:
    """Return zeros around the slices: a pad along axes of known bounds with step 1, else a scatter."""
    x, cotangent, attrs = pullback.operand(), pullback.cotangent(), pullback.attrs
    widths = [0] * (2 * x.rank)
    for axis, begin, end, step in zip(attrs["axes"], attrs["begin"], attrs["end"], attrs["strides"], strict=True):
        axis %= x.rank
        width = _pad_width(x.shape[axis], begin, end) if step == 1 else None
        if width is not None:
            widths[2 * axis : 2 * axis + 2] = width
            continue
        positions = pullback.emitter.positions(x.shape[axis])
        bounds = {"axes": (0,), "begin": (begin,), "end": (end,), "strides": (step,), "mode": attrs["mode"]}
        cotangent = cotangent.scatter_slices(positions.apply("strided_slice", **bounds), axis, x.shape[axis])
    return cotangent.apply("nn.pad", pad_width=widths) if any(widths) else cotangent


def _pad_width(size: Dim, begin: Dim, end: Dim) -> tuple[int, int] | None:
    """Return the numbers of indices before and after a slice of an axis with step 1; ``None`` if not known."""
    if not (isinstance(size, int) and isinstance(begin, int) and isinstance(end, int)):
        return None
    indices = range(*slice(begin, end).indices(size))
    return indices.start, size - indices.start - len(indices)


_RESHAPE = by_operand(_keep)
_BROADCAST = elementwise(_keep)

RULES: Mapping[str, Rule] = {
    "reshape": _RESHAPE,
    "squeeze": _RESHAPE,
    "expand_dims": _RESHAPE,
    "as_dynamic": _as_dynamic,
    "broadcast_to": _BROADCAST,
    "full": _BROADCAST,
    "permute_dims": by_operand(_permute_dims),
    "concat": _concat,
    "stack": _stack,
    "split": by_operand(_split),
    "tile": by_operand(_tile),
    "flip": by_operand(_flip),
    "roll": by_operand(_roll),
    "reverse_sequence": by_operand(_reverse_sequence, None),
    "trilu": by_operand(_trilu),
    "depth_to_space": _blocks("space_to_depth"),
    "space_to_depth": _blocks("depth_to_space"),
    "cumsum": by_operand(_cumsum),
    "nn.pad": by_operand(_pad),
    "nn.border_pad": by_operand(_border_pad),
    "strided_slice": by_operand(_strided_slice),
}
"""The family's rules, by op."""
