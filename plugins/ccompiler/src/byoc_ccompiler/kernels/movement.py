"""Ops that move elements by fixed strides: reshapes, joins, splits, slices, repeats, padding, blocks of pixels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import FunctionScope
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim, dim_max, dim_min, product
from byoc_core.dtypes import to_numpy
from byoc_core.ir import Binding, TensorType
from byoc_core.ops import is_open_bound

from byoc_ccompiler.attributes import axis_of, dims_of, float_of, int_of, ints_of
from byoc_ccompiler.family import Access, KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.copies import copy_axes, copy_block, fill_block
from byoc_ccompiler.rejections import operand_shape, reject_sizes
from byoc_ccompiler.size_checks import require_equal_sizes
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["FAMILIES", "slice_start"]


def _reshape(kernel: Kernel, step: Step) -> c.Block:
    axes = copy_axes([product(shape_of(step.result))], [1], [1])
    return copy_block(axes, kernel.target(step.result), kernel.source(step.operands[0]))


def _concat(kernel: Kernel, step: Step) -> c.Block:
    axis = axis_of(step.binding, len(shape_of(step.result)))
    strides, out = kernel.strides(step.result), kernel.target(step.result)
    body: c.Block = ()
    begin: Dim = 0
    for operand in step.operands:
        axes = copy_axes(shape_of(operand), strides, kernel.strides(operand))
        body += copy_block(axes, out, kernel.source(operand), at=begin * strides[axis])
        begin = begin + shape_of(operand)[axis]
    return body


def _stack(kernel: Kernel, step: Step) -> c.Block:
    axis = axis_of(step.binding, len(shape_of(step.result)))
    strides, out = kernel.strides(step.result), kernel.target(step.result)
    others = (*strides[:axis], *strides[axis + 1 :])
    body: c.Block = ()
    for index, operand in enumerate(step.operands):
        axes = copy_axes(shape_of(operand), others, kernel.strides(operand))
        body += copy_block(axes, out, kernel.source(operand), at=index * strides[axis])
    return body


def _split(kernel: Kernel, step: Step) -> c.Block:
    (x,) = step.operands
    axis = axis_of(step.binding, len(shape_of(x)))
    strides, source = kernel.strides(x), kernel.source(x)
    body: c.Block = ()
    begin: Dim = 0
    for part in step.binding.results:
        if part in kernel.stored:
            axes = copy_axes(shape_of(part), kernel.strides(part), strides)
            body += copy_block(axes, kernel.target(part), source, source_at=begin * strides[axis])
        begin = begin + shape_of(part)[axis]
    return body


def slice_start(bound: Dim, size: Dim, stride: int) -> Dim:
    """Return the first index of a slice: its bound counted from the front, and limited to the axis."""
    if not isinstance(bound, int):  # 0 is added where it is zero or more, the size where it is less
        bound = bound - dim_max(dim_min(bound, 0), -1) * size
    elif bound < 0:
        bound = size + bound
    return dim_min(dim_max(bound, 0), size if stride > 0 else size - 1)


def _strided_slice(kernel: Kernel, step: Step) -> c.Block:
    (x,) = step.operands
    shape = shape_of(x)
    strides = list(kernel.strides(x))
    begin: Dim = 0
    attrs = step.binding
    for axis, first, apart in zip(
        ints_of(attrs, "axes"), dims_of(attrs, "begin"), ints_of(attrs, "strides"), strict=True
    ):
        begin = begin + slice_start(first, shape[axis], apart) * strides[axis]
        strides[axis] = strides[axis] * apart
    axes = copy_axes(shape_of(step.result), kernel.strides(step.result), strides)
    return copy_block(axes, kernel.target(step.result), kernel.source(x), source_at=begin)


def _flip(kernel: Kernel, step: Step) -> c.Block:
    (x,) = step.operands
    shape, strides = shape_of(x), list(kernel.strides(x))
    axis = axis_of(step.binding, len(shape))
    last = (shape[axis] - 1) * strides[axis]
    strides[axis] = -strides[axis]
    axes = copy_axes(shape, kernel.strides(step.result), strides)
    return copy_block(axes, kernel.target(step.result), kernel.source(x), source_at=last)


def _full(kernel: Kernel, step: Step) -> c.Block:
    shape = shape_of(step.result)
    axes = copy_axes(shape, kernel.strides(step.result), [0] * len(shape))
    return copy_block(axes, kernel.target(step.result), kernel.source(step.operands[0]))


def _tile(kernel: Kernel, step: Step) -> c.Block:
    (x,) = step.operands
    sizes: list[Dim] = []
    to: list[Dim] = []
    come: list[Dim] = []
    for repeats, size, into, out_of in zip(
        dims_of(step.binding, "repeats"), shape_of(x), kernel.strides(step.result), kernel.strides(x), strict=True
    ):
        sizes += [repeats, size]
        to += [into * size, into]
        come += [0, out_of]
    return copy_block(copy_axes(sizes, to, come), kernel.target(step.result), kernel.source(x))


def _pad(kernel: Kernel, step: Step) -> c.Block:
    (x,) = step.operands
    widths, out = ints_of(step.binding, "pad_width"), kernel.target(step.result)
    strides = kernel.strides(step.result)
    begin = sum((before * stride for before, stride in zip(widths[::2], strides, strict=True)), start=0)
    copied = copy_block(copy_axes(shape_of(x), strides, kernel.strides(x)), out, kernel.source(x), at=begin)
    if not any(widths):
        return copied
    with np.errstate(all="ignore"):  # as the reference converts it: what does not fit is not an error
        value = np.asarray(float_of(step.binding, "pad_value")).astype(to_numpy(out.dtype))[()]
    return (*fill_block(step.result, out, c.Literal(value, c.CType(out.dtype))), *copied)


def _depth_to_space(kernel: Kernel, step: Step) -> c.Block:
    (x,) = step.operands
    block, mode = int_of(step.binding, "block_size"), str(step.binding.attrs["mode"])
    batch, _, height, width = shape_of(x)
    depth = shape_of(step.result)[1]
    come, to = kernel.strides(x), kernel.strides(step.result)
    row, column, deep = _channel_strides(depth, come[1], block, mode)
    axes = copy_axes(
        [batch, depth, height, block, width, block],
        [to[0], to[1], to[2] * block, to[2], to[3] * block, to[3]],
        [come[0], deep, come[2], row, come[3], column],
    )
    return copy_block(axes, kernel.target(step.result), kernel.source(x))


def _space_to_depth(kernel: Kernel, step: Step) -> c.Block:
    (x,) = step.operands
    block, mode = int_of(step.binding, "block_size"), str(step.binding.attrs["mode"])
    batch, depth = shape_of(x)[:2]
    height, width = shape_of(step.result)[2:]
    come, to = kernel.strides(x), kernel.strides(step.result)
    row, column, deep = _channel_strides(depth, to[1], block, mode)
    channels = [(block, row, come[2]), (block, column, come[3]), (depth, deep, come[1])]
    if mode != "DCR":
        channels = [channels[2], *channels[:2]]
    sizes, into, out_of = ([axis[place] for axis in channels] for place in range(3))
    axes = copy_axes(
        [batch, *sizes, height, width],
        [to[0], *into, to[2], to[3]],
        [come[0], *out_of, come[2] * block, come[3] * block],
    )
    return copy_block(axes, kernel.target(step.result), kernel.source(x))


def _channel_strides(depth: Dim, stride: Dim, block: int, mode: str) -> tuple[Dim, Dim, Dim]:
    """Gives the strides, among channels that number the pixels of blocks, of a block's rows, columns and channels."""
    if mode == "DCR":
        return stride * depth * block, stride * depth, stride
    return stride * block, stride, stride * (block * block)


def _reject(binding: Binding) -> Rejection | None:
    """Refuses a reshape whose numbers of elements only running shows to agree: the C code copies without looking."""
    (result,) = binding.results if binding.op.name == "reshape" else (None,)
    if result is None or not isinstance(result.type, TensorType):
        return None
    return None if result.type.num_elements == product(operand_shape(binding, 0)) else reject_sizes(binding)


def _require_strict(scope: FunctionScope, step: Step, shape: Sequence[Dim]) -> None:
    """Has the bounds checked that must lie on an axis and may not; the type rule has refused those that never do."""
    for axis, stride, *bounds in zip(
        ints_of(step.binding, "axes"),
        ints_of(step.binding, "strides"),
        dims_of(step.binding, "begin"),
        dims_of(step.binding, "end"),
        strict=True,
    ):
        size, room = shape[axis], int(stride < 0)
        for bound in bounds:
            if is_open_bound(bound):
                continue
            # With a negative stride the places of an axis are -1 to its size less 1.
            end = (bound + size if isinstance(bound, int) and bound < 0 else bound) + room
            before = [0] * (axis % len(shape))
            scope.require_at_least(step.op, "operand `x`, which its bounds lie on,", [*before, size], [*before, end])
            scope.require_at_least(step.op, "what lies before a bound", [*before, end], [*before, 0])


def _require(scope: FunctionScope, step: Step) -> None:
    """Has sizes checked that symbols hide from the type rules."""
    shape = shape_of(step.operands[0])
    if step.op == "strided_slice":
        if step.binding.attrs["mode"] == "strict":
            _require_strict(scope, step, shape)
    elif step.op == "concat":
        along = axis_of(step.binding, len(shape))
        for index, operand in enumerate(step.operands):
            dims, result = shape_of(operand), shape_of(step.result)
            require_equal_sizes(scope, step, index, dims, [*result[:along], dims[along], *result[along + 1 :]])
    elif step.op == "split":
        along = axis_of(step.binding, len(shape))
        parts = sum((shape_of(part)[along] for part in step.binding.results), start=0)
        require_equal_sizes(scope, step, 0, shape, [*shape[:along], parts, *shape[along + 1 :]])
    elif step.op == "squeeze":
        removed = [shape[axis] for axis in ints_of(step.binding, "axis")]
        require_equal_sizes(scope, step, 0, removed, [1] * len(removed))
    elif step.op == "stack":
        for index in range(1, len(step.operands)):
            require_equal_sizes(scope, step, index, shape_of(step.operands[index]), shape)
    elif step.op == "depth_to_space":
        block, depth = int_of(step.binding, "block_size"), shape_of(step.result)[1]
        require_equal_sizes(scope, step, 0, shape[1:2], [depth * (block * block)])
    elif step.op == "space_to_depth":
        block, image = int_of(step.binding, "block_size"), shape_of(step.result)[2:]
        require_equal_sizes(scope, step, 0, shape[2:], [size * block for size in image])


_RESHAPES = dict.fromkeys(("reshape", "expand_dims", "squeeze"), _reshape)
_STRIDED: Mapping[str, Callable[[Kernel, Step], c.Block]] = {
    "concat": _concat,
    "stack": _stack,
    "split": _split,
    "strided_slice": _strided_slice,
    "flip": _flip,
    "full": _full,
    "tile": _tile,
    "depth_to_space": _depth_to_space,
    "space_to_depth": _space_to_depth,
}
_WRITERS = {**_RESHAPES, **_STRIDED, "nn.pad": _pad}


def _write(kernel: Kernel) -> None:
    """Writes the kernel of an op that moves elements."""
    (step,) = kernel.group.steps
    kernel.finish_block(_WRITERS[step.op](kernel, step))


def _any(step: Step, index: int) -> Access:
    return Access.ANY


FAMILIES = (
    KernelFamily(frozenset(_RESHAPES), _reject, _write, takes_halves=True, require=_require),
    KernelFamily(frozenset({"nn.pad"}), _reject, _write, takes_halves=True, reads=_any),
    KernelFamily(frozenset(_STRIDED), _reject, _write, takes_halves=True, require=_require, reads=_any, writes=_any),
)
"""Reshapes; padding, which fills its result first; and what copies between any strides."""
