"""Ops moving elements, and ops computing results from sizes.

By fixed strides: reshapes, joins, splits, slices, repeats, padding, blocks of pixels. To indices given by a rule:
rotation, continuation beyond borders, reversal of sequences, triangles. From sizes: numbers in a row, shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import FunctionScope
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim, dim_max, dim_min, product
from byoc_core.dtypes import to_numpy
from byoc_core.ir import Binding, TensorType, Value, Var
from byoc_core.ops import is_open_bound

from byoc_ccompiler.attributes import axis_of, dim_of, dims_of, flag_of, float_of, int_of, ints_of
from byoc_ccompiler.family import KernelFamily, any_access, writer_by_table
from byoc_ccompiler.kernel import Kernel, compact_strides
from byoc_ccompiler.kernels.copies import copy_nest, copy_run, loops_around, offset_along, share_nest
from byoc_ccompiler.kernels.indexing import range_check
from byoc_ccompiler.rejections import operand_shape, reject_sizes
from byoc_ccompiler.size_checks import require_equal_sizes
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["FAMILIES", "slices_of"]

_Dims = Sequence[Dim] | None


def _copied(
    kernel: Kernel,
    result: Var,
    operand: Value,
    sizes: _Dims = None,
    target_strides: _Dims = None,
    source_strides: _Dims = None,
    **offsets: Dim,
) -> c.Block:
    """Return the copy of an operand; by default, sizes and strides are taken from the operand and the result."""
    sizes, target_strides = (
        shape_of(operand) if sizes is None else sizes,
        kernel.strides(result) if target_strides is None else target_strides,
    )
    source_strides = kernel.strides(operand) if source_strides is None else source_strides
    return kernel.lower(
        *copy_nest(kernel.target(result), kernel.source(operand), sizes, target_strides, source_strides, **offsets)
    )


def _reshape(kernel: Kernel, step: Step) -> c.Block:
    return _copied(
        kernel, step.result, step.operands[0], [product(shape_of(step.result))], target_strides=[1], source_strides=[1]
    )


def _parts(kernel: Kernel, step: Step) -> c.Block:
    """Return the copies between a tensor and its parts, in sequence along an axis, perhaps a new axis."""
    is_split, is_new = step.op == "split", step.op == "stack"
    full_tensor, parts = (step.operands[0], step.binding.results) if is_split else (step.result, step.operands)
    axis, strides = axis_of(step.binding, len(shape_of(full_tensor))), list(kernel.strides(full_tensor))
    stride = strides.pop(axis) if is_new else strides[axis]
    body: c.Block = ()
    begin: Dim = 0
    for part in parts:
        if not is_split:
            body += _copied(kernel, step.result, part, target_strides=strides, target_offset=begin * stride)
        elif isinstance(part, Var) and part in kernel.stored:
            body += _copied(kernel, part, full_tensor, shape_of(part), source_offset=begin * stride)
        begin = begin + (1 if is_new else shape_of(part)[axis])
    return body


def _slice_start(bound: Dim, size: Dim, stride: int) -> Dim:
    """Return the first index of a slice: the bound counted from the front, and limited to the axis."""
    if not isinstance(bound, int):  # 0 is added where it is zero or more, the size where it is less
        bound = bound - dim_max(dim_min(bound, 0), -1) * size
    elif bound < 0:
        bound = size + bound
    return dim_min(dim_max(bound, 0), size if stride > 0 else size - 1)


def slices_of(step: Step) -> list[tuple[int, Dim, int]]:
    """Return the axes of a slice, the first index on each axis, and the distance to the next."""
    shape, binding = shape_of(step.operands[0]), step.binding
    if step.op == "flip":
        axis = axis_of(binding, len(shape))
        return [(axis, shape[axis] - 1, -1)]
    bounds = zip(ints_of(binding, "axes"), dims_of(binding, "begin"), ints_of(binding, "strides"), strict=True)
    return [(axis, _slice_start(begin, shape[axis], stride), stride) for axis, begin, stride in bounds]


def _strided_slice(kernel: Kernel, step: Step) -> c.Block:
    (x,) = step.operands
    strides = list(kernel.strides(x))
    begin: Dim = 0
    for axis, first, stride in slices_of(step):
        begin = begin + first * strides[axis]
        strides[axis] = strides[axis] * stride
    return _copied(kernel, step.result, x, shape_of(step.result), source_strides=strides, source_offset=begin)


def _full(kernel: Kernel, step: Step) -> c.Block:
    shape = shape_of(step.result)
    return _copied(kernel, step.result, step.operands[0], shape, source_strides=[0] * len(shape))


def _tile(kernel: Kernel, step: Step) -> c.Block:
    (x,) = step.operands
    repeats, strides = dims_of(step.binding, "repeats"), kernel.strides(step.result)
    parts = zip(repeats, shape_of(x), strides, kernel.strides(x), strict=True)
    axes = [
        axis
        for count, size, target_strides, source_strides in parts
        for axis in ((count, target_strides * size, 0), (size, target_strides, source_strides))
    ]
    sizes, target_strides, source_strides = ([axis[column] for axis in axes] for column in range(3))
    return _copied(kernel, step.result, x, sizes, target_strides=target_strides, source_strides=source_strides)


def _pad(kernel: Kernel, step: Step) -> c.Block:
    (x,) = step.operands
    widths, out, strides = ints_of(step.binding, "pad_width"), kernel.target(step.result), kernel.strides(step.result)
    begin = sum((before * stride for before, stride in zip(widths[::2], strides, strict=True)), start=0)
    copied = _copied(kernel, step.result, x, target_offset=begin)
    if not any(widths):
        return copied
    with np.errstate(all="ignore"):  # converted as in the reference: overflow is no error
        value = np.asarray(float_of(step.binding, "pad_value")).astype(to_numpy(out.dtype))[()]
    axis = c.Axis(c.Variable("k"), product(shape_of(step.result)))
    fill = (c.Store(out, axis.index, c.Literal(value, c.CType(out.dtype))),)
    return (*share_nest(kernel, [axis], fill), *copied)


def _pixel_blocks(kernel: Kernel, step: Step) -> c.Block:
    """Return the copy between an image and its square blocks, with the pixels of a block in sequence as channels."""
    (x,), to_image, is_dcr = step.operands, step.op == "depth_to_space", step.binding.attrs["mode"] == "DCR"
    image, deep = (step.result, x) if to_image else (x, step.result)
    block, (batch, depth), (height, width) = int_of(step.binding, "block_size"), shape_of(image)[:2], shape_of(deep)[2:]
    near, far = kernel.strides(image), kernel.strides(deep)
    # The strides, among channels numbering the pixels of blocks, of a block's rows, columns and channels.
    row, column, channel = (depth * block, depth, 1) if is_dcr else (block, 1, block * block)
    images, channels = (batch, near[0], far[0]), (depth, near[1], far[1] * channel)
    rows, columns = (height, near[2] * block, far[2]), (width, near[3] * block, far[3])
    down, right = (block, near[2], far[1] * row), (block, near[3], far[1] * column)
    axes = [images, *((down, right, channels) if is_dcr else (channels, down, right)), rows, columns]
    if to_image:
        axes = [images, channels, rows, down, columns, right]
    sizes, of_image, of_blocks = ([axis[field] for axis in axes] for field in range(3))
    target_strides, source_strides = (of_image, of_blocks) if to_image else (of_blocks, of_image)
    return _copied(kernel, step.result, x, sizes, target_strides=target_strides, source_strides=source_strides)


def _edge(at: c.Expression, size: Dim) -> c.Expression:
    return c.index_min(c.index_max(at, 0), size - 1)


def _reflect(at: c.Expression, size: Dim) -> c.Expression:
    period = c.Size(dim_max(2 * size - 2, 1))
    return c.index_min(c.index_mod(at, period), c.index_mod(c.Unary("-", at), period))


_BORDERS = {"edge": _edge, "wrap": c.index_mod, "reflect": _reflect}
"""The index on an axis replacing an index beyond the borders, by mode."""


def _indices(step: Step) -> list[c.Variable]:
    return [c.Variable(f"i{axis}") for axis in range(len(shape_of(step.operands[0])))]


def _roll(kernel: Kernel, step: Step) -> c.Block:
    indices, shape = _indices(step), shape_of(step.operands[0])
    shifts = zip(ints_of(step.binding, "axis"), ints_of(step.binding, "shift"), strict=True)
    source_indices = {axis % len(shape): c.index_mod(indices[axis] - shift, shape[axis]) for axis, shift in shifts}
    return _mapped(kernel, step, indices, source_indices)


def _border_pad(kernel: Kernel, step: Step) -> c.Block:
    indices, rule = _indices(step), _BORDERS[str(step.binding.attrs["mode"])]
    padded = {
        axis: (before, size)
        for axis, ((before, after), size) in enumerate(zip(_widths(step), shape_of(step.operands[0]), strict=True))
        if before or after
    }
    source_indices = {axis: rule(indices[axis] - before, size) for axis, (before, size) in padded.items()}
    return _mapped(kernel, step, indices, source_indices, runs=padded)


def _widths(step: Step) -> list[tuple[int, int]]:
    """Return the elements added before and behind each axis by ``nn.border_pad``."""
    widths = ints_of(step.binding, "pad_width")
    return list(zip(widths[::2], widths[1::2], strict=True))


def _reverse_sequence(kernel: Kernel, step: Step) -> c.Block:
    x, lengths = step.operands
    indices, shape, ends = _indices(step), shape_of(x), kernel.source(lengths, "lengths")
    batch, sequence = (axis_of(step.binding, len(shape), name) for name in ("batch_axis", "seq_axis"))
    problem, count = f"a length does not fit axis {sequence}", product(shape_of(lengths))
    checks = range_check(kernel, step.op, problem, ends, count, c.Size(0), c.Size(shape[sequence]))
    turn, end = indices[sequence], c.Variable("end")
    source_index = turn + c.Select(turn.compare("<", end), end - 1 - turn * 2, c.Size(0))
    length = c.Let(end, c.Cast(ends[indices[batch]], c.INDEX))
    return (*checks, *_mapped(kernel, step, indices, {sequence: source_index}, length))


def _mapped(
    kernel: Kernel,
    step: Step,
    indices: Sequence[c.Variable],
    source_indices: Mapping[int, c.Expression],
    *values: c.Let,
    runs: Mapping[int, tuple[int, Dim]] = MappingProxyType({}),
) -> c.Block:
    """Return the statements copying elements; along some axes, ``source_indices`` are the indices in the operand.

    The source indices are computed from the indices of the result. Everything behind the last of these axes is copied
    as a whole. ``values`` are variables used by the source indices. ``runs`` has, for some axes, the first index of
    the result with the elements of the whole axis in sequence, and their number.
    """
    source, out, result = kernel.source(step.operands[0]), kernel.target(step.result), shape_of(step.result)
    if not source_indices:
        return kernel.lower(*copy_nest(out, source, [product(result)], [1], [1]))
    along = [c.Variable(f"at{axis}") if axis in source_indices else index for axis, index in enumerate(indices)]
    lets = (*values, *(c.Let(along[axis], source_index) for axis, source_index in source_indices.items()))
    # A value is computed in the innermost loop with a used index.
    loop_of = {index: number for number, index in enumerate(indices)}
    for let in lets:
        loop_of[let.variable] = max(loop_of[item] for item in c.variables_in(let.value))
    depth = max(loop_of[let.variable] for let in lets) + 1
    run = product(result[depth:])
    strides, source_strides = (compact_strides(shape)[:depth] for shape in (result, shape_of(step.operands[0])))
    target, origin = offset_along(indices[:depth], strides), offset_along(along[:depth], source_strides)
    body = copy_run(out, target, source, origin, run)
    for axis in reversed(range(depth)):
        body = (*(let for let in lets if loop_of[let.variable] == axis), *body)
        if axis == depth - 1 and axis > 0 and axis in runs:
            first, size = runs[axis]
            to = offset_along([*indices[:axis], c.Size(first)], strides)
            from_ = offset_along([*along[:axis], c.Size(0)], source_strides)
            before, behind = (
                c.For(indices[axis], c.Size(begin), c.Size(end), body)
                for begin, end in ((0, first), (first + size, result[axis]))
            )
            body = (before, *copy_run(out, to, source, from_, size * run), behind)
        else:
            body = loops_around(body, [indices[axis]], [result[axis]], part=None if axis else 0)
    return body


def _trilu(kernel: Kernel, step: Step) -> c.Block:
    (x,) = step.operands
    *outer, rows, columns = shape_of(x)
    source, out, row, edge = kernel.source(x), kernel.target(step.result), c.Variable("row"), c.Variable("edge")
    is_upper, diagonal = flag_of(step.binding, "upper"), dim_of(step.binding, "k")
    first, last = row * columns, c.Size(columns) - edge
    crossing = row % rows + (diagonal if is_upper else diagonal + 1)
    moves: c.Block = (c.Copy(out, first, source, first, edge), c.Clear(out, first + edge, last))
    if is_upper:
        moves = (c.Copy(out, first + edge, source, first + edge, last), c.Clear(out, first, edge))
    body = (c.Let(edge, c.index_min(c.index_max(crossing, 0), columns)), *moves)
    return share_nest(kernel, [c.Axis(row, product([*outer, rows]))], body)


def _arange(kernel: Kernel, step: Step) -> c.Block:
    out, k = kernel.target(step.result), c.Variable("k")
    first, apart = (dim_of(step.binding, name) for name in ("start", "step"))
    number = c.Cast(c.Binary("+", c.Size(first), k * apart), c.CType(out.dtype))
    return share_nest(kernel, [c.Axis(k, *shape_of(step.result))], (c.Store(out, k, number),))


def _sizes(kernel: Kernel, step: Step) -> c.Block:
    """Return the stores of sizes: given sizes, the sizes of an operand, or the product of these."""
    out = kernel.target(step.result)
    sizes = dims_of(step.binding, "sizes") if step.op == "shape_to_tensor" else shape_of(step.operands[0])
    numbers = enumerate((product(sizes),) if step.op == "size" else sizes)
    return tuple(c.Store(out, c.Size(index), c.Cast(c.Size(size), c.CType(out.dtype))) for index, size in numbers)


def _reject(binding: Binding) -> Rejection | None:
    """Reject a reshape with numbers of elements not known to agree: the C code copies without checks."""
    if binding.op.name != "reshape" or not isinstance(binding.result.type, TensorType):
        return None
    return None if binding.result.type.num_elements == product(operand_shape(binding, 0)) else reject_sizes(binding)


def _require_strict(scope: FunctionScope, step: Step, shape: Sequence[Dim]) -> None:
    """Require slice bounds to lie on the axis; the type rule has refused bounds known to lie outside."""
    columns = (ints_of(step.binding, name) for name in ("axes", "strides"))
    limits = (dims_of(step.binding, name) for name in ("begin", "end"))
    for axis, stride, *bounds in zip(*columns, *limits, strict=True):
        size, room = shape[axis], int(stride < 0)
        for bound in bounds:
            if is_open_bound(bound):
                continue
            # With a negative stride the bounds of an axis are -1 to the size less 1.
            end = (bound + size if isinstance(bound, int) and bound < 0 else bound) + room
            before = [0] * (axis % len(shape))
            scope.require_at_least(
                step.op, "operand `x`, limited by the slice bounds,", [*before, size], [*before, end]
            )
            scope.require_at_least(step.op, "the offset of a slice bound", [*before, end], [*before, 0])


def _require(scope: FunctionScope, step: Step) -> None:
    """Require the sizes hidden from the type rules by symbols."""
    binding, shape, result = step.binding, shape_of(step.operands[0]), shape_of(step.binding.results[0])
    if step.op == "strided_slice" and binding.attrs["mode"] == "strict":
        _require_strict(scope, step, shape)
    elif step.op == "concat":
        along = axis_of(binding, len(shape))
        for index, dims in enumerate(map(shape_of, step.operands)):
            require_equal_sizes(scope, step, index, dims, [*result[:along], dims[along], *result[along + 1 :]])
    elif step.op == "split":
        along = axis_of(binding, len(shape))
        parts = sum((shape_of(part)[along] for part in binding.results), start=0)
        require_equal_sizes(scope, step, 0, shape, [*shape[:along], parts, *shape[along + 1 :]])
    elif step.op == "squeeze":
        removed = [shape[axis] for axis in ints_of(binding, "axis")]
        require_equal_sizes(scope, step, 0, removed, [1] * len(removed))
    elif step.op == "stack":
        for index in range(1, len(step.operands)):
            require_equal_sizes(scope, step, index, shape_of(step.operands[index]), shape)
    elif step.op == "reverse_sequence":
        batch = axis_of(binding, len(shape), "batch_axis")
        require_equal_sizes(scope, step, 1, shape_of(step.operands[1]), shape[batch : batch + 1])
    elif step.op == "nn.border_pad":
        scope.require_at_least(step.op, "operand `x`", shape, [int(any(widths)) for widths in _widths(step)])
    elif step.op == "depth_to_space":
        require_equal_sizes(scope, step, 0, shape[1:2], [result[1] * int_of(binding, "block_size") ** 2])
    elif step.op == "space_to_depth":
        require_equal_sizes(scope, step, 0, shape[2:], [size * int_of(binding, "block_size") for size in result[2:]])


_RESHAPES = dict.fromkeys(("reshape", "expand_dims", "squeeze"), _reshape)
_PIXELS = {"depth_to_space": _pixel_blocks, "space_to_depth": _pixel_blocks}
_SLICES = {"strided_slice": _strided_slice, "flip": _strided_slice, "full": _full, "tile": _tile}
_STRIDED = {**dict.fromkeys(("concat", "stack", "split"), _parts), **_SLICES, **_PIXELS}
_RULED = {"roll": _roll, "nn.border_pad": _border_pad, "reverse_sequence": _reverse_sequence, "trilu": _trilu}
_OF_SIZES = {"arange": _arange, **dict.fromkeys(("shape_of", "size", "shape_to_tensor"), _sizes)}
_write = writer_by_table({**_RESHAPES, **_STRIDED, **_RULED, **_OF_SIZES, "nn.pad": _pad})


FAMILIES = (
    KernelFamily(frozenset((*_RESHAPES, *_RULED)), _reject, _write, takes_halves=True, require=_require),
    KernelFamily(frozenset(_OF_SIZES), _reject, _write),
    KernelFamily(frozenset({"nn.pad"}), _reject, _write, takes_halves=True, reads=any_access),
    KernelFamily(
        frozenset(_STRIDED), _reject, _write, takes_halves=True, require=_require, reads=any_access, writes=any_access
    ),
)
"""Reshapes and moves by a rule; sizes; padding, with the result filled first; copies between any strides."""
