"""Softmax whose steps are each rounded to the dtype: a line at a time, by a function of the core's header."""

from __future__ import annotations

from typing import Any

from byoc_core.authoring import c
from byoc_core.authoring.csource import c_suffix
from byoc_core.dtypes import to_numpy
from byoc_core.opset import KERNELS

from byoc_ccompiler.attributes import axis_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.axis_view import line_loop, view_along
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.steps import dtype_of, shape_of

__all__ = ["FAMILY"]

_ELEMENT_PS = 1_500
"""Estimated picoseconds of one element."""

_WIDE = {"bfloat16": "float32", "float16": "float32"}


def _write(kernel: Kernel) -> None:
    """Write the kernel: a line is widened to scratch memory, and its softmax made beside it."""
    (step,) = kernel.group.steps
    (x,) = step.operands
    view = view_along(shape_of(x), axis_of(step.binding, len(shape_of(x))))
    source, target, wide = kernel.source(x), kernel.target(step.result), _WIDE.get(dtype_of(x), dtype_of(x))
    softmax = _softmax_function(source.dtype)
    zero_unseen = c.Literal(int(bool(step.binding.attrs["zero_unseen"])), c.CType("int32"))
    given, made = c.Buffer("from", source.dtype), c.Buffer("to", target.dtype, c.MemoryAccess.WRITE)
    k, size = c.Variable("k"), c.Size(view.size)

    def converted(to: c.Buffer, at: c.Expression, element: c.Load) -> c.For:
        """Return the loop over ``k`` that copies elements, each in the dtype of its new place."""
        read, type_ = c.Variable("element", element.type), c.CType(to.dtype)
        cast = c.Element("cast", (read,), type_, {"dtype": to.dtype})
        return c.For(k, c.Size(0), size, (c.Let(read, element), c.Store(to, at, cast)))

    def line(number: c.Expression, mine: c.Buffer) -> c.Block:
        start = number // view.inner * (view.size * view.inner) + number % view.inner
        return (
            c.Alias(given, source, start),
            c.Alias(made, target, start),
            converted(mine, k, given[k * view.inner]),
            c.Evaluate(c.Call(softmax, (c.Address(mine, c.Size(0)), c.Address(mine, size), size, zero_unseen))),
            converted(made, k * view.inner, mine[size + k]),
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


FAMILY = KernelFamily(frozenset({"nn.stepwise_softmax"}), reject_nothing, _write, takes_halves=True)
"""Softmax by steps."""
