"""Spaces of ops along axes: the softmax family, sorting, running sums, reductions, norms, and the bias of channels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from byoc_core.ir import OpDef
from byoc_core.ops.cases import OpCase, OperandCase, case

from byoc_conformance.drawing.pairwise import Levels
from byoc_conformance.drawing.spaces.space import PALETTES, SIGNS, Space, axis_of, schema_levels, with_sign

__all__ = [
    "along_axis",
    "batch_norm",
    "bias_add",
    "channel_norm",
    "compress",
    "group_norm",
    "lrn",
    "norm_over_axes",
    "reduction",
    "topk",
    "unique",
]

_POSITIONS = ("last", "first", "middle")
_SETS = ("last", "first", "middle", "last two", "first two", "ends", "all")
_AXIS: Mapping[str, tuple[Any, ...]] = {"rank": (2, 1, 3, 4), "position": _POSITIONS, "sign": SIGNS, "sizes": PALETTES}


def _along(levels: Levels) -> tuple[tuple[int, ...], int, int] | None:
    """Return the shape, the axis counted from the front, and the axis as an attribute."""
    rank = levels["rank"]
    axis = axis_of(levels["position"], rank)
    return None if axis is None else (levels["sizes"][:rank], axis, with_sign(axis, rank, levels["sign"]))


def _rest(levels: Levels, *names: str) -> dict[str, Any]:
    return {name: level for name, level in levels.items() if name not in {*_AXIS, *names}}


def along_axis(op: OpDef) -> Space:
    """Return the space of a unary op with an attribute ``axis``."""

    def build(levels: Levels) -> OpCase | None:
        found = _along(levels)
        return None if found is None else case(op.name, found[0], axis=found[2], **_rest(levels))

    return Space({**_AXIS, **schema_levels(op, "axis")}, build)


def topk(op: OpDef) -> Space:
    """Return the space of ``topk``: one element, some, all."""

    def build(levels: Levels) -> OpCase | None:
        found = _along(levels)
        if found is None:
            return None
        shape, axis, axis_attr = found
        k = {"one": 1, "some": shape[axis] // 2, "all": shape[axis]}[levels["count"]]
        return case(op.name, shape, k=k, axis=axis_attr, **_rest(levels, "count"))

    return Space({**_AXIS, "count": ("some", "one", "all"), **schema_levels(op, "axis", "k")}, build)


def unique(op: OpDef) -> Space:
    """Return the space of ``unique``, of elements and of slices."""

    def build(levels: Levels) -> OpCase | None:
        if levels["position"] == "none":
            return case(op.name, levels["sizes"][: levels["rank"]], axis=None, **_rest(levels))
        found = _along(levels)
        return None if found is None else case(op.name, found[0], axis=found[2], **_rest(levels))

    return Space({**_AXIS, "position": ("none", *_POSITIONS), **schema_levels(op, "axis")}, build)


def compress(op: OpDef) -> Space:
    """Return the space of ``compress``; the condition may be shorter than the axis."""

    def build(levels: Levels) -> OpCase | None:
        found = _along(levels)
        if found is None:
            return None
        shape, axis, axis_attr = found
        length = shape[axis] if levels["condition"] == "whole" else shape[axis] - 1
        return case(op.name, shape, OperandCase((length,), "bool"), axis=axis_attr)

    return Space({**_AXIS, "condition": ("whole", "shorter")}, build)


def axes_of(kind: str, rank: int) -> tuple[int, ...] | None:
    """Return the axes of a set, ascending; ``None`` if the rank is too small for a distinct set of this name."""
    found: dict[str, tuple[int, ...]] = {
        "last": (rank - 1,),
        "first": (0,),
        "middle": (rank // 2,),
        "last two": (rank - 2, rank - 1),
        "first two": (0, 1),
        "ends": (0, rank - 1),
        "all": tuple(range(rank)),
    }
    least = {"last": 1, "first": 1, "middle": 3, "last two": 2, "first two": 2, "ends": 3, "all": 1}
    return found[kind] if rank >= least[kind] else None


def _signed(axes: tuple[int, ...], rank: int, sign: str) -> tuple[int, ...] | None:
    """Return axes as an attribute; with ``"mixed"``, every second axis is counted from the end."""
    if sign == "mixed":
        if len(axes) == 1:
            return None
        return tuple(axis - rank if index % 2 == 0 else axis for index, axis in enumerate(axes))
    return tuple(with_sign(axis, rank, sign) for axis in axes)


_OVER: Mapping[str, tuple[Any, ...]] = {"rank": (2, 3, 4, 1), "sizes": PALETTES, "sign": (*SIGNS, "mixed")}


def reduction(op: OpDef) -> Space:
    """Return the space of a reduction over a single axis, several, all."""

    def build(levels: Levels) -> OpCase | None:
        rank, kind = levels["rank"], levels["axes"]
        if kind == "none":
            return case(op.name, levels["sizes"][:rank], axis=None, keepdims=levels["keepdims"])
        axes = axes_of(kind, rank)
        axis_attr = None if axes is None else _signed(axes, rank, levels["sign"])
        return (
            None
            if axis_attr is None
            else case(op.name, levels["sizes"][:rank], axis=axis_attr, keepdims=levels["keepdims"])
        )

    return Space({**_OVER, "axes": (*_SETS, "none"), "keepdims": (False, True)}, build)


def norm_over_axes(op: OpDef) -> Space:
    """Return the space of a norm with parameters of the same sizes as the axes."""

    def build(levels: Levels) -> OpCase | None:
        rank = levels["rank"]
        shape, axes = levels["sizes"][:rank], axes_of(levels["axes"], rank)
        axes_attr = None if axes is None else _signed(axes, rank, levels["sign"])
        if axes is None or axes_attr is None:
            return None
        parameters = [tuple(shape[axis] for axis in axes)] * (len(op.operands) - 1)
        return case(op.name, shape, *parameters, axes=axes_attr, epsilon=levels["epsilon"])

    return Space({**_OVER, "rank": (3, 4, 2, 1), "axes": _SETS, **schema_levels(op)}, build)


def batch_norm(op: OpDef) -> Space:
    """Return the space of batch norm, with channels on any axis."""
    return _per_channel(op, 4)


def bias_add(op: OpDef) -> Space:
    """Return the space of ``nn.bias_add``, with the bias along any axis."""
    return _per_channel(op, 1)


def _per_channel(op: OpDef, num_parameters: int) -> Space:
    def build(levels: Levels) -> OpCase | None:
        found = _along(levels)
        if found is None:
            return None
        shape, axis, axis_attr = found
        return case(op.name, shape, *[(shape[axis],)] * num_parameters, axis=axis_attr, **_rest(levels))

    return Space({**_AXIS, "rank": (2, 4, 3, 1), **schema_levels(op, "axis")}, build)


_IMAGES = ((2, 4, 3, 5, 2), (1, 16, 9, 1, 3), (3, 6, 1, 17, 2))


def channel_norm(op: OpDef) -> Space:
    """Return the space of instance norm, over any number of spatial axes."""

    def build(levels: Levels) -> OpCase:
        shape = levels["sizes"][: levels["rank"]]
        return case(op.name, shape, (shape[1],), (shape[1],), epsilon=levels["epsilon"])

    return Space({"rank": (4, 3, 5, 2), "sizes": _IMAGES, **schema_levels(op)}, build)


def group_norm(op: OpDef) -> Space:
    """Return the space of group norm: one group, two, a group for each channel."""

    def build(levels: Levels) -> OpCase:
        shape = levels["sizes"][: levels["rank"]]
        groups = shape[1] if levels["groups"] == "channels" else levels["groups"]
        return case(op.name, shape, (shape[1],), (shape[1],), groups=groups, epsilon=levels["epsilon"])

    factors = {"rank": (4, 3, 5, 2), "sizes": _IMAGES, "groups": (2, 1, "channels"), **schema_levels(op, "groups")}
    return Space(factors, build)


def lrn(op: OpDef) -> Space:
    """Return the space of local response normalisation: windows odd, even, and wider than the channels."""

    def build(levels: Levels) -> OpCase:
        shape = levels["sizes"][: levels["rank"]]
        return case(op.name, shape, **_rest(levels))

    axis = {"axis": (1, -1, 0, 2)}
    factors = {
        "rank": (4, 3, 5),
        "sizes": _IMAGES,
        "size": (3, 2, 1, 5, 9),
        **axis,
        **schema_levels(op, "size", "axis"),
    }
    return Space(factors, build)
