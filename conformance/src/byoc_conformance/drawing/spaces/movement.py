"""Spaces of ops rearranging elements: views, slices, pads, parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from byoc_core.ir import OpDef
from byoc_core.ops.cases import OpCase, case

from byoc_conformance.drawing.pairwise import Levels
from byoc_conformance.drawing.spaces.space import PALETTES, SIGNS, Space, axis_of, schema_levels, with_sign

__all__ = [
    "blocks",
    "broadcast_to",
    "concat",
    "expand_dims",
    "pad",
    "permute_dims",
    "reshape",
    "roll",
    "split",
    "squeeze",
    "stack",
    "strided_slice",
    "tile",
    "trilu",
]

_POSITIONS = ("last", "first", "middle")


def reshape(op: OpDef) -> Space:
    """Return the space of ``reshape``: axes joined, split, added, removed; with and without ``-1``."""

    def build(levels: Levels) -> OpCase | None:
        shape: tuple[int, ...] = levels["sizes"][: levels["rank"]]
        targets: dict[str, Callable[[], tuple[int, ...]]] = {
            "flat": lambda: (_product(shape),),
            "first two joined": lambda: (_product(shape[:2]), *shape[2:]),
            "last two joined": lambda: (*shape[:-2], _product(shape[-2:])),
            "axis added": lambda: (shape[0], 1, *shape[1:]),
            "reversed": lambda: shape[::-1],
            "same": lambda: shape,
        }
        target = targets[levels["target"]]()
        if levels["unknown"] == "none":
            return case(op.name, shape, shape=target)
        unknown_axis = {"first": 0, "last": len(target) - 1}[levels["unknown"]]
        return case(op.name, shape, shape=(*target[:unknown_axis], -1, *target[unknown_axis + 1 :]))

    targets = ("flat", "first two joined", "last two joined", "axis added", "reversed", "same")
    unknown = ("none", "first", "last")
    return Space({"rank": (3, 2, 4, 1), "sizes": PALETTES, "target": targets, "unknown": unknown}, build)


def _product(sizes: tuple[int, ...]) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result


def squeeze(op: OpDef) -> Space:
    """Return the space of ``squeeze``: all axes of size 1 by number, only the last of them, and no axes given."""

    def build(levels: Levels) -> OpCase | None:
        shape, ones = levels["shape"]
        if levels["axes"] == "none":
            return case(op.name, shape)
        removed = ones if levels["axes"] == "all" else ones[-1:]
        return case(op.name, shape, axis=tuple(with_sign(axis, len(shape), levels["sign"]) for axis in removed))

    shapes = (((2, 1, 3), (1,)), ((1, 5, 1), (0, 2)), ((2, 4, 1, 1), (2, 3)), ((1, 1), (0, 1)), ((1, 17), (0,)))
    return Space({"shape": shapes, "axes": ("all", "last", "none"), "sign": SIGNS}, build)


def expand_dims(op: OpDef) -> Space:
    """Return the space of ``expand_dims``; axes refer to the result."""

    def build(levels: Levels) -> OpCase | None:
        shape = levels["sizes"][: levels["rank"]]
        rank = len(shape) + (2 if levels["position"] == "ends" else 1)
        axes = (0, rank - 1) if levels["position"] == "ends" else (axis_of(levels["position"], rank),)
        if axes[0] is None:
            return None
        return case(op.name, shape, axis=tuple(with_sign(axis or 0, rank, levels["sign"]) for axis in axes))

    return Space({"rank": (2, 1, 3, 0), "sizes": PALETTES, "position": (*_POSITIONS, "ends"), "sign": SIGNS}, build)


def permute_dims(op: OpDef) -> Space:
    """Return the space of ``permute_dims``: axes swapped, moved to an end, reversed or unchanged, or no axes given."""

    def build(levels: Levels) -> OpCase | None:
        rank = levels["rank"]
        axes = list(range(rank))
        order = {
            "last two": [*axes[:-2], *axes[:-3:-1]],
            "to the front": [*axes[-1:], *axes[:-1]],
            "to the back": [*axes[1:], *axes[:1]],
            "first two": [*axes[1::-1], *axes[2:]],
            "reversed": axes[::-1],
            "same": axes,
        }
        shape = levels["sizes"][:rank]
        if levels["order"] == "none":
            return case(op.name, shape)
        return case(op.name, shape, axes=tuple(with_sign(a, rank, levels["sign"]) for a in order[levels["order"]]))

    orders = ("last two", "to the front", "to the back", "first two", "reversed", "same", "none")
    return Space({"rank": (3, 4, 2), "sizes": PALETTES, "order": orders, "sign": SIGNS}, build)


def broadcast_to(op: OpDef) -> Space:
    """Return the space of ``broadcast_to``: the first, a middle and the last axis, and new axes."""
    shapes = (
        *(((3,), (2, 3)), ((2, 1, 3), (2, 5, 3)), ((1, 4), (3, 4)), ((5, 1), (5, 17)), ((), (2, 3))),
        *(((1, 1), (4, 33)), ((2, 1, 1), (7, 2, 3, 1)), ((2, 3), (2, 3))),
    )
    return Space({"shapes": shapes}, lambda levels: case(op.name, levels["shapes"][0], shape=levels["shapes"][1]))


def _along(levels: Levels, rank: int) -> tuple[int, int] | None:
    """Return an axis, counted from the front and as an attribute."""
    axis = axis_of(levels["position"], rank)
    return None if axis is None else (axis, with_sign(axis, rank, levels["sign"]))


def concat(op: OpDef) -> Space:
    """Return the space of ``concat``: one part to four, of different sizes."""

    def build(levels: Levels) -> OpCase | None:
        shape = levels["sizes"][: levels["rank"]]
        found = _along(levels, len(shape))
        if found is None:
            return None
        axis, axis_attr = found
        parts = [(*shape[:axis], size, *shape[axis + 1 :]) for size in (shape[axis], 4, 1, 9)]
        return case(op.name, *parts[: levels["parts"]], axis=axis_attr)

    return Space(
        {"rank": (2, 3, 4, 1), "position": _POSITIONS, "sign": SIGNS, "parts": (2, 3, 4, 1), "sizes": PALETTES}, build
    )


def split(op: OpDef) -> Space:
    """Return the space of ``split``: equal parts, different parts, one part."""

    def build(levels: Levels) -> OpCase | None:
        shape = levels["sizes"][: levels["rank"]]
        found = _along(levels, len(shape))
        if found is None:
            return None
        axis, axis_attr = found
        shape = (*shape[:axis], sum(levels["sections"]), *shape[axis + 1 :])
        return case(op.name, shape, sections=levels["sections"], axis=axis_attr)

    sections = ((2, 4), (3, 3, 3), (1, 8, 2), (17, 1), (5,))
    return Space(
        {"rank": (2, 3, 4, 1), "position": _POSITIONS, "sign": SIGNS, "sections": sections, "sizes": PALETTES}, build
    )


_BOUNDS = ("outer", "inside", "negative", "below", "beyond")


def strided_slice(op: OpDef) -> Space:
    """Return the space of ``strided_slice``: steps of both signs, bounds inside, outside and counted from the end."""

    def build(levels: Levels) -> OpCase | None:
        shape = levels["shape"]
        rank = len(shape)
        axes = {"last": (rank - 1,), "first": (0,), "two": (rank - 1, 0)}[levels["axes"]]
        if len(set(axes)) < len(axes):
            return None
        step = levels["step"]
        starts, ends = [], []
        for size in (shape[axis] for axis in axes):
            first, last = (0, size) if step > 0 else (size - 1, -size - 1)
            inside = (1, size - 1) if step > 0 else (size - 2, 1)
            negative = (-size + 1, -1) if step > 0 else (-2, -size + 1)
            bounds = [(first, last), inside, negative, (-size - 3, -size - 3), (size + 3, size + 3)]
            starts.append(dict(zip(_BOUNDS, bounds, strict=True))[levels["begin"]][0])
            ends.append(dict(zip(_BOUNDS, bounds, strict=True))[levels["end"]][1])
        axes_attr = tuple(with_sign(axis, rank, levels["sign"]) for axis in axes)
        steps = (step,) * len(axes)
        return case(
            op.name, shape, axes=axes_attr, begin=tuple(starts), end=tuple(ends), strides=steps, mode=levels["mode"]
        )

    factors = {
        "shape": ((4, 6), (9,), (5, 3, 8), (2, 17), (3, 4, 5, 6)),
        "axes": ("last", "first", "two"),
        "sign": SIGNS,
        "step": (1, 2, -1, -2, 3),
        "begin": _BOUNDS,
        "end": _BOUNDS,
        **schema_levels(op),
    }
    return Space(factors, build)


def pad(op: OpDef) -> Space:
    """Return the space of a pad: at one end, at both, along one axis and several, wider than the axis."""

    def build(levels: Levels) -> OpCase:
        shape = levels["sizes"][: levels["rank"]]
        around = {"behind": (0, 1), "before": (2, 0), "both": (1, 1), "uneven": (3, 1), "wide": (5, 9)}[levels["width"]]
        axes = {"last": (len(shape) - 1,), "first": (0,), "all": tuple(range(len(shape)))}[levels["axes"]]
        widths = [around if axis in axes else (0, 0) for axis in range(len(shape))]
        rest = {name: level for name, level in levels.items() if name not in {"sizes", "rank", "width", "axes"}}
        return case(op.name, shape, pad_width=tuple(width for pair in widths for width in pair), **rest)

    factors = {
        "rank": (2, 3, 4, 1),
        "sizes": PALETTES,
        "width": ("both", "behind", "before", "uneven", "wide"),
        "axes": ("last", "first", "all"),
        **schema_levels(op),
    }
    return Space(factors, build)


def tile(op: OpDef) -> Space:
    """Return the space of ``tile``: repeats along the first axis, the last, all, none."""

    def build(levels: Levels) -> OpCase:
        shape = levels["sizes"][: levels["rank"]]
        repeats = {"first": (2, 1, 1, 1), "last": (1,) * (len(shape) - 1) + (3,), "all": (2, 3, 2, 1), "none": (1,) * 4}
        return case(op.name, shape, repeats=repeats[levels["repeats"]][: len(shape)])

    factors = {"rank": (2, 3, 4, 1), "sizes": PALETTES, "repeats": ("first", "last", "all", "none")}
    return Space(factors, build)


def roll(op: OpDef) -> Space:
    """Return the space of ``roll``: both directions, more than once around, several axes."""

    def build(levels: Levels) -> OpCase | None:
        shape = levels["sizes"][: levels["rank"]]
        rank = len(shape)
        axes = (rank - 1, 0) if levels["position"] == "ends" else (axis_of(levels["position"], rank),)
        if None in axes or len(set(axes)) < len(axes):
            return None
        axes_attr = tuple(with_sign(axis or 0, rank, levels["sign"]) for axis in axes)
        shifts = (levels["shift"], -1)[: len(axes)]
        return case(op.name, shape, shift=shifts, axis=axes_attr)

    factors = {
        "rank": (2, 3, 4, 1),
        "sizes": PALETTES,
        "position": (*_POSITIONS, "ends"),
        "sign": SIGNS,
        "shift": (1, -2, 0, 40),
    }
    return Space(factors, build)


def stack(op: OpDef) -> Space:
    """Return the space of ``stack``; the axis refers to the result."""

    def build(levels: Levels) -> OpCase | None:
        shape = levels["sizes"][: levels["rank"]]
        found = _along(levels, len(shape) + 1)
        return None if found is None else case(op.name, *[shape] * levels["parts"], axis=found[1])

    factors = {"rank": (2, 1, 3, 0), "sizes": PALETTES, "position": _POSITIONS, "sign": SIGNS, "parts": (2, 3, 1)}
    return Space(factors, build)


def trilu(op: OpDef) -> Space:
    """Return the space of ``trilu``: diagonals within and beyond the matrix."""
    shapes = ((4, 5), (2, 5, 4), (3, 3), (2, 3, 1, 17))
    factors: dict[str, tuple[Any, ...]] = {"shape": shapes, "k": (0, 1, -1, 3, -7), "upper": (True, False)}
    return Space(factors, lambda levels: case(op.name, levels["shape"], k=levels["k"], upper=levels["upper"]))


def blocks(op: OpDef) -> Space:
    """Return the space of ``depth_to_space`` and its inverse."""

    def build(levels: Levels) -> OpCase:
        (batch, depth, height, width), size = levels["image"], levels["block_size"]
        if op.name == "depth_to_space":
            shape = (batch, depth * size * size, height, width)
        else:
            shape = (batch, depth, height * size, width * size)
        return case(op.name, shape, block_size=size, mode=levels["mode"])

    images = ((2, 2, 3, 5), (1, 3, 1, 4), (2, 1, 2, 2))
    return Space({"image": images, "block_size": (2, 3, 1), **schema_levels(op)}, build)
