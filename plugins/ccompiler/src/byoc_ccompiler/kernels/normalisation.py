"""Local response normalisation across channels, and softmax whose steps are each rounded to the dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import c_suffix
from byoc_core.dims import product
from byoc_core.dtypes import to_numpy
from byoc_core.opset import KERNELS

from byoc_ccompiler.attributes import axis_of, float_of, int_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.axis_view import line_loop, view_along
from byoc_ccompiler.rejections import reject_non_floats, reject_nothing
from byoc_ccompiler.steps import dtype_of, shape_of

__all__ = ["FAMILIES"]

_POWER_PS, _ELEMENT_PS = 10_000, 1_500
"""Estimated picoseconds of one power, and of one element's softmax."""

_WIDE = {"bfloat16": "float32", "float16": "float32"}


def _write_lrn(kernel: Kernel) -> None:
    """Write the kernel: channel by channel, the squares of its neighbours added up in the result itself."""
    (step,) = kernel.group.steps
    (x,) = step.operands
    shape, source, out = shape_of(x), kernel.source(x), kernel.target(step.result)
    channels, inner, type_ = shape[1], product(shape[2:]), c.CType(source.dtype)
    size = int_of(step.binding, "size")
    beta, bias = (c.Literal(float_of(step.binding, name), type_) for name in ("beta", "bias"))
    alpha = c.Literal(float_of(step.binding, "alpha") / size, type_)
    power = c.Callee("powf" if type_.dtype == "float32" else "pow", np.power, flops=1)
    row, first, end, near, k = map(c.Variable, ("row", "first", "end", "near", "k"))
    base, number, at = c.Variable("base", type_), row % channels, row * inner + k
    neighbour = source[(row + near) * inner + k]

    def every(*body: c.Statement) -> c.For:
        return c.For(k, c.Size(0), c.Size(inner), body)

    rows: c.Block = (
        c.Let(first, c.index_max(c.Size(-((size - 1) // 2)), c.Size(0) - number)),
        c.Let(end, c.index_min(c.Size(size // 2), channels - 1 - number) + 1),
        every(c.Store(out, at, c.Literal(0, type_))),
        c.For(near, first, end, (every(c.Store(out, at, out[at] + neighbour * neighbour)),)),
        every(c.Let(base, bias + alpha * out[at]), c.Store(out, at, source[at] / c.Call(power, (base, beta), type_))),
    )
    count, round_ps = c.Size(product(shape[:2])), inner * _POWER_PS
    kernel.finish_block((c.For(row, c.Size(0), count, rows, kind=c.LoopKind.PARALLEL, round_ps=round_ps),))


def _write_softmax(kernel: Kernel) -> None:
    """Write the kernel: a line is widened to scratch memory, and its softmax made beside it."""
    (step,) = kernel.group.steps
    (x,) = step.operands
    view = view_along(shape_of(x), axis_of(step.binding, len(shape_of(x))))
    source, target, wide = kernel.source(x), kernel.target(step.result), _WIDE.get(dtype_of(x), dtype_of(x))
    softmax = _softmax_function(source.dtype)
    zero_unseen = c.Literal(int(bool(step.binding.attrs["zero_unseen"])), c.CType("int32"))
    k, size = c.Variable("k"), c.Size(view.size)

    def converted(to: c.Buffer, at: c.Expression, element: c.Load) -> c.For:
        """Return the loop over ``k`` that copies elements, each in the dtype of its new place."""
        read, type_ = c.Variable("element", element.type), c.CType(to.dtype)
        cast = c.Element("cast", (read,), type_, {"dtype": to.dtype})
        return c.For(k, c.Size(0), size, (c.Let(read, element), c.Store(to, at, cast)))

    def line(number: c.Expression, mine: c.Buffer) -> c.Block:
        start = number // view.inner * (view.size * view.inner) + number % view.inner
        at = start + k * view.inner
        return (
            converted(mine, k, source[at]),
            c.Evaluate(c.Call(softmax, (c.Address(mine, c.Size(0)), c.Address(mine, size), size, zero_unseen))),
            converted(target, at, mine[size + k]),
        )

    count = 0 if view.size == 0 else view.outer * view.inner
    kernel.finish_block((line_loop(kernel, line, count, view.size * _ELEMENT_PS, scratch=2 * view.size, dtype=wide),))


def _softmax_function(dtype: str) -> c.Callee:
    """Return the C function ``(const T *x, T *y, int64_t count, int zero_unseen)``, where T is wide enough."""

    def evaluate(x: Any, y: Any, count: int, zero_unseen: int) -> None:
        row = x[:count].astype(to_numpy(dtype))
        y[:count] = KERNELS["nn.stepwise_softmax"](row, axis=0, zero_unseen=bool(zero_unseen))

    name = f"byoc_stepwise_softmax_{c_suffix(dtype)}"
    return c.Callee(name, evaluate, writes=(1,), header="byoc_stepwise_softmax.h")


FAMILIES = (
    KernelFamily(frozenset({"nn.lrn"}), reject_non_floats, _write_lrn),
    KernelFamily(frozenset({"nn.stepwise_softmax"}), reject_nothing, _write_softmax, takes_halves=True),
)
"""Local response normalisation, and softmax by steps."""
