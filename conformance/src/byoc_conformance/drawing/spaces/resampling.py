"""Spaces of ops for resampling, quantisation or counting."""

from __future__ import annotations

from byoc_core.ir import OpDef
from byoc_core.ops.cases import OpCase, OperandCase, case

from byoc_conformance.drawing.pairwise import Levels
from byoc_conformance.drawing.spaces.space import SIGNS, Space, axis_of, schema_levels, with_sign

__all__ = ["arange", "quantise", "resize"]


def resize(op: OpDef) -> Space:
    """Return the space of ``nn.resize``: larger, smaller, to one, along one axis and two."""

    def build(levels: Levels) -> OpCase:
        shape, axes = levels["image"]
        sizes = tuple(levels["sizes"][index] for index in range(len(axes)))
        rest = {name: level for name, level in levels.items() if name not in {"image", "sizes"}}
        return case(op.name, shape, axes=axes, sizes=sizes, **rest)

    images = (((2, 3, 9, 8), (2, 3)), ((1, 2, 5, 4), (2, 3)), ((2, 9, 8, 3), (1, 2)), ((2, 3, 7), (2,)))
    # If a result is little larger than the image, the kinds of coordinates are hardest to tell apart.
    sizes = ((11, 10), (18, 16), (4, 5), (1, 1), (11, 3))
    methods = {"method": ("linear", *(method for method in schema_levels(op)["method"] if method != "linear"))}
    return Space({"image": images, "sizes": sizes, **schema_levels(op), **methods}, build)


def quantise(op: OpDef) -> Space:
    """Return the space of ``quantize`` and ``dequantize``: a single scale, or a scale for each index or block."""

    def build(levels: Levels) -> OpCase | None:
        shape = levels["shape"]
        rank = len(shape)
        axis = axis_of(levels["position"], rank)
        if axis is None:
            return None
        kinds = {"one": (), "axis": (shape[axis],), "blocks": (*shape[:axis], -(-shape[axis] // 2), *shape[axis + 1 :])}
        parameters = kinds[levels["parameters"]]
        attrs = {"axis": with_sign(axis, rank, levels["sign"]), "block_size": 2 * (levels["parameters"] == "blocks")}
        if is_inverse:
            return case(op.name, shape, OperandCase(parameters, "float32"), parameters, **attrs)
        return case(op.name, shape, parameters, OperandCase(parameters, levels["numbers"]), **attrs)

    is_inverse = op.name == "dequantize"
    factors = {
        "shape": ((2, 4, 3), (4, 17), (2, 16, 3, 8), (6,)),
        **({} if is_inverse else {"numbers": ("int8", "uint8")}),
        "parameters": ("one", "axis", "blocks"),
        "position": ("first", "last", "middle"),
        "sign": SIGNS,
    }
    return Space(factors, build)


def arange(op: OpDef) -> Space:
    """Return the space of ``arange``: both directions, steps with a remainder, the dtypes for counting."""

    def build(levels: Levels) -> OpCase:
        start, stop, step = levels["numbers"]
        return case(op.name, start=start, stop=stop, step=step, dtype=levels["dtype"])

    numbers = ((0, 5, 1), (1, 8, 2), (4, -3, -2), (0, 33, 1))
    return Space({"numbers": numbers, "dtype": ("int64", "int32", "float32", "float64")}, build)
