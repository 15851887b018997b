"""Kernels of ops moving elements: a thread copies an element of the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from byoc_core.authoring import c
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim, DimExpr, total
from byoc_core.ir import Binding

from byoc_opencl.kernels.attributes import axes_of_attr, axis_of, flag_of, float_of, int_of, ints_of
from byoc_opencl.kernels.family import KernelFamily, reject_empty_axis, reject_nothing, shape_of
from byoc_opencl.kernels.step import Step, Tensor, all_of, for_each, literal, lowered

__all__ = ["FAMILIES"]

Indices = Sequence[c.Expression]


def _write_permute(step: Step) -> c.Nest:
    (x,), (out,) = step.inputs, step.outputs
    rank = len(x.shape)
    order = axes_of_attr(step.binding, rank, "axes")
    if step.binding.attrs["axes"] is None:
        order = tuple(reversed(order))
    return for_each(out, lambda indices: x[[indices[order.index(axis)] for axis in range(rank)]])


def _write_concat(step: Step) -> c.Nest:
    """Return a nest choosing the part by the index along the axis."""
    (out,) = step.outputs
    axis = axis_of(step.binding, len(out.shape))
    starts = [step.sizes(total(part.dims[axis] for part in step.inputs[:k])) for k in range(len(step.inputs))]

    def value(indices: Indices) -> c.Expression:
        parts = [
            _moved(part, axis, 0 - c.Size(start))(indices) for part, start in zip(step.inputs, starts, strict=True)
        ]
        return _select_part(indices[axis], parts, starts)

    return for_each(out, value)


def _write_stack(step: Step) -> c.Nest:
    (out,) = step.outputs
    axis = axis_of(step.binding, len(out.shape))

    def value(indices: Indices) -> c.Expression:
        parts = [part[[*indices[:axis], *indices[axis + 1 :]]] for part in step.inputs]
        return _select_part(indices[axis], parts, range(len(parts)))

    return for_each(out, value)


def _select_part(index: c.Expression, parts: Sequence[c.Expression], starts: Sequence[Dim]) -> c.Expression:
    """Return the value of the last part beginning at or before an index."""
    pairs = zip(parts[1:], starts[1:], strict=True)
    return reduce(lambda so_far, pair: c.Select(index.compare("<", pair[1]), so_far, pair[0]), pairs, parts[0])


def _write_split(step: Step) -> c.Block:
    """Return a parallel loop for each part."""
    (x,) = step.inputs
    axis = axis_of(step.binding, len(x.shape))
    block: c.Block = ()
    for number, out in enumerate(step.outputs):
        start = step.sizes(total(part.dims[axis] for part in step.outputs[:number]))
        block += lowered(for_each(out, _moved(x, axis, c.Size(start))))
    return block


def _moved(x: Tensor, axis: int, distance: c.Expression) -> Callable[[Indices], c.Expression]:
    """Return the function from indices to the element at a distance along an axis."""
    return lambda indices: x[[*indices[:axis], distance + indices[axis], *indices[axis + 1 :]]]


def _write_slice(step: Step) -> c.Nest:
    binding, (x,), (out,) = step.binding, step.inputs, step.outputs
    source_indices: dict[int, tuple[c.Expression, int]] = {}
    for axis, begin, stride in zip(
        axes_of_attr(binding, len(x.shape), "axes"), ints_of(binding, "begin"), ints_of(binding, "strides"), strict=True
    ):
        size = x.dims[axis]
        start: c.Expression
        if isinstance(size, int):
            start = c.Size(step.sizes(slice(begin, None, stride).indices(size)[0]))
        elif begin >= 0:
            start = c.Size(step.sizes(begin))
        else:
            start = c.index_max(c.Size(x.shape[axis] - step.sizes(-begin)), 0)
        source_indices[axis] = (start, stride)

    def value(indices: Indices) -> c.Expression:
        found = list(indices)
        for axis, (start, stride) in source_indices.items():
            found[axis] = start + indices[axis] * stride
        return x[found]

    return for_each(out, value)


def _reject_slice(binding: Binding) -> Rejection | None:
    shape = shape_of(binding.operands[0])
    bounds = [binding.attrs[name] for name in ("begin", "strides")]
    if any(isinstance(item, DimExpr) for bound in bounds if isinstance(bound, tuple) for item in bound):
        return Rejection("dynamic-shape", f"{binding.op.name} has no kernel for symbolic bounds")
    for axis, stride in zip(axes_of_attr(binding, len(shape), "axes"), ints_of(binding, "strides"), strict=True):
        if stride < 0 and not isinstance(shape[axis], int):
            return Rejection("dynamic-shape", f"{binding.op.name} has no kernel for reversed axes of symbolic size")
    return None


def _write_pad(step: Step) -> c.Nest:
    (x,), (out,) = step.inputs, step.outputs
    widths = ints_of(step.binding, "pad_width")
    padding = literal(float_of(step.binding, "pad_value"), out.type)

    def value(indices: Indices) -> c.Expression:
        source_indices, inside = list(indices), []
        for axis, size in enumerate(x.shape):
            before, after = widths[2 * axis : 2 * axis + 2]
            source_indices[axis] = indices[axis] - step.sizes(before)
            if before:
                inside.append(source_indices[axis].compare(">=", 0))
            if after:
                inside.append(source_indices[axis].compare("<", c.Size(size)))
        if not inside:
            return x[source_indices]
        return c.Select(all_of(inside), x[source_indices], padding)

    return for_each(out, value)


def _write_tile(step: Step) -> c.Nest:
    (x,), (out,) = step.inputs, step.outputs
    return for_each(out, lambda indices: x[[index % size for index, size in zip(indices, x.shape, strict=True)]])


def _write_flip(step: Step) -> c.Nest:
    (x,), (out,) = step.inputs, step.outputs
    axis = axis_of(step.binding, len(x.shape))
    return for_each(
        out,
        lambda indices: x[[*indices[:axis], c.Size(x.shape[axis]) - 1 - indices[axis], *indices[axis + 1 :]]],
    )


def _write_roll(step: Step) -> c.Nest:
    (x,), (out,) = step.inputs, step.outputs
    shifts = dict.fromkeys(range(len(x.shape)), 0)
    for axis, shift in zip(axes_of_attr(step.binding, len(x.shape)), ints_of(step.binding, "shift"), strict=True):
        shifts[axis] += shift

    def value(indices: Indices) -> c.Expression:
        source_indices = list(indices)
        for axis, shift in shifts.items():
            if shift:
                source_indices[axis] = c.index_mod(indices[axis] - shift, x.shape[axis])
        return x[source_indices]

    return for_each(out, value)


def _write_depth_to_space(step: Step) -> c.Nest:
    """Return the nest moving channels into blocks of pixels."""
    (x,), (out,), block = step.inputs, step.outputs, int_of(step.binding, "block_size")
    is_dcr = step.binding.attrs["mode"] == "DCR"

    def value(indices: Indices) -> c.Expression:
        image, channel, row, column = indices
        inner = row % block * block + column % block
        depth = inner * out.shape[1] + channel if is_dcr else channel * (block * block) + inner
        return x[[image, depth, row // block, column // block]]

    return for_each(out, value)


def _write_space_to_depth(step: Step) -> c.Nest:
    """Return the nest moving blocks of pixels into channels."""
    (x,), (out,), block = step.inputs, step.outputs, int_of(step.binding, "block_size")
    is_dcr = step.binding.attrs["mode"] == "DCR"

    def value(indices: Indices) -> c.Expression:
        image, depth, row, column = indices
        if is_dcr:
            inner, channel = depth // x.shape[1], depth % x.shape[1]
        else:
            inner, channel = depth % (block * block), depth // (block * block)
        return x[[image, channel, row * block + inner // block, column * block + inner % block]]

    return for_each(out, value)


def _write_trilu(step: Step) -> c.Nest:
    (x,), (out,), diagonal = step.inputs, step.outputs, int_of(step.binding, "k")
    operator = ">=" if flag_of(step.binding, "upper") else "<="

    def value(indices: Indices) -> c.Expression:
        is_kept = (indices[-1] - indices[-2]).compare(operator, diagonal)
        return c.Select(is_kept, x[indices], literal(0, out.type))

    return for_each(out, value)


def _write_take(step: Step) -> c.Nest:
    (x, positions), (out,) = step.inputs, step.outputs
    axis, rank = axis_of(step.binding, len(x.shape)), len(positions.shape)

    def value(indices: Indices) -> c.Expression:
        position = c.Cast(positions[indices[axis : axis + rank]], c.INDEX)
        index = c.index_min(c.index_max(position, 0), x.shape[axis] - 1)
        return x[[*indices[:axis], index, *indices[axis + rank :]]]

    return for_each(out, value)


def _reject_take(binding: Binding) -> Rejection | None:
    if binding.attrs["mode"] != "clip":
        return Rejection("index", "take has a kernel for limited indices only: a kernel cannot report a wrong index")
    data = binding.operands[0]
    return reject_empty_axis(binding, shape_of(data)[axis_of(binding, len(shape_of(data)))])


FAMILIES = (
    KernelFamily(frozenset({"permute_dims"}), _write_permute, reject_nothing, is_nest=True),
    KernelFamily(frozenset({"concat"}), _write_concat, reject_nothing, is_nest=True),
    KernelFamily(frozenset({"stack"}), _write_stack, reject_nothing, is_nest=True),
    KernelFamily(frozenset({"split"}), _write_split, reject_nothing),
    KernelFamily(frozenset({"strided_slice"}), _write_slice, _reject_slice, is_nest=True),
    KernelFamily(frozenset({"nn.pad"}), _write_pad, reject_nothing, is_nest=True),
    KernelFamily(frozenset({"tile"}), _write_tile, reject_nothing, is_nest=True),
    KernelFamily(frozenset({"flip"}), _write_flip, reject_nothing, is_nest=True),
    KernelFamily(frozenset({"roll"}), _write_roll, reject_nothing, is_nest=True),
    KernelFamily(frozenset({"depth_to_space"}), _write_depth_to_space, reject_nothing, is_nest=True),
    KernelFamily(frozenset({"space_to_depth"}), _write_space_to_depth, reject_nothing, is_nest=True),
    KernelFamily(frozenset({"trilu"}), _write_trilu, reject_nothing, is_nest=True),
    KernelFamily(frozenset({"take"}), _write_take, _reject_take, is_nest=True),
)
"""Transposes, parts of tensors, padding, repetition."""
