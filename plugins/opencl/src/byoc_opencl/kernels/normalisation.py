"""Kernels of softmax and of normalisation by the statistics of rows; a thread computes a row, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from byoc_core.authoring import c
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import product
from byoc_core.ir import Binding

from byoc_opencl.kernels.attributes import axes_of_attr, axis_of, float_of, int_of
from byoc_opencl.kernels.family import KernelFamily, reject_other_than_floats, reject_sizes, shape_of
from byoc_opencl.kernels.rows import Row
from byoc_opencl.kernels.step import DOUBLE, Step, Tensor, cast, literal, root_of

__all__ = ["FAMILIES"]


def _write_softmax(step: Step) -> c.Block:
    """Return the loops of softmax or its logarithm: largest element, sum of exponentials, results."""
    (x,), (out,), is_log = step.inputs, step.outputs, step.binding.op.name == "nn.log_softmax"
    row = Row(x, (axis_of(step.binding, len(x.shape)),))
    best, total, log = (c.Variable(name, DOUBLE) for name in ("best", "total", "log_total"))

    def exponential(inner: Sequence[c.Expression], use: Callable[[c.Expression], c.Statement]) -> c.Block:
        moved, power = c.Variable("moved", DOUBLE), c.Variable("power", DOUBLE)
        declared = c.Let(moved, cast(row.load(inner), DOUBLE) - best)
        return (declared, c.Let(power, c.Element("exp", (moved,), DOUBLE)), use(power))

    def result(inner: Sequence[c.Expression]) -> c.Block:
        indices = row.indices(inner)
        if is_log:
            return (out.store(indices, cast(cast(row.load(inner), DOUBLE) - best - log, out.type)),)
        return exponential(inner, lambda power: out.store(indices, cast(power / total, out.type)))

    return row.in_parallel(
        (
            *row.largest(best),
            c.Declare(total, literal(0, DOUBLE)),
            *row.each(lambda inner: exponential(inner, lambda power: c.Assign(total, total + power))),
            *((c.Let(log, c.Element("log", (total,), DOUBLE)),) if is_log else ()),
            *row.each(result),
        )
    )


def _statistics(row: Row, epsilon: float, *, is_centred: bool) -> tuple[c.Block, c.Expression, c.Variable]:
    """Return the statements computing the statistics of a row, the mean, and the deviation."""
    total, squares, mean, deviation = (c.Variable(name, DOUBLE) for name in ("total", "squares", "mean", "deviation"))
    count = c.Cast(c.Size(product(row.sizes)), DOUBLE)
    centre: c.Expression = mean if is_centred else literal(0, DOUBLE)
    block: c.Block = ()
    if is_centred:
        block += row.collect(total, literal(0, DOUBLE), lambda so_far, value: so_far + value)
        block += (c.Let(mean, total / count),)
    block += row.collect(
        squares, literal(0, DOUBLE), lambda so_far, value: so_far + (value - centre) * (value - centre)
    )
    block += (c.Let(deviation, root_of(squares / count + literal(epsilon, DOUBLE))),)
    return block, centre, deviation


def _write_layer_norm(step: Step) -> c.Block:
    """Return the loops of normalisation over axes, with a scale and perhaps a shift for each element of a row."""
    x, *parameters = step.inputs
    (out,) = step.outputs
    row = Row(x, axes_of_attr(step.binding, len(x.shape), "axes"))
    order = [row.axes.index(axis) for axis in axes_of_attr(step.binding, len(x.shape), "axes")]
    is_centred = step.binding.op.name == "nn.layer_norm"
    block, mean, deviation = _statistics(row, float_of(step.binding, "epsilon"), is_centred=is_centred)

    def result(inner: Sequence[c.Expression]) -> c.Block:
        gamma, *beta = (cast(item[[inner[axis] for axis in order]], DOUBLE) for item in parameters)
        return (out.store(row.indices(inner), _normalised(row.load(inner), mean, deviation, gamma, beta, out)),)

    return row.in_parallel((*block, *row.each(result)))


def _write_group_norm(step: Step) -> c.Block:
    """Return the loops of normalisation over groups of channels, or over each channel."""
    x, *parameters = step.inputs
    (out,) = step.outputs
    is_grouped = step.binding.op.name == "nn.group_norm"
    groups = int_of(step.binding, "groups") if is_grouped else x.dims[1]
    num_channels = x.dims[1] // groups
    dims = (x.dims[0], groups, num_channels, product(x.dims[2:]))
    shape = tuple(map(step.sizes, dims))
    row = Row(Tensor(x.buffer, dims, shape), (2, 3))
    target = Tensor(out.buffer, dims, shape)
    block, mean, deviation = _statistics(row, float_of(step.binding, "epsilon"), is_centred=True)

    def result(inner: Sequence[c.Expression]) -> c.Block:
        channel = row.outer_indices[1] * shape[2] + inner[0]
        gamma, *beta = (cast(item[[channel]], DOUBLE) for item in parameters)
        return (target.store(row.indices(inner), _normalised(row.load(inner), mean, deviation, gamma, beta, out)),)

    return row.in_parallel((*block, *row.each(result)))


def _normalised(
    value: c.Expression,
    mean: c.Expression,
    deviation: c.Expression,
    gamma: c.Expression,
    beta: Sequence[c.Expression],
    out: Tensor,
) -> c.Expression:
    result = (cast(value, DOUBLE) - mean) / deviation * gamma
    return cast(result + beta[0] if beta else result, out.type)


def _reject_layer_norm(binding: Binding) -> Rejection | None:
    if (rejection := reject_other_than_floats(binding)) is not None:
        return rejection
    shape = shape_of(binding.operands[0])
    sizes = tuple(shape[axis] for axis in axes_of_attr(binding, len(shape), "axes"))
    return None if all(shape_of(item) == sizes for item in binding.operands[1:]) else reject_sizes(binding)


def _reject_group_norm(binding: Binding) -> Rejection | None:
    if (rejection := reject_other_than_floats(binding)) is not None:
        return rejection
    channels = shape_of(binding.operands[0])[1]
    is_known = isinstance(channels, int) or binding.op.name == "nn.instance_norm"
    if not is_known or any(shape_of(item) != (channels,) for item in binding.operands[1:]):
        return reject_sizes(binding)
    return None


FAMILIES = (
    KernelFamily(frozenset({"nn.softmax", "nn.log_softmax"}), _write_softmax, reject_other_than_floats),
    KernelFamily(frozenset({"nn.layer_norm", "nn.rms_norm"}), _write_layer_norm, _reject_layer_norm),
    KernelFamily(frozenset({"nn.group_norm", "nn.instance_norm"}), _write_group_norm, _reject_group_norm),
)
"""Softmax, and normalisation by the mean and the variance of rows."""
