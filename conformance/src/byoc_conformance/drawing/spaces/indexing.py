"""Spaces of ops taking, inserting or reversing elements at indices from operands."""

from __future__ import annotations

from byoc_core.ir import OpDef
from byoc_core.ops.cases import OpCase, OperandCase, case

from byoc_conformance.drawing.pairwise import Levels
from byoc_conformance.drawing.spaces.space import PALETTES, SIGNS, Space, axis_of, schema_levels, with_sign

__all__ = [
    "gather_elements",
    "gather_nd",
    "one_hot",
    "reverse_sequence",
    "scatter_elements",
    "scatter_nd",
    "scatter_slice",
    "take",
]

_POSITIONS = ("first", "last", "middle")
_AXIS = {"rank": (2, 3, 4, 1), "position": _POSITIONS, "sign": SIGNS, "sizes": PALETTES}
_INDICES = {"indices": ("int64", "int32"), "from": ("front", "end")}
"""The dtype of the indices, and whether some are negative."""


def _indices(levels: Levels, shape: tuple[int, ...], size: int) -> OperandCase:
    """Return indices of an axis of a size."""
    return OperandCase(shape, levels["indices"], 0 if levels["from"] == "front" else -size, size - 1)


def _along(levels: Levels) -> tuple[tuple[int, ...], int, int] | None:
    """Return the shape, the axis counted from the front, and the axis as an attribute."""
    rank = levels["rank"]
    axis = axis_of(levels["position"], rank)
    return None if axis is None else (levels["sizes"][:rank], axis, with_sign(axis, rank, levels["sign"]))


def take(op: OpDef) -> Space:
    """Return the space of ``take``; if indices are clipped, some are out of range."""

    def build(levels: Levels) -> OpCase | None:
        found = _along(levels)
        if found is None:
            return None
        shape, axis, axis_attr = found
        indices = _indices(levels, levels["shape"], shape[axis])
        if levels["mode"] == "clip":
            indices = OperandCase(indices.shape, indices.dtype, -2 * shape[axis], 2 * shape[axis])
        return case(op.name, shape, indices, axis=axis_attr, mode=levels["mode"])

    return Space({**_AXIS, **_INDICES, "shape": ((5,), (2, 3), (), (17,)), **schema_levels(op)}, build)


def gather_elements(op: OpDef) -> Space:
    """Return the space of ``gather_elements``; with fewer or more indices than elements along the axis."""

    def build(levels: Levels) -> OpCase | None:
        found = _along(levels)
        if found is None:
            return None
        shape, axis, axis_attr = found
        count = levels["count"]
        return case(
            op.name, shape, _indices(levels, (*shape[:axis], count, *shape[axis + 1 :]), shape[axis]), axis=axis_attr
        )

    return Space({**_AXIS, **_INDICES, "count": (4, 1, 9)}, build)


def gather_nd(op: OpDef) -> Space:
    """Return the space of ``gather_nd``: one index to three, with and without shared axes."""

    def build(levels: Levels) -> OpCase | None:
        shape, shared, count = levels["shape"], levels["batch_dims"], levels["depth"]
        if shared + count > len(shape):
            return None
        indices = (*shape[:shared], *levels["outer"], count)
        return case(op.name, shape, _indices(levels, indices, min(shape[shared : shared + count])), batch_dims=shared)

    shapes = ((4, 3), (2, 4, 3), (2, 3, 4, 5), (17,))
    factors = {"shape": shapes, "batch_dims": (0, 1, 2), "depth": (1, 2, 3), "outer": ((5,), (2, 3), ()), **_INDICES}
    return Space(factors, build)


def one_hot(op: OpDef) -> Space:
    """Return the space of ``one_hot``; the new axis is counted in the result, and some indices are outside."""

    def build(levels: Levels) -> OpCase | None:
        shape = levels["sizes"][: levels["rank"]]
        axis = axis_of(levels["position"], len(shape) + 1)
        if axis is None:
            return None
        depth = levels["depth"]
        indices = OperandCase(shape, levels["indices"], 0 if levels["from"] == "front" else -depth - 1, depth)
        return case(op.name, indices, (), (), depth=depth, axis=with_sign(axis, len(shape) + 1, levels["sign"]))

    return Space({**_AXIS, "rank": (2, 1, 3, 0), **_INDICES, "depth": (5, 1, 17)}, build)


def scatter_elements(op: OpDef) -> Space:
    """Return the space of ``scatter_elements``, with colliding updates."""

    def build(levels: Levels) -> OpCase | None:
        found = _along(levels)
        if found is None:
            return None
        shape, axis, axis_attr = found
        updates = (*shape[:axis], levels["count"], *shape[axis + 1 :])
        indices = _indices(levels, updates, shape[axis])
        return case(op.name, shape, indices, updates, axis=axis_attr, reduction=levels["reduction"])

    return Space({**_AXIS, **_INDICES, "count": (4, 1, 9), **schema_levels(op)}, build)


def scatter_nd(op: OpDef) -> Space:
    """Return the space of ``scatter_nd``: elements and slices."""

    def build(levels: Levels) -> OpCase | None:
        shape, depth, outer = levels["shape"], levels["depth"], levels["outer"]
        if depth > len(shape):
            return None
        indices = _indices(levels, (*outer, depth), min(shape[:depth]))
        return case(op.name, shape, indices, (*outer, *shape[depth:]), reduction=levels["reduction"])

    shapes = ((4, 3), (2, 4, 3), (17,), (2, 3, 4, 5))
    factors = {"shape": shapes, "depth": (1, 2, 3), "outer": ((5,), (2, 3), ()), **_INDICES, **schema_levels(op)}
    return Space(factors, build)


def scatter_slice(op: OpDef) -> Space:
    """Return the space of ``scatter_slice``: a single start, or a start for each item; past the end with wrapping."""

    def build(levels: Levels) -> OpCase | None:
        shape, axis = levels["shape"]
        count = min(levels["count"], shape[axis])
        if levels["starts"] == "each" and axis == 0:
            return None
        highest = shape[axis] - count if levels["mode"] == "linear" else 2 * shape[axis]
        starts = OperandCase(() if levels["starts"] == "one" else (shape[0],), levels["indices"], 0, highest)
        updates = (*shape[:axis], count, *shape[axis + 1 :])
        axis_attr = with_sign(axis, len(shape), levels["sign"])
        return case(op.name, shape, updates, starts, axis=axis_attr, mode=levels["mode"])

    shapes = (((2, 7, 3), 1), ((2, 3, 9), 2), ((8, 3), 0), ((2, 3, 7, 4), 2))
    factors = {"shape": shapes, "sign": SIGNS, "count": (1, 4, 9), "starts": ("one", "each")}
    return Space({**factors, "indices": _INDICES["indices"], **schema_levels(op)}, build)


def reverse_sequence(op: OpDef) -> Space:
    """Return the space of ``reverse_sequence``: items along any axis, sequences along any other."""

    def build(levels: Levels) -> OpCase | None:
        shape, (items, steps) = levels["shape"], levels["axes"]
        rank = len(shape)
        if max(items, steps) >= rank:
            return None
        lengths = OperandCase((shape[items],), levels["indices"], 1, shape[steps])
        items, steps = (with_sign(axis, rank, levels["sign"]) for axis in (items, steps))
        return case(op.name, shape, lengths, batch_axis=items, seq_axis=steps)

    shapes = ((2, 5, 3), (4, 7), (3, 2, 5, 2))
    axes = ((0, 1), (1, 0), (1, 2), (2, 0))
    return Space({"shape": shapes, "axes": axes, "sign": SIGNS, "indices": _INDICES["indices"]}, build)
