"""C functions that transform one tile of Winograd's minimal filtering: its pixels, and its products back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from byoc_core.authoring import c

from byoc_ccompiler.kernels.winograd_plan import WinogradPlan
from byoc_ccompiler.kernels.winograd_transforms import map_inputs, map_products

__all__ = ["input_function", "output_function"]

_Map = Callable[[Sequence[c.Expression], Callable[[int, c.Expression], c.Statement]], c.Block]


def input_function(plan: WinogradPlan) -> c.Function:
    """Return a function that transforms one tile: ``(at, to)``, addresses of its pixels and of the first point."""
    dtype, channels, num = plan.geometry.dtype, plan.geometry.channels, plan.algorithm.num_inputs
    at, to = c.PointerArray("at", dtype), c.Buffer("to", dtype, c.MemoryAccess.WRITE)
    c0, channel = c.Variable("c0"), c.Variable("c")

    def pixels(j: c.Expression) -> tuple[c.Block, list[c.Load]]:
        buffers = [c.Buffer("pixel", dtype) for _ in range(num)]
        pointed = tuple(c.Alias(buffer, at, j + i * num) for i, buffer in enumerate(buffers))
        return pointed, [c.Load(buffer, channel, plan.lanes) for buffer in buffers]

    points = _mapped(
        plan,
        partial(map_inputs, plan.algorithm.inputs),
        num,
        pixels,
        (to, lambda point: point * plan.point_step + channel),
    )
    # The last vector of channels may begin inside the one before.
    body = (c.Let(channel, c.index_min(c0, channels - plan.lanes)), *points)
    loop = c.For(c0, c.Size(0), c.Size(channels), body, step=plan.lanes)
    name, comment = f"winograd_input_{plan.algorithm.num_outputs}", "// Transforms the pixels of one tile."
    return c.Function(name, (at, to), (loop,), None, (comment,), is_contracted=True)


def output_function(plan: WinogradPlan, point_step: int) -> c.Function:
    """Return a function that transforms the products of one tile back: ``(products, pixels)``.

    The products of one point lie ``point_step`` elements behind those of the point before.
    """
    dtype, num, size, v = plan.geometry.dtype, plan.algorithm.num_inputs, plan.algorithm.num_outputs, c.Variable("v")
    products, pixels = c.Buffer("products", dtype), c.Buffer("pixels", dtype, c.MemoryAccess.WRITE)
    body = _mapped(
        plan,
        partial(map_products, plan.algorithm.outputs),
        size,
        lambda j: ((), [c.Load(products, (j + i * num) * point_step + v, plan.lanes) for i in range(num)]),
        (pixels, lambda pixel: pixel * plan.width + v),
    )
    loop = c.For(v, c.Size(0), c.Size(plan.width), body, step=plan.lanes)
    name, comment = f"winograd_output_{size}", "// Transforms the products of one tile back."
    return c.Function(name, (products, pixels), (loop,), None, (comment,), is_contracted=True)


def _mapped(
    plan: WinogradPlan,
    apply: _Map,
    num_results: int,
    column: Callable[[c.Expression], tuple[c.Block, list[c.Load]]],
    place: tuple[c.Buffer, Callable[[c.Expression], c.Expression]],
) -> c.Block:
    """Return statements that apply a map along both axes of a square of vectors.

    Args:
        plan: says how many vectors there are, and of how many lanes.
        apply: returns the statements that map a line of vectors and store the results.
        num_results: how many results a line has.
        column: returns statements that stand before the loads of a column, and these, from its number.
        place: the buffer of the results, and the offset of a result from its number, row by row.
    """
    dtype, lanes, num = plan.geometry.dtype, plan.lanes, plan.algorithm.num_inputs
    part = c.Buffer("part", dtype, c.MemoryAccess.WRITE, num_results * num * lanes)
    i, j = c.Variable("i"), c.Variable("j")
    before, loads = column(j)
    values = [c.Variable("d", load.type) for load in loads]
    down = apply(values, lambda row, value: c.Store(part, (j + row * num) * lanes, value))
    parts = [c.Load(part, (i * num + column) * lanes, lanes) for column in range(num)]
    buffer, offset = place
    right = apply(parts, lambda column, value: c.Store(buffer, offset(i * num_results + column), value))
    return (
        c.LocalArray(part, lanes=lanes),
        c.For(j, c.Size(0), c.Size(num), (*before, *map(c.Let, values, loads), *down), kind=c.LoopKind.UNROLLED),
        c.For(i, c.Size(0), c.Size(num_results), right, kind=c.LoopKind.UNROLLED),
    )
