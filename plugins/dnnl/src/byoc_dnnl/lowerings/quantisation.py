"""``quantize`` and ``dequantize``: as primitives, as ends of other primitives, and as meanings of integers.

A dequantised value is not computed if all readers take the integers (:meth:`~byoc_dnnl.planner.Planner.defer`); a
dequantised constant is a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from byoc_dnnl.calls import sizes_of
from byoc_dnnl.capi import NEXT_POST_OP, Algorithm, Argument
from byoc_dnnl.lowerings.attributes import axis_of, integer
from byoc_dnnl.lowerings.functions import needs_of
from byoc_dnnl.native import extension
from byoc_dnnl.plan import ByteQuantisation
from byoc_dnnl.post_ops import PostOp, Scaling
from byoc_dnnl.reference import numpy_kernel
from byoc_dnnl.unstored_values import Quantised

if TYPE_CHECKING:
    from byoc_core.runtime.module import NDArray

    from byoc_dnnl.calls import Call
    from byoc_dnnl.handles import MemoryDesc
    from byoc_dnnl.plan import Location
    from byoc_dnnl.planner import Planner

__all__ = [
    "defer_integers",
    "has_zero_point",
    "keeps_order",
    "lower_dequantize",
    "lower_quantize",
    "parameters_of",
    "scalar_of",
    "to_bytes",
]

_Deferred = Callable[[], None]

_ZERO_POINTS = "oneDNN has a single zero point per tensor, not per index of an axis"
_FEW_CHANNELS = range(2, 5)
"""The numbers of channels supported by the extension."""
_SMALLEST, _LARGEST = 2.0**-100, 2.0**100
"""With scales between these limits no byte overflows or loses bits."""


def scalar_of(planner: Planner, id_: int) -> float | None:
    """Return the number held by a constant; ``None`` for several numbers, or for an unknown constant."""
    array = planner.array(id_)
    return float(array.reshape(())) if array is not None and array.size == 1 else None


def has_zero_point(planner: Planner, id_: int) -> bool:
    """Return whether a zero point may be another number than 0."""
    array = planner.array(id_)
    return array is None or bool(np.any(array != 0))


def _unsupported_parameters(call: Call) -> str | None:
    """Return the reason why oneDNN does not support the kind of the parameters."""
    if integer(call, "block_size"):
        return "oneDNN does not support blocks of elements with a common scale"
    x, scale, zero = call.operands
    integers, floats = (x, call.result) if call.op == "dequantize" else (call.result, x)
    if (floats.dtype, scale.dtype, zero.dtype) != ("float32", "float32", integers.dtype) or integers.dtype == "float32":
        return "the dtypes are not integers and float32"
    return None


def lower_dequantize(call: Call, planner: Planner) -> str | None:
    """Record the integers behind a value, and the computation of the value on request.

    Not taken: a zero point for each index of an axis, or of int32, except of constants; blocks of elements with a
    common scale.
    """
    arrays = [planner.array(id_) for id_ in call.inputs]
    constants = [array for array in arrays if array is not None]
    is_constant = len(constants) == len(arrays) and call.result.dtype == "float32"
    reason = _unsupported_parameters(call)
    if reason is not None or not planner.is_available(call.inputs[0]):
        if is_constant:  # of 4 bits, in blocks
            planner.defer(call.output, None, _constant(call, planner, constants))
            return None
        return reason or f"oneDNN has no dtype {call.operands[0].dtype}"
    x, scale, zero = call.inputs
    quantised = Quantised(x, planner.stored_location(x), scale, zero, axis_of(call) if call.operands[1].shape else None)
    if is_constant:
        planner.defer(call.output, quantised, _constant(call, planner, constants))
        return None
    if quantised.axis is not None and has_zero_point(planner, zero):
        return _ZERO_POINTS
    if quantised.location.desc.dtype == "int32" and has_zero_point(planner, zero):
        return "oneDNN rounds int32 numbers before subtracting a zero point"
    return defer_integers(call.output, planner, quantised)


def defer_integers(id_: int, planner: Planner, quantised: Quantised) -> str | None:
    """Record the integers behind a value and its computation; or return the reason why oneDNN cannot compute it."""
    source = quantised.location
    target = source.desc.cast(planner.engine, "float32") or planner.row_major(source.desc.sizes)
    has_zero = quantised.axis is None and has_zero_point(planner, quantised.zero_point)
    mask = 0 if quantised.axis is None else 1 << quantised.axis
    scaling = Scaling({Argument.SRC: mask}, (Argument.SRC,) if has_zero else ())
    primitive = planner.factory.conversion(source.desc, target, scaling)
    if primitive is None or not planner.accepts(primitive):
        return "oneDNN has no implementation"

    def compute() -> None:
        arguments = {Argument.SRC: source, Argument.SCALES | Argument.SRC: planner.row_major_location(quantised.scale)}
        if has_zero:
            arguments[Argument.ZERO_POINTS | Argument.SRC] = planner.row_major_location(quantised.zero_point, "int32")
        planner.add_step("dequantize", primitive, {**arguments, Argument.DST: planner.allocate_result(id_, target)})

    planner.defer(id_, quantised, compute)
    return None


def keeps_order(planner: Planner, quantised: Quantised) -> bool:
    """Return whether larger integers mean larger or equal numbers, in the whole tensor."""
    scale = scalar_of(planner, quantised.scale)
    return quantised.axis is None and scale is not None and _is_usual(np.asarray(scale))


def _constant(call: Call, planner: Planner, arrays: Sequence[NDArray]) -> _Deferred:
    def dequantised() -> NDArray:
        return np.asarray(numpy_kernel(call.op)(*arrays, **call.attrs))

    digests = (planner.digest(id_) for id_ in call.inputs)
    digest = " ".join(["dequantised", *digests, *(str(call.attrs[name]) for name in ("axis", "block_size"))])
    return lambda: planner.set_constant(call.output, digest, dequantised)


def lower_quantize(call: Call, planner: Planner) -> str | None:
    """Add a division by the scale, rounded when integers are written.

    Not taken: scales and zero points of an axis that are no constants; zero points that differ along an axis; blocks of
    elements with a common scale.
    """
    reason = _unsupported_parameters(call)
    if reason is not None:
        return reason
    _, scale, zero = call.inputs
    scales, zeros = planner.array(scale), planner.array(zero)
    if scales is None or zeros is None:
        if call.operands[1].shape:
            return "the scales and zero points are not constant"
        return _add_by_operands(call, planner)
    if not _is_usual(scales):
        return f"the scale is not between {_SMALLEST:.0e} and {_LARGEST:.0e}"
    if zeros.size and zeros.min() != zeros.max():
        return _ZERO_POINTS
    if _stays(call, planner) or _writes_channels_last(call, planner):
        return None
    sizes = sizes_of(call.operands[0])
    axis = axis_of(call) if call.operands[1].shape else None
    divisor = planner.row_major(tuple(size if index == axis else 1 for index, size in enumerate(sizes)))
    return _add_division(call, planner, divisor, _shifted(int(zeros.reshape(-1)[0])))


def _add_by_operands(call: Call, planner: Planner) -> str | None:
    """Add a division by a scale known only at run time, with a zero point also known only at run time.

    The quotient is rounded as in the reference kernel, and the sum saturates when written.
    """
    scalar = planner.row_major((1,) * len(sizes_of(call.operands[0])))
    post_ops = [PostOp(Algorithm.ELTWISE_ROUND), PostOp(Algorithm.BINARY_ADD, operand=scalar)]
    return _add_division(call, planner, scalar, post_ops, zero_desc=scalar)


def _add_division(
    call: Call, planner: Planner, divisor: MemoryDesc, post_ops: Sequence[PostOp], zero_desc: MemoryDesc | None = None
) -> str | None:
    """Add the division by the scale, in the operand's first layout with an implementation in oneDNN.

    Args:
        call: the quantisation.
        planner: gets the step.
        divisor: the scale as seen by the division.
        post_ops: applied to the quotient.
        zero_desc: the zero point as seen by the last post-op; ``None`` if no post-op reads the zero point.
    """
    x, scale, zero = call.inputs
    needs = needs_of(call)
    if planner.find_checks(needs, [x]) is None:
        return "oneDNN needs finite operands"
    for location in planner.candidate_locations(x):
        target = location.desc.cast(planner.engine, call.result.dtype)
        primitive = target and planner.factory.binary(Algorithm.BINARY_DIV, location.desc, divisor, post_ops, target)
        if primitive and target and planner.accepts(primitive):
            planner.check(needs, [x])
            arguments: dict[int, Location] = {
                Argument.SRC: location,
                Argument.SRC_1: planner.row_major_location(scale).view_as(divisor),
            }
            if zero_desc is not None:
                zero_point = planner.row_major_location(zero, "float32").view_as(zero_desc)
                arguments[Argument.POST_OP_SRC_1 + NEXT_POST_OP] = zero_point
            arguments[Argument.DST] = planner.allocate_result(call.output, target)
            planner.add_step(call.op, primitive, arguments)
            return None
    return "oneDNN has no implementation"


def _stays(call: Call, planner: Planner) -> bool:
    """Set the result to the integers before dequantisation, if scale and zero point are equal; return whether so."""
    x, scale, zero = call.inputs
    source = planner.quantised(x)
    if source is None or source.axis is not None or source.location.desc.dtype != call.result.dtype:
        return False
    for first, second in ((scale, source.scale), (zero, source.zero_point)):
        number = scalar_of(planner, first)
        if number is None or number != scalar_of(planner, second):
            return False
    planner.set_location(call.output, source.location)
    return True


def _writes_channels_last(call: Call, planner: Planner) -> bool:
    """Add the division by the extension, if convolutions read an image of a few channels; return whether so.

    oneDNN has convolutions of bytes with channels last only.
    """
    x, sizes, parameters = call.inputs[0], sizes_of(call.operands[0]), parameters_of(call, planner)
    if parameters is None or extension() is None or call.result.dtype not in ("int8", "uint8"):
        return False
    if len(sizes) < 3 or sizes[1] not in _FEW_CHANNELS or not _is_for_convolutions(call, planner):
        return False
    source = planner.stored_location(x)
    if source.desc.dtype != "float32" or not source.desc.is_row_major():
        return False
    target = planner.allocate_result(call.output, planner.channels_last(sizes, call.result.dtype))
    scale, zero_point = parameters
    planner.add_kernel(ByteQuantisation(call.op, source, target, scale, int(zero_point)))
    return True


def _is_for_convolutions(call: Call, planner: Planner) -> bool:
    """Return whether only convolutions of images with channels first read the bytes, or the bytes dequantised."""
    readers = planner.graph.readers(call.output)
    nested = [planner.graph.readers(reader.output) if reader.op == "dequantize" else (reader,) for reader in readers]
    convolutions = [
        reader.op.startswith("nn.conv") and str(reader.attrs["data_layout"]).startswith("NC")
        for group in nested
        for reader in group
    ]
    return bool(convolutions) and all(convolutions) and not planner.graph.is_result(call.output)


def _shifted(zero: int) -> list[PostOp]:
    """Return post-ops that round and add a zero point; writing an integer rounds by itself."""
    if zero == 0:
        return []
    return [PostOp(Algorithm.ELTWISE_ROUND), PostOp(Algorithm.ELTWISE_LINEAR, 1.0, beta=float(zero))]


def to_bytes(call: Call, planner: Planner, unit: float = 1.0) -> tuple[PostOp, ...] | None:
    """Return ``quantize`` as the end of another primitive, with multiplication by the reciprocal of the scale.

    The result equals exact arithmetic, or a neighbour if the quotient is within rounding errors of float32 of a tie.
    The primitive rounds and saturates when it writes the bytes. ``None`` for parameters not supported as post-ops.

    Args:
        call: the ``quantize``.
        planner: the plan.
        unit: the meaning of 1 in the results of the primitive so far.
    """
    parameters = parameters_of(call, planner)
    if parameters is None:
        return None
    scale, zero = parameters
    factor = float(np.float32(unit) / np.float32(scale))
    scaled = [] if factor == 1 else [PostOp(Algorithm.ELTWISE_LINEAR, factor)]
    return (*scaled, *_shifted(int(zero)))


def parameters_of(call: Call, planner: Planner) -> tuple[float, float] | None:
    """Return scale and zero point of ``quantize`` or ``dequantize``; ``None`` unless both are single known numbers."""
    if _unsupported_parameters(call) is not None or call.operands[1].shape:
        return None
    scale, zero = (scalar_of(planner, id_) for id_ in call.inputs[1:])
    if scale is None or zero is None or not _is_usual(np.asarray(scale)):
        return None
    return scale, zero


def _is_usual(scales: NDArray) -> bool:
    return bool(np.all((scales >= _SMALLEST) & (scales <= _LARGEST)))
