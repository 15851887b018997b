"""The laws between a call's operands, attributes and results: what the shapes of the results have to be.

A document may come from a file, and oneDNN believes its numbers. Every call of a plan is held against the law of its op
before any lowering reads it: no attribute reaches oneDNN that the declared shapes do not bear out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from byoc_core.errors import ArtifactError

from byoc_dnnl.calls import shape_of
from byoc_dnnl.lowerings.attributes import (
    axis_of,
    choice,
    distinct_axes,
    flag,
    integer,
    integers,
    require_operand,
    require_rank,
    require_result,
)
from byoc_dnnl.lowerings.core_functions import CORE_FUNCTIONS
from byoc_dnnl.lowerings.epilogue import BINARIES
from byoc_dnnl.lowerings.functions import FUNCTIONS
from byoc_dnnl.lowerings.recurrence import NUM_STATES, recurrence_shapes
from byoc_dnnl.lowerings.reduction import REDUCTIONS
from byoc_dnnl.lowerings.window_laws import (
    adaptive_pooling_shape,
    convolution_shape,
    deconvolution_shape,
    pooling_shape,
)

if TYPE_CHECKING:
    from byoc_dnnl.calls import Call

__all__ = ["LAWS", "require_law"]

Shape = tuple[int, ...]
Law = Callable[["Call"], Sequence[Shape]]
"""Return the shapes of a call's results, from its operands and attributes.

Raises:
    ArtifactError: the operands and attributes do not fit one another.
"""


def require_law(call: Call) -> None:
    """Check that the results of a call have the shapes that its operands and attributes give them.

    A call of symbolic sizes, or of an op without a lowering, is left alone: no primitive is made for it.

    Raises:
        ArtifactError: they have others; only a document from a file can say so.
    """
    law = LAWS.get(call.op)
    if law is None or any(
        not isinstance(dim, int) for tensor in (*call.operands, *call.results) for dim in tensor.shape
    ):
        return
    shapes = law(call)
    if len(shapes) != len(call.results):
        raise ArtifactError(
            f"`{call.op}`", "has a wrong number of results", got=len(call.results), expected=len(shapes)
        )
    for index, shape in enumerate(shapes):
        require_result(call, shape, index)


def _misfit(call: Call, problem: str) -> ArtifactError:
    got = ", ".join(map(str, call.operands))
    return ArtifactError(f"`{call.op}`", problem, got=got)


def _first(call: Call) -> Shape:
    return shape_of(call.operands[0])


def _shape_of_first(call: Call) -> Sequence[Shape]:
    return [_first(call)]


def _along_axis(call: Call) -> Sequence[Shape]:
    axis_of(call)
    return [_first(call)]


def _broadcast(call: Call, *shapes: Shape) -> Shape:
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    result = tuple(next((size for size in sizes if size != 1), 1) for sizes in zip(*padded, strict=True))
    if any(size not in (1, wanted) for shape in padded for size, wanted in zip(shape, result, strict=True)):
        raise _misfit(call, "has operands that cannot be repeated to one another")
    return result


def _binary(call: Call) -> Sequence[Shape]:
    return [_broadcast(call, *map(shape_of, call.operands))]


def _bias(call: Call) -> Sequence[Shape]:
    require_operand(call, 1, [_first(call)[axis_of(call)]])
    return [_first(call)]


def _reduction(call: Call) -> Sequence[Shape]:
    shape = _first(call)
    gone = range(len(shape)) if call.attrs.get("axis") is None else distinct_axes(call, "axis", len(shape))
    if flag(call, "keepdims"):
        return [tuple(1 if axis in gone else size for axis, size in enumerate(shape))]
    return [tuple(size for axis, size in enumerate(shape) if axis not in gone)]


def _reshape(call: Call) -> Sequence[Shape]:
    wanted, total = integers(call, "shape"), prod(_first(call))
    rest = prod(size for size in wanted if size != -1)
    if -1 in wanted and rest:
        wanted = tuple(total // rest if size == -1 else size for size in wanted)
    if -1 in wanted and total == 0 == rest:
        return [shape_of(call.result)]  # of an empty tensor, any size in place of -1 is right
    if -1 in wanted or prod(wanted) != total:
        raise _misfit(call, f"has another number of elements than {list(wanted)}")
    return [wanted]


def _squeeze(call: Call) -> Sequence[Shape]:
    shape = _first(call)
    gone: Sequence[int] = [axis for axis, size in enumerate(shape) if size == 1]
    if call.attrs.get("axis") is not None:
        gone = distinct_axes(call, "axis", len(shape))
        if any(shape[axis] != 1 for axis in gone):
            raise _misfit(call, "takes away an axis of more than one element")
    return [tuple(size for axis, size in enumerate(shape) if axis not in gone)]


def _expand_dims(call: Call) -> Sequence[Shape]:
    shape = _first(call)
    rank = len(shape) + len(integers(call, "axis"))
    new, rest = distinct_axes(call, "axis", rank), iter(shape)
    return [tuple(1 if axis in new else next(rest) for axis in range(rank))]


def _matmul(call: Call) -> Sequence[Shape]:
    left, right = map(shape_of, call.operands)
    if not left or not right or left[-1] != right[max(len(right) - 2, 0)]:
        raise _misfit(call, "multiplies matrices that do not fit one another")
    columns = right[-1:] if len(right) > 1 else ()
    return [(*_broadcast(call, left[:-2], right[:-2]), *left[-2:-1], *columns)]


def _dense(call: Call) -> Sequence[Shape]:
    left, right = map(shape_of, call.operands)
    if not left or len(right) != 2 or left[-1] != right[1]:
        raise _misfit(call, "multiplies matrices that do not fit one another")
    return [(*left[:-1], right[0])]


def _batch_norm(call: Call) -> Sequence[Shape]:
    return _with_parameters(call, [_first(call)[axis_of(call)]])


def _norm_over_axes(call: Call) -> Sequence[Shape]:
    shape = _first(call)
    axes = distinct_axes(call, "axes", len(shape))
    return _with_parameters(call, [shape[axis] for axis in axes])


def _norm_of_channels(call: Call) -> Sequence[Shape]:
    require_rank(call, 2)
    return _with_parameters(call, [_first(call)[1]])


def _group_norm(call: Call) -> Sequence[Shape]:
    groups = integer(call, "groups")
    result = _norm_of_channels(call)
    if groups < 1 or _first(call)[1] % groups:
        raise _misfit(call, f"has {groups} groups, which do not divide its channels")
    return result


def _with_parameters(call: Call, sizes: Sequence[int]) -> Sequence[Shape]:
    for index in range(1, len(call.operands)):
        require_operand(call, index, sizes)
    return [_first(call)]


def _lrn(call: Call) -> Sequence[Shape]:
    require_rank(call, 2)
    if integer(call, "size") < 1:
        raise _misfit(call, "has a window without channels")
    return [_first(call)]


def _quantisation(call: Call) -> Sequence[Shape]:
    shape, scale = _first(call), shape_of(call.operands[1])
    if integer(call, "block_size"):
        return [shape]  # no lowering takes blocks
    for index in (1, 2):
        require_operand(call, index, [shape[axis_of(call)]] if scale else [])
    return [shape]


def _concat(call: Call) -> Sequence[Shape]:
    shapes, axis = list(map(shape_of, call.operands)), axis_of(call)
    first = shapes[0]
    if any((*shape[:axis], *shape[axis + 1 :]) != (*first[:axis], *first[axis + 1 :]) for shape in shapes):
        raise _misfit(call, "joins tensors that differ along other axes")
    return [(*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])]


def _stack(call: Call) -> Sequence[Shape]:
    shapes = list(map(shape_of, call.operands))
    if len(set(shapes)) != 1:
        raise _misfit(call, "joins tensors of different sizes")
    (axis,) = distinct_axes(call, "axis", len(shapes[0]) + 1, [integer(call, "axis")])
    return [(*shapes[0][:axis], len(shapes), *shapes[0][axis:])]


def _permute_dims(call: Call) -> Sequence[Shape]:
    shape = _first(call)
    if call.attrs.get("axes") is None:
        return [shape[::-1]]
    axes = distinct_axes(call, "axes", len(shape))
    if len(axes) != len(shape):
        raise _misfit(call, "does not name each axis once")
    return [tuple(shape[axis] for axis in axes)]


def _broadcast_to(call: Call) -> Sequence[Shape]:
    wanted = integers(call, "shape")
    if _broadcast(call, _first(call), wanted) != wanted:
        raise _misfit(call, f"cannot be repeated to {list(wanted)}")
    return [wanted]


def _tile(call: Call) -> Sequence[Shape]:
    shape = _first(call)
    repeats = integers(call, "repeats", len(shape))
    return [tuple(size * count for size, count in zip(shape, repeats, strict=True))]


def _depth_to_space(call: Call) -> Sequence[Shape]:
    require_rank(call, 4, 4)
    (images, channels, height, width), block = _first(call), _block(call)
    if channels % (block * block):
        raise _misfit(call, f"has blocks of {block}, which do not divide its channels")
    return [(images, channels // (block * block), height * block, width * block)]


def _space_to_depth(call: Call) -> Sequence[Shape]:
    require_rank(call, 4, 4)
    (images, channels, height, width), block = _first(call), _block(call)
    if height % block or width % block:
        raise _misfit(call, f"has blocks of {block}, which do not divide its height and width")
    return [(images, channels * block * block, height // block, width // block)]


def _block(call: Call) -> int:
    block = integer(call, "block_size")
    if block < 1:
        raise _misfit(call, "has blocks without elements")
    return block


def _resize(call: Call) -> Sequence[Shape]:
    shape = list(_first(call))
    axes = distinct_axes(call, "axes", len(shape))
    for axis, size in zip(axes, integers(call, "sizes", len(axes)), strict=True):
        shape[axis] = size
    return [tuple(shape)]


def _roll(call: Call) -> Sequence[Shape]:
    integers(call, "shift", len(distinct_axes(call, "axis", len(_first(call)))))
    return [_first(call)]


def _split(call: Call) -> Sequence[Shape]:
    shape, axis, lengths = _first(call), axis_of(call), integers(call, "sections")
    if sum(lengths) != shape[axis] or any(length < 0 for length in lengths):
        raise _misfit(call, f"has parts that do not make up axis {axis}")
    return [(*shape[:axis], length, *shape[axis + 1 :]) for length in lengths]


def _strided_slice(call: Call) -> Sequence[Shape]:
    shape = list(_first(call))
    axes = distinct_axes(call, "axes", len(shape))
    choice(call, "mode", ("clip", "strict"))
    bounds = [integers(call, name, len(axes)) for name in ("begin", "end", "strides")]
    for axis, begin, end, step in zip(axes, *bounds, strict=True):
        if step == 0:
            raise _misfit(call, "has a step of 0")
        shape[axis] = _num_slices(shape[axis], begin, end, step)
    return [tuple(shape)]


def _num_slices(size: int, begin: int, end: int, step: int) -> int:
    first, last = (bound + size if bound < 0 else bound for bound in (begin, end))
    if step > 0:
        return len(range(min(max(first, 0), size), min(max(last, 0), size), step))
    return len(range(min(max(first, 0), size - 1), min(max(last, -1), size - 1), step))


LAWS: Mapping[str, Law] = {
    **dict.fromkeys([*FUNCTIONS, *CORE_FUNCTIONS, "nn.softsign", "cast"], _shape_of_first),
    **dict.fromkeys([*BINARIES, "nn.prelu"], _binary),
    "nn.bias_add": _bias,
    **dict.fromkeys([f"nn.conv{rank}d" for rank in (1, 2, 3)], lambda call: [convolution_shape(call)]),
    **dict.fromkeys([f"nn.conv{rank}d_transpose" for rank in (1, 2, 3)], lambda call: [deconvolution_shape(call)]),
    **dict.fromkeys(
        [f"nn.{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3)], lambda call: [pooling_shape(call)]
    ),
    **dict.fromkeys(
        [f"nn.adaptive_{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3)],
        lambda call: [adaptive_pooling_shape(call)],
    ),
    **dict.fromkeys(REDUCTIONS, _reduction),
    **dict.fromkeys(["nn.softmax", "nn.log_softmax"], _along_axis),
    "reshape": _reshape,
    "squeeze": _squeeze,
    "expand_dims": _expand_dims,
    "matmul": _matmul,
    "nn.dense": _dense,
    "nn.batch_norm": _batch_norm,
    **dict.fromkeys(["nn.layer_norm", "nn.rms_norm"], _norm_over_axes),
    "nn.group_norm": _group_norm,
    "nn.instance_norm": _norm_of_channels,
    "nn.lrn": _lrn,
    **dict.fromkeys(["quantize", "dequantize"], _quantisation),
    "concat": _concat,
    "stack": _stack,
    "permute_dims": _permute_dims,
    **dict.fromkeys(NUM_STATES, recurrence_shapes),
    "broadcast_to": _broadcast_to,
    "tile": _tile,
    "depth_to_space": _depth_to_space,
    "space_to_depth": _space_to_depth,
    "nn.resize": _resize,
    "roll": _roll,
    "split": _split,
    "strided_slice": _strided_slice,
}
"""The law of each op with a lowering."""
