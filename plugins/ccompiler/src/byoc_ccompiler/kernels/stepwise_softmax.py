"""Softmax whose steps are each rounded to the dtype: a line at a time, by a function of the core's header."""

from __future__ import annotations

from typing import Any

from byoc_core.authoring.c import (
    Address,
    Alias,
    Block,
    Buffer,
    Call,
    Callee,
    CType,
    Element,
    Evaluate,
    Expression,
    For,
    Let,
    Literal,
    MemoryAccess,
    Size,
    Store,
    Variable,
)
from byoc_core.authoring.csource import c_suffix
from byoc_core.dims import Dim
from byoc_core.dtypes import to_numpy
from byoc_core.opset import KERNELS

from byoc_ccompiler.attributes import axis_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.axis_view import line_loop, view_along
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.steps import dtype_of, shape_of

__all__ = ["FAMILY"]

_HEADER = "byoc_stepwise_softmax.h"

_ELEMENT_PS = 1_500
"""Estimated picoseconds of one element."""

_WIDE = {"bfloat16": "float32", "float16": "float32"}


def _write(kernel: Kernel) -> None:
    """Writes the kernel: a line is widened to scratch memory, and its softmax made beside it."""
    (step,) = kernel.group.steps
    (x,) = step.operands
    view = view_along(shape_of(x), axis_of(step.binding, len(shape_of(x))))
    source, target, wide = kernel.source(x), kernel.target(step.result), _WIDE.get(dtype_of(x), dtype_of(x))
    softmax = _softmax_function(source.dtype)
    zero_unseen = Literal(int(bool(step.binding.attrs["zero_unseen"])), CType("int32"))

    def line(number: Expression, mine: Buffer) -> Block:
        start = number // view.inner * (view.size * view.inner) + number % view.inner
        given, made = Buffer("from", source.dtype), Buffer("to", target.dtype, MemoryAccess.WRITE)
        k, size = Variable("k"), Size(view.size)
        return (
            Alias(given, source, start),
            Alias(made, target, start),
            _converted(view.size, mine, k, given, k * view.inner, k),
            Evaluate(Call(softmax, (Address(mine, Size(0)), Address(mine, size), size, zero_unseen))),
            _converted(view.size, made, k * view.inner, mine, size + k, k),
        )

    count = 0 if view.size == 0 else view.outer * view.inner
    kernel.finish_block((line_loop(kernel, line, count, view.size * _ELEMENT_PS, scratch=2 * view.size, dtype=wide),))


def _converted(count: Dim, target: Buffer, to: Expression, source: Buffer, come: Expression, k: Variable) -> For:
    """Return the loop over ``k`` that copies elements, each in the dtype of its new place."""
    element, type_ = Variable("element", CType(source.dtype)), CType(target.dtype)
    cast = Element("cast", (element,), type_, {"dtype": target.dtype})
    return For(k, Size(0), Size(count), (Let(element, source[come]), Store(target, to, cast)))


def _softmax_function(dtype: str) -> Callee:
    """Return the C function ``(const T *x, T *y, int64_t count, int zero_unseen)``, where T is wide enough."""

    def evaluate(x: Any, y: Any, count: int, zero_unseen: int) -> None:
        row = x[:count].astype(to_numpy(dtype))
        y[:count] = KERNELS["nn.stepwise_softmax"](row, axis=0, zero_unseen=bool(zero_unseen))

    return Callee(f"byoc_stepwise_softmax_{c_suffix(dtype)}", evaluate, writes=(1,), header=_HEADER)


FAMILY = KernelFamily(frozenset({"nn.stepwise_softmax"}), reject_nothing, _write, takes_halves=True)
"""Softmax by steps."""
