"""Softmax and the norms, taken apart into elementwise ops and reductions, which one row kernel computes together.

The steps follow the reference kernels: the mean first, then the mean square of what is left. A division by a row's own
number becomes a product with its reciprocal, which is computed once in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from byoc_core.authoring.csource import ConstantPool
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim
from byoc_core.ir import Binding, Constant, FunctionBuilder, TensorType, Value, Var
from byoc_core.runtime.module import NDArray

from byoc_ccompiler.kernels.strided_nest import spread
from byoc_ccompiler.rejections import operand_shape, reject_non_floats, reject_sizes
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["COMPOSITES", "reject_composite", "take_apart"]


class _Composer:
    """Collects the steps that stand for one."""

    def __init__(self, step: Step, pool: ConstantPool) -> None:
        self.step = step
        self.steps: list[Step] = []
        self._pool = pool
        self._builder = FunctionBuilder("composite")

    @property
    def rank(self) -> int:
        return len(shape_of(self.step.operands[0]))

    def number(self, value: float) -> Constant:
        """Gives a constant of the dtype that the composite computes in."""
        return self._pool.derive(np.array(value, np.dtype(dtype_of(self.step.operands[0]))))

    def emit(self, op: str, *operands: Value, name: str, **attrs: object) -> Var:
        """Adds a step."""
        binding = self._builder.bind(op, operands, attrs, names=(name,))
        self.steps.append(Step(binding, operands, origin=self.step.binding))
        return binding.result

    def array(self, value: Value) -> NDArray | None:
        """Gives a constant's array; ``None`` for other operands."""
        return self._pool.array(value, "composite") if isinstance(value, Constant) else None

    def constant(self, array: NDArray) -> Constant:
        """Gives the constant for an array."""
        return self._pool.derive(array)

    def emit_along(self, op: str, x: Value, parameter: Value, axes: Sequence[int], name: str) -> Var:
        """Adds a step of ``x`` and of a parameter whose axes lie along some of its axes."""
        rank = len(shape_of(x))
        wide = Var("parameter", TensorType(spread(shape_of(parameter), axes, rank, 1), dtype_of(parameter)))
        binding = self._builder.bind(op, (x, wide), {}, names=(name,))
        given = (tuple(range(rank)), tuple(axes))
        self.steps.append(Step(binding, (x, parameter), axes=given, origin=self.step.binding))
        return binding.result

    def finish(self) -> list[Step]:
        """Gives the steps; the last one makes what the composite makes."""
        last = self.steps[-1]
        return [*self.steps[:-1], replace(last, binding=replace(last.binding, results=self.step.binding.results))]

    def reciprocal(self, value: Var) -> Var:
        return self.emit("divide", self.number(1), value, name="factor")


def _axis(step: Step) -> tuple[int, ...]:
    return (int(str(step.binding.attrs["axis"])) % len(shape_of(step.operands[0])),)


def _axes(step: Step) -> tuple[int, ...]:
    rank = len(shape_of(step.operands[0]))
    return tuple(sorted(axis % rank for axis in _numbers(step.binding.attrs["axes"])))


def _numbers(value: object) -> tuple[int, ...]:
    assert isinstance(value, tuple)
    return tuple(int(str(item)) for item in value)


def _powers(to: _Composer, axis: Sequence[int]) -> tuple[Var, Var, Var]:
    """Gives ``x`` minus its maximum, the exponentials of that, and their sum."""
    (x,) = to.step.operands
    top = to.emit("max", x, axis=axis, keepdims=True, name="top")
    shifted = to.emit("subtract", x, top, name="shifted")
    powers = to.emit("exp", shifted, name="power")
    to.steps[-1] = replace(to.steps[-1], is_nonpositive=True)
    return shifted, powers, to.emit("sum", powers, axis=axis, keepdims=True, name="total")


def _softmax(to: _Composer) -> None:
    _, powers, total = _powers(to, _axis(to.step))
    to.emit("multiply", powers, to.reciprocal(total), name="share")


def _log_softmax(to: _Composer) -> None:
    shifted, _, total = _powers(to, _axis(to.step))
    to.emit("subtract", shifted, to.emit("log", total, name="log_total"), name="log_share")


def _logsumexp(to: _Composer) -> None:
    (x,) = to.step.operands
    given = to.step.binding.attrs["axis"]
    kept = {"axis": given, "keepdims": to.step.binding.attrs["keepdims"]}
    # Of infinities the exponential is taken as it is, so that it is infinite or zero and not NaN.
    tops = []
    for keepdims in dict.fromkeys((True, kept["keepdims"])):
        top = to.emit("max", x, axis=given, keepdims=keepdims, name="top")
        size = to.emit("abs", top, name="size")
        finite = to.emit("less", size, to.number(np.inf), name="finite")
        tops.append(to.emit("where", finite, top, to.number(0), name="shift"))
    powers = to.emit("exp", to.emit("subtract", x, tops[0], name="shifted"), name="power")
    total = to.emit("sum", powers, name="total", **kept)
    to.emit("add", to.emit("log", total, name="log_total"), tops[-1], name="log_sum")


def _standardise(to: _Composer, x: Value, axes: Sequence[int], *, centre: bool) -> Var:
    """Gives ``x``, minus its mean where asked for, over the root of the mean square."""
    centred = x
    if centre:
        centred = to.emit("subtract", x, to.emit("mean", x, axis=axes, keepdims=True, name="mean"), name="centred")
    square = to.emit("multiply", centred, centred, name="square")
    variance = to.emit("mean", square, axis=axes, keepdims=True, name="variance")
    shifted = to.emit("add", variance, to.number(float(str(to.step.binding.attrs["epsilon"]))), name="shifted")
    factor = to.reciprocal(to.emit("sqrt", shifted, name="deviation"))
    return to.emit("multiply", centred, factor, name="scaled")


def _norm(to: _Composer, axes: Sequence[int], parameter_axes: Sequence[int], *, centre: bool = True) -> None:
    x, *parameters = to.step.operands
    result = _standardise(to, x, axes, centre=centre)
    for op, parameter in zip(("multiply", "add"), parameters, strict=False):
        result = to.emit_along(op, result, parameter, parameter_axes, "normalised")


def _layer_norm(to: _Composer) -> None:
    _norm(to, _axes(to.step), _axes(to.step))


def _rms_norm(to: _Composer) -> None:
    _norm(to, _axes(to.step), _axes(to.step), centre=False)


def _instance_norm(to: _Composer) -> None:
    _norm(to, range(2, to.rank), (1,))


def _batch_norm(to: _Composer) -> None:
    """Takes it apart where its factor is constant: that is computed here, with the roundings of the definition.

    Its family computes the others.
    """
    x, gamma, beta, mean, variance = to.step.operands
    weights, spread_ = to.array(gamma), to.array(variance)
    if weights is None or spread_ is None:
        return
    with np.errstate(all="ignore"):
        factor = weights / np.sqrt(spread_ + spread_.dtype.type(float(str(to.step.binding.attrs["epsilon"]))))
    axis = _axis(to.step)
    centred = to.emit_along("subtract", x, mean, axis, "centred")
    scaled = to.emit_along("multiply", centred, to.constant(factor), axis, "scaled")
    to.emit_along("add", scaled, beta, axis, "normalised")


def _group_norm(to: _Composer) -> None:
    x, *parameters = to.step.operands
    batch, channels, *image = shape_of(x)
    groups = int(str(to.step.binding.attrs["groups"]))
    split = (groups, channels // groups)
    apart = to.emit("reshape", x, shape=(batch, *split, *image), name="apart")
    result = _standardise(to, apart, range(2, to.rank + 1), centre=True)
    for op, parameter in zip(("multiply", "add"), parameters, strict=True):
        by_group = to.emit("reshape", parameter, shape=split, name="by_group")
        result = to.emit_along(op, result, by_group, (1, 2), "normalised")
    to.emit("reshape", result, shape=shape_of(x), name="together")


COMPOSITES: Mapping[str, Callable[[_Composer], None]] = {
    "nn.softmax": _softmax,
    "nn.log_softmax": _log_softmax,
    "logsumexp": _logsumexp,
    "nn.layer_norm": _layer_norm,
    "nn.rms_norm": _rms_norm,
    "nn.instance_norm": _instance_norm,
    "nn.group_norm": _group_norm,
}
"""What takes an op apart that has no other form, by its name."""


def take_apart(steps: Iterable[Step], pool: ConstantPool) -> list[Step]:
    """Gives the steps with norms and softmax taken apart; numbers they need become constants of the pool."""
    found: list[Step] = []
    for step in steps:
        compose = _batch_norm if step.op == "nn.batch_norm" else COMPOSITES.get(step.op)
        if compose is None:
            found.append(step)
            continue
        composer = _Composer(step, pool)
        compose(composer)
        found += composer.finish() if composer.steps else [step]
    return found


def reject_composite(binding: Binding) -> Rejection | None:
    """Refuses other dtypes than floats, and parameters that may turn out to be of another size."""
    refused = reject_non_floats(binding)
    if refused is not None or len(binding.operands) == 1:
        return refused
    shape = operand_shape(binding, 0)
    if binding.op.name == "nn.group_norm" and not isinstance(shape[1], int):
        return reject_sizes(binding)
    axes = (1,) if binding.op.name in ("nn.instance_norm", "nn.group_norm") else _axes(Step(binding, binding.operands))
    wanted: tuple[Dim, ...] = tuple(shape[axis] for axis in axes)
    fit = all(operand_shape(binding, index) == wanted for index in range(1, len(binding.operands)))
    return None if fit else reject_sizes(binding)
