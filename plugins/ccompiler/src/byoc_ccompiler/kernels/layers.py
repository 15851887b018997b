"""Layers with separate kernels: local response normalisation, stepwise softmax, rotary position embedding.

Stepwise softmax rounds each step to the dtype, as in models of narrow floats.
"""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any

from byoc_core.authoring import c
from byoc_core.authoring.csource import FunctionScope, c_suffix
from byoc_core.dims import Dim, product
from byoc_core.dtypes import to_numpy
from byoc_core.opset import KERNELS

from byoc_ccompiler.attributes import flag_of, float_of, int_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.axes import view_of, write_lines
from byoc_ccompiler.kernels.copies import loops_around
from byoc_ccompiler.kernels.pointwise import known_power
from byoc_ccompiler.rejections import FLOATS, reject_non_floats, reject_nothing
from byoc_ccompiler.size_checks import require_equal_sizes
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["FAMILIES"]

_MAX_UNROLLED = 32
"""Maximum channels of an unrolled window."""

_SOFTMAX_PS = 1_000
"""Picoseconds for an element of a row of stepwise softmax."""


def _write_lrn(kernel: Kernel) -> None:
    """Write the kernel: pixel by pixel if the channels are the last axis, else channel by channel."""
    (step,) = kernel.group.steps
    if view_of(step).inner == 1 and int_of(step.binding, "size") <= _MAX_UNROLLED:
        _write_lrn_of_pixels(kernel, step)
    else:
        _write_lrn_of_channels(kernel, step)


def _normalised(step: Step, x: c.Expression, squares: c.Expression) -> tuple[c.Block, c.Expression]:
    """Return a normalised element from the sum of squares of the neighbours, and the statements before."""
    type_, size = x.type, int_of(step.binding, "size")
    alpha, beta, bias = (float_of(step.binding, name) for name in ("alpha", "beta", "bias"))
    base = c.Variable("base", type_)
    before = (c.Let(base, c.Literal(bias, type_) + c.Literal(alpha / size, type_) * squares),)
    return before, x / known_power(base, beta, is_positive=min(alpha, bias) >= 0)


def _write_lrn_of_pixels(kernel: Kernel, step: Step) -> None:
    """Write the kernel for channels last: the squares of a pixel lie between zeros, and each window is unrolled."""
    (x,) = step.operands
    view, source, out = view_of(step), kernel.source(x), kernel.target(step.result)
    size, channels = int_of(step.binding, "size"), view.size
    before, type_ = (size - 1) // 2, c.CType(source.dtype)
    k, element = c.Variable("k"), c.Variable("element", type_)

    def pixel(number: c.Expression, squares: c.Buffer) -> c.Block:
        start = number * channels
        window = reduce(operator.add, (squares[k + tap] for tap in range(size)))
        statements, result = _normalised(step, source[start + k], window)
        return (
            c.Clear(squares, c.Size(0), c.Size(before)),
            c.Clear(squares, channels + c.Size(before), c.Size(size // 2)),
            *loops_around(
                (c.Let(element, source[start + k]), c.Store(squares, k + before, element * element)), [k], [channels]
            ),
            *loops_around((*statements, c.Store(out, start + k, result)), [k], [channels]),
        )

    write_lines(kernel, pixel, scratch=channels + (size - 1), dtype=source.dtype)


def _write_lrn_of_channels(kernel: Kernel, step: Step) -> None:
    """Write the kernel: the squares of the neighbours are summed in the result itself."""
    (x,) = step.operands
    view, source, out = view_of(step), kernel.source(x), kernel.target(step.result)
    type_, size = c.CType(source.dtype), int_of(step.binding, "size")
    row, first, end, near, k = c.variables("row first end near k")
    number, at = row % view.size, row * view.inner + k
    neighbour = source[(row + near) * view.inner + k]
    statements, result = _normalised(step, source[at], out[at])

    def every(*body: c.Statement) -> c.For:
        return c.For(k, c.Size(0), c.Size(view.inner), body)

    rows: c.Block = (
        c.Let(first, c.index_max(c.Size(-((size - 1) // 2)), c.Size(0) - number)),
        c.Let(end, c.index_min(c.Size(size // 2), view.size - 1 - number) + 1),
        every(c.Store(out, at, c.Literal(0, type_))),
        c.For(near, first, end, (every(c.Store(out, at, out[at] + neighbour * neighbour)),)),
        every(*statements, c.Store(out, at, result)),
    )
    kernel.finish_block(loops_around(rows, [row], [view.outer * view.size], part=0))


def _write_softmax(kernel: Kernel) -> None:
    """Write the kernel: each line is widened into scratch memory, with the softmax computed beside the line."""
    (step,) = kernel.group.steps
    (x,) = step.operands
    view, wide = view_of(step), dtype_of(x) if dtype_of(x) in FLOATS else "float32"
    source, target, softmax = kernel.source(x), kernel.target(step.result), _softmax_function(dtype_of(x))
    zero_unseen = c.Literal(int(flag_of(step.binding, "zero_unseen")), c.CType("int32"))
    k, size = c.Variable("k"), c.Size(view.size)

    def converted(to: c.Buffer, at: c.Expression, element: c.Load) -> c.For:
        """Return the loop over ``k`` copying elements, each cast to the dtype of the target."""
        read, type_ = c.Variable("element", element.type), c.CType(to.dtype)
        cast = c.Element("cast", (read,), type_, {"dtype": to.dtype})
        return c.For(k, c.Size(0), size, (c.Let(read, element), c.Store(to, at, cast)))

    def line(number: c.Expression, line_memory: c.Buffer) -> c.Block:
        at = view.start(number) + k * view.inner
        return (
            converted(line_memory, k, source[at]),
            c.Evaluate(
                c.Call(softmax, (c.Address(line_memory, c.Size(0)), c.Address(line_memory, size), size, zero_unseen))
            ),
            converted(target, at, line_memory[size + k]),
        )

    write_lines(kernel, line, scratch=2 * view.size, dtype=wide)


def _softmax_function(dtype: str) -> c.Callee:
    """Return the C function ``(const T *x, T *y, int64_t count, int zero_unseen)`` for a sufficiently wide T."""

    def evaluate(x: Any, y: Any, count: int, zero_unseen: int) -> None:
        row = x[:count].astype(to_numpy(dtype))
        y[:count] = KERNELS["nn.stepwise_softmax"](row, axis=0, zero_unseen=bool(zero_unseen))

    name = f"byoc_stepwise_softmax_{c_suffix(dtype)}"

    def time(_x: object, _y: object, count: Dim | None, _zero_unseen: object) -> Dim:
        return (count or 0) * _SOFTMAX_PS

    return c.Callee(name, evaluate, writes=(1,), header="byoc_stepwise_softmax.h", ps=time)


def _write_rotary(kernel: Kernel) -> None:
    """Write the kernel: a row for each head and step."""
    (step,) = kernel.group.steps
    x, cos, sin = step.operands
    (batch, heads, steps, size), half = shape_of(x), shape_of(cos)[2]
    source, out = kernel.source(x), kernel.target(step.result)
    across, along = kernel.source(cos, "cos_"), kernel.source(sin, "sin_")
    row, angle, k = c.variables("row angle k")
    left, right = (c.Variable(name, c.CType(source.dtype)) for name in ("left", "right"))
    near, far = (k * 2, k * 2 + 1) if flag_of(step.binding, "interleaved") else (k, k + half)
    near, far, rest = row * size + near, row * size + far, row * size + 2 * half
    turned = (
        c.Let(left, source[near]),
        c.Let(right, source[far]),
        c.Store(out, near, across[angle + k] * left - along[angle + k] * right),
        c.Store(out, far, along[angle + k] * left + across[angle + k] * right),
    )
    rows = (
        c.Let(angle, (row // (heads * steps) * steps + row % steps) * half),
        c.For(k, c.Size(0), c.Size(half), turned),
        c.Copy(out, rest, source, rest, c.Size(size - 2 * half)),
    )
    kernel.finish_block(loops_around(rows, [row], [product((batch, heads, steps))], part=0))


def _require_rotary(scope: FunctionScope, step: Step) -> None:
    """Require the sizes hidden from the type rules by symbols."""
    x, cos, sin = map(shape_of, step.operands)
    for index, angles in ((1, cos), (2, sin)):
        require_equal_sizes(scope, step, index, angles, (x[0], x[2], cos[2]))
    scope.require_at_least(step.op, "operand `x`", x, [0, 0, 0, 2 * cos[2]])


FAMILIES = (
    KernelFamily(frozenset({"nn.lrn"}), reject_non_floats, _write_lrn),
    KernelFamily(frozenset({"nn.stepwise_softmax"}), reject_nothing, _write_softmax, takes_halves=True),
    KernelFamily(frozenset({"nn.rotary_embedding"}), reject_nothing, _write_rotary, require=_require_rotary),
)
"""Local response normalisation, stepwise softmax, and rotary position embedding."""
