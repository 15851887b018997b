"""Values of images at positions of a grid: neighbours and weights of a position are found for all channels at once."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import FunctionScope
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim, is_positive, product
from byoc_core.ir import Binding

from byoc_ccompiler.family import Access, KernelFamily, any_access
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.copies import loops_around, offset_along
from byoc_ccompiler.rejections import operand_shape, reject_non_floats
from byoc_ccompiler.size_checks import require_equal_sizes
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["FAMILY"]

_SLOPE = -0.75
"""The slope parameter of cubic interpolation, as in the reference kernel."""
_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
"""The neighbours of a position along an axis, by the method of interpolation."""
_MOST_NEIGHBOURS = 16
"""The most neighbours of a position with their offsets and weights in local variables."""

_REAL = c.CType("float64")
_RINT, _FLOOR = c.Callee("rint", np.rint, flops=1), c.Callee("floor", np.floor, flops=1)
_MOD = c.Callee("byoc_mod_f64", np.mod, flops=4)


def _real(value: float) -> c.Expression:
    return c.Literal(value, _REAL)


def _least(left: c.Expression, right: c.Expression) -> c.Expression:
    return c.Select(left.compare("<", right), left, right)


@dataclass(frozen=True)
class _Neighbour:
    """A neighbour of a position along an axis.

    Attributes:
        index: the element.
        weight: the weight in float64; ``None``: 1.
        is_inside: whether the element is in the image; ``None``: always.
    """

    index: c.Variable
    weight: c.Variable | None
    is_inside: c.Variable | None


@dataclass(frozen=True)
class _Axis:
    """An axis of the image, of a length, and the attributes of the op."""

    length: Dim
    method: str
    border: str
    align_corners: bool

    @property
    def _ends(self) -> tuple[c.Expression, c.Expression]:
        """The positions of -1 and 1."""
        length = c.Cast(c.Size(self.length), _REAL)
        return (_real(0.0), length - 1.0) if self.align_corners else (_real(-0.5), length - 0.5)

    def neighbours(self, coordinate: c.Expression) -> tuple[c.Block, list[_Neighbour]]:
        """Return the statements finding the neighbours of a coordinate, and the neighbours."""
        low, high = self._ends
        position, first, share = (c.Variable(name, _REAL) for name in ("position", "first", "share"))
        number = c.Cast(coordinate, _REAL)
        nearest = c.Call(_RINT, (position,), _REAL)
        block: list[c.Statement] = [
            c.Let(position, (number + 1.0) / 2.0 * (high - low) + low),
            c.Let(first, nearest if self.method == "nearest" else c.Call(_FLOOR, (position,), _REAL)),
        ]
        weights: list[c.Expression | None] = [None]
        if self.method != "nearest":
            block.append(c.Let(share, position - first))
            weights = [1.0 - share, share] if self.method == "linear" else self._cubic(share, block)
        found: list[_Neighbour] = []
        for tap, weight in enumerate(weights, -1 if self.method == "cubic" else 0):
            at = c.Variable("at", _REAL)
            block.append(c.Let(at, first + float(tap)))
            found.append(self._neighbour(at, weight, block))
        return tuple(block), found

    @staticmethod
    def _cubic(share: c.Variable, block: list[c.Statement]) -> list[c.Expression | None]:
        """Return the weights of the four neighbours: near ones at distances up to 1, and far ones."""
        weights: list[c.Expression | None] = []
        for distance, is_near in ((share + 1.0, False), (share, True), (1.0 - share, True), (2.0 - share, False)):
            d = c.Variable("distance", _REAL)
            block.append(c.Let(d, distance))
            near = ((_SLOPE + 2) * d - (_SLOPE + 3)) * (d * d) + 1.0
            far = ((d - 5.0) * d + 8.0) * d * _SLOPE - 4 * _SLOPE
            weights.append(near if is_near else far)
        return weights

    def _neighbour(self, at: c.Variable, weight: c.Expression | None, block: list[c.Statement]) -> _Neighbour:
        """Return a neighbour beyond or inside the image, after adding its statements to a block."""
        index, length = c.Variable("index", c.INDEX), c.Cast(c.Size(self.length), _REAL)
        is_inside, share = c.Variable("is_inside", c.BOOL), c.Variable("weight", _REAL)
        if self.border == "zeros":
            block.append(c.Let(is_inside, c.Binary("&&", at.compare(">=", 0.0), at.compare("<", length))))
        element = c.Variable("element", _REAL)
        limited = _least(c.Select(element.compare(">", 0.0), element, _real(0.0)), length - 1.0)  # NaN becomes 0
        block += (c.Let(element, self._reflected(at, block)), c.Let(index, c.Cast(limited, c.INDEX)))
        if weight is not None:
            block.append(c.Let(share, weight))
        return _Neighbour(index, None if weight is None else share, is_inside if self.border == "zeros" else None)

    def _reflected(self, at: c.Variable, block: list[c.Statement]) -> c.Expression:
        """Return an element reflected at the ends, if the border is a reflection."""
        if self.border != "reflection":
            return at
        low, high = self._ends
        span, offset = c.Variable("span", _REAL), c.Variable("offset", _REAL)
        block += (c.Let(span, high - low), c.Let(offset, c.Call(_MOD, (at - low, span * 2.0), _REAL)))
        within = _least(offset, span * 2.0 - offset) + low
        return c.Call(_RINT, (c.Select(span.compare(">", 0.0), within, low),), _REAL)


def _write(kernel: Kernel) -> None:
    """Write the kernel: positions shared by threads; the channels of a position share its neighbours."""
    (step,) = kernel.group.steps
    (x, grid), attrs = step.operands, step.binding.attrs
    (batch, channels, *lengths), (_, _, *sizes) = shape_of(x), shape_of(step.result)
    image, positions, out = kernel.source(x), kernel.source(grid, "grid"), kernel.target(step.result)
    (image_step, channel_step, *steps), (out_image, out_channel, *out_steps) = map(kernel.strides, (x, step.result))
    item, channel, n = c.variables("item channel n")
    at = c.unravelled(item, (batch, *sizes))
    type_, total = c.CType(image.dtype), c.Variable("total", c.CType(image.dtype))
    pixels, to = c.Buffer("from", image.dtype), c.Buffer("to", out.dtype, c.MemoryAccess.WRITE)
    block: list[c.Statement] = [
        c.Let(n, at[0]),
        c.Alias(pixels, image, n * image_step),
        c.Alias(to, out, offset_along([n, *at[1:]], (out_image, *out_steps))),
    ]
    axes: list[list[_Neighbour]] = []
    for axis, length in enumerate(lengths):
        form = _Axis(length, str(attrs["method"]), str(attrs["border"]), bool(attrs["align_corners"]))
        coordinate = positions[item * len(lengths) + (len(lengths) - 1 - axis)]
        statements, neighbours = form.neighbours(coordinate)
        block += statements
        axes.append(neighbours)
    adds: list[c.Statement] = [c.Declare(total, c.Literal(0, type_))]
    for combined in itertools.product(*axes):
        offset, weight = c.Variable("offset", c.INDEX), c.Variable("factor", type_)
        block.append(c.Let(offset, offset_along([neighbour.index for neighbour in combined], steps)))
        value: c.Expression = pixels[channel * channel_step + offset]
        insides = [neighbour.is_inside for neighbour in combined if neighbour.is_inside is not None]
        if insides:
            is_inside = c.Variable("is_inside", c.BOOL)
            block.append(c.Let(is_inside, _all(insides)))
            value = c.Select(is_inside, value, c.Literal(0, type_))
        weights = [neighbour.weight for neighbour in combined if neighbour.weight is not None]
        if weights:
            block.append(c.Let(weight, c.Cast(_product(weights), type_)))
            value = value * weight
        adds.append(c.Assign(total, total + value))
    adds.append(c.Store(to, channel * out_channel, total))
    block += loops_around(tuple(adds), [channel], [channels])
    count = batch * product(sizes)
    kernel.finish_block((*_checks(kernel, step, count), *loops_around(tuple(block), [item], [count], part=0)))


def _checks(kernel: Kernel, step: Step, count: Dim) -> c.Block:
    """Return the statements failing on positions in an image without elements, if this is possible."""
    num_elements = product(shape_of(step.operands[0])[2:])
    if is_positive(num_elements):
        return ()
    where = f"function `{kernel.scope.symbol}`, op `{step.op}`"
    fail = c.Fail("ExecutionError", f"{where}: {{}} positions in an image without elements", (c.Size(count),))
    is_wrong = c.Binary("&&", c.Size(count).compare(">", 0), c.Size(num_elements).compare("==", 0))
    return (c.If(is_wrong, (fail,)),)


def _all(conditions: list[c.Variable]) -> c.Expression:
    result: c.Expression = conditions[0]
    for condition in conditions[1:]:
        result = c.Binary("&&", result, condition)
    return result


def _product(factors: list[c.Variable]) -> c.Expression:
    result: c.Expression = factors[0]
    for factor in factors[1:]:
        result = result * factor
    return result


def _reject(binding: Binding) -> Rejection | None:
    rank, method = len(operand_shape(binding, 0)) - 2, str(binding.attrs["method"])
    if _TAPS[method] ** rank > _MOST_NEIGHBOURS:
        return Rejection("attribute", f"nn.grid_sample is compiled for at most {_MOST_NEIGHBOURS} neighbours")
    return reject_non_floats(binding)


def _require(scope: FunctionScope, step: Step) -> None:
    """Require the sizes hidden from the type rules by symbols."""
    x, grid = map(shape_of, step.operands)
    require_equal_sizes(scope, step, 1, grid, (x[0], *grid[1:-1], len(x) - 2))


def _reads(step: Step, index: int) -> Access:
    return Access.ANY if index == 0 else Access.COMPACT


FAMILY = KernelFamily(frozenset({"nn.grid_sample"}), _reject, _write, require=_require, reads=_reads, writes=any_access)
"""Sampling by a grid."""
