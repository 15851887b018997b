"""Softmax and the norms, taken apart into elementwise ops and reductions for computation in a single row kernel.

A composite of this module is an op of several steps, not the op ``composite`` of a pattern match (taken apart by
:func:`byoc_ccompiler.steps.flatten`). The steps follow the reference kernels: the mean first, then the mean square of
the rest. A division by a row's own number becomes a product with the reciprocal, computed once in a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from byoc_core.authoring.csource import ConstantPool
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim
from byoc_core.ir import Binding, Constant, FunctionBuilder, TensorType, Value, Var

from byoc_ccompiler.attributes import axis_of, float_of, int_of, ints_of
from byoc_ccompiler.kernels.copies import expand_to_rank
from byoc_ccompiler.rejections import operand_shape, reject_non_floats, reject_sizes
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["COMPOSITES", "reject_composite", "take_apart"]


class _Composer:
    """The collector of the steps replacing a step."""

    def __init__(self, step: Step, pool: ConstantPool) -> None:
        self.step, self.operands, self.attrs = step, step.operands, step.binding.attrs
        self.pool, self.rank = pool, len(shape_of(step.operands[0]))
        self.steps: list[Step] = []
        self._builder = FunctionBuilder("composite")

    def number(self, value: float) -> Constant:
        """Return a constant of the computation dtype of the composite."""
        return self.pool.derive(np.array(value, np.dtype(dtype_of(self.operands[0]))))

    def emit(self, op: str, *operands: Value, name: str, along: Sequence[int] | None = None, **attrs: object) -> Var:
        """Add a step; ``along`` are the axes of the first operand along the axes of the second."""
        bound, axes = operands, None
        if along is not None:
            (x, parameter), rank = operands, len(shape_of(operands[0]))
            axes = (tuple(range(rank)), tuple(along))
            wide = TensorType(expand_to_rank(shape_of(parameter), along, rank, 1), dtype_of(parameter))
            bound = (x, Var("parameter", wide))
        binding = self._builder.bind(op, bound, attrs, names=(name,))
        self.steps.append(Step(binding, operands, axes, self.step.binding))
        return binding.result


def _softmax(to: _Composer) -> None:
    (x,), axis = to.operands, (axis_of(to.step.binding, to.rank),)
    top = to.emit("max", x, axis=axis, keepdims=True, name="top")
    shifted = to.emit("subtract", x, top, name="shifted")
    powers = to.emit("exp", shifted, name="power")
    to.steps[-1] = replace(to.steps[-1], is_nonpositive=True)
    total = to.emit("sum", powers, axis=axis, keepdims=True, name="total")
    if to.step.op == "nn.log_softmax":
        to.emit("subtract", shifted, to.emit("log", total, name="log_total"), name="log_share")
    else:
        to.emit("multiply", powers, to.emit("divide", to.number(1), total, name="factor"), name="share")


def _logsumexp(to: _Composer) -> None:
    (x,), axis, keepdims = to.operands, to.attrs["axis"], to.attrs["keepdims"]
    # Infinities are not shifted: their exponential is infinite or zero, not NaN.
    tops = []
    for is_kept in dict.fromkeys((True, keepdims)):
        top = to.emit("max", x, axis=axis, keepdims=is_kept, name="top")
        finite = to.emit("less", to.emit("abs", top, name="size"), to.number(np.inf), name="finite")
        tops.append(to.emit("where", finite, top, to.number(0), name="shift"))
    powers = to.emit("exp", to.emit("subtract", x, tops[0], name="shifted"), name="power")
    total = to.emit("sum", powers, axis=axis, keepdims=keepdims, name="total")
    to.emit("add", to.emit("log", total, name="log_total"), tops[-1], name="log_sum")


def _norm(to: _Composer) -> None:
    """Take apart a norm: ``x``, minus the mean but for RMS, over the root of the mean square; then the parameters."""
    x: Value
    x, *parameters = to.operands
    groups: tuple[Dim, ...] = ()
    along = _parameter_axes(to.step)
    axes: Sequence[int] = along
    if to.step.op == "nn.instance_norm":
        axes = range(2, to.rank)
    elif to.step.op == "nn.group_norm":
        batch, channels, *image = shape_of(x)
        count = int_of(to.step.binding, "groups")
        groups = (count, channels // count)
        axes, along = range(2, to.rank + 1), (1, 2)
        x = to.emit("reshape", x, shape=(batch, *groups, *image), name="apart")
    centred = x
    if to.step.op != "nn.rms_norm":
        centred = to.emit("subtract", x, to.emit("mean", x, axis=axes, keepdims=True, name="mean"), name="centred")
    square = to.emit("multiply", centred, centred, name="square")
    variance = to.emit("mean", square, axis=axes, keepdims=True, name="variance")
    shifted = to.emit("add", variance, to.number(float_of(to.step.binding, "epsilon")), name="shifted")
    factor = to.emit("divide", to.number(1), to.emit("sqrt", shifted, name="deviation"), name="factor")
    result = to.emit("multiply", centred, factor, name="scaled")
    for op, parameter in zip(("multiply", "add"), parameters, strict=False):
        reshaped = to.emit("reshape", parameter, shape=groups, name="by_group") if groups else parameter
        result = to.emit(op, result, reshaped, along=along, name="normalised")
    if groups:
        to.emit("reshape", result, shape=shape_of(to.operands[0]), name="together")


def _batch_norm(to: _Composer) -> None:
    """Take a batch norm apart if the factor is constant, computed here with the roundings of the definition.

    The op's family computes the others.
    """
    x, gamma, beta, mean, variance = to.operands
    if not isinstance(gamma, Constant) or not isinstance(variance, Constant):
        return
    weights, square = (to.pool.array(value, "composite") for value in (gamma, variance))
    with np.errstate(all="ignore"):
        factor = weights / np.sqrt(square + square.dtype.type(float_of(to.step.binding, "epsilon")))
    axis = (axis_of(to.step.binding, to.rank),)
    centred = to.emit("subtract", x, mean, along=axis, name="centred")
    scaled = to.emit("multiply", centred, to.pool.derive(factor), along=axis, name="scaled")
    to.emit("add", scaled, beta, along=axis, name="normalised")


_NORMS = dict.fromkeys(("nn.layer_norm", "nn.rms_norm", "nn.instance_norm", "nn.group_norm"), _norm)
COMPOSITES = {"nn.softmax": _softmax, "nn.log_softmax": _softmax, "logsumexp": _logsumexp, **_NORMS}
"""The function taking apart an op without another form, by the op's name."""


def take_apart(steps: Iterable[Step], pool: ConstantPool) -> list[Step]:
    """Return the steps with norms and softmax taken apart; needed numbers become constants of the pool."""
    found: list[Step] = []
    for step in steps:
        compose = _batch_norm if step.op == "nn.batch_norm" else COMPOSITES.get(step.op)
        parts: list[Step] = []
        if compose is not None:
            composer = _Composer(step, pool)
            compose(composer)
            parts = composer.steps
        if parts:
            parts[-1] = replace(parts[-1], binding=replace(parts[-1].binding, results=step.binding.results))
        found += parts or [step]
    return found


def _parameter_axes(step: Step) -> tuple[int, ...]:
    """Return the axes of a norm's operand along the axes of the parameters, in order."""
    if step.op in ("nn.instance_norm", "nn.group_norm"):
        return (1,)
    rank = len(shape_of(step.operands[0]))
    return tuple(sorted(axis % rank for axis in ints_of(step.binding, "axes")))


def reject_composite(binding: Binding) -> Rejection | None:
    """Reject dtypes other than floats, and parameters not known to have the right size."""
    refused = reject_non_floats(binding)
    if refused is not None or len(binding.operands) == 1:
        return refused
    shape = operand_shape(binding, 0)
    if binding.op.name == "nn.group_norm" and not isinstance(shape[1], int):
        return reject_sizes(binding)
    expected = tuple(shape[axis] for axis in _parameter_axes(Step(binding, binding.operands)))
    fit = all(operand_shape(binding, index) == expected for index in range(1, len(binding.operands)))
    return None if fit else reject_sizes(binding)
