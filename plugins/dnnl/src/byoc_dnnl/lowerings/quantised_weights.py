"""Products of rows of floats by constant weights of 4 or 8 bits, computed on the weights by the extension.

oneDNN 3.2 multiplies floats by floats only, so the weights would be stored as floats. Where this product is not
possible, weights are dequantised when the plan is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from byoc_dnnl.calls import shape_of, sizes_of
from byoc_dnnl.capi import Isa
from byoc_dnnl.derived_constants import ParameterPanels, WeightPanels
from byoc_dnnl.lowerings.attributes import axis_of, integer, integers
from byoc_dnnl.native import extension
from byoc_dnnl.plan import WeightProduct

if TYPE_CHECKING:
    from byoc_core.runtime.module import NDArray

    from byoc_dnnl.calls import Call
    from byoc_dnnl.planner import Planner

__all__ = ["add_quantised_product"]

_NUM_BITS = {"int4": 4, "uint4": 4, "int8": 8, "uint8": 8}
"""The bits of a weight, by dtype."""

_LARGEST = 2.0**100
"""The largest magnitude of an element of a row: the sum of a block is at most 2**27 times as large."""

_MOST_STEPS = 1 << 18
"""The most steps of a block: a difference of a weight and its zero point is at most 2**8."""


@dataclass(frozen=True, slots=True)
class _Weights:
    """The weights of a product: the ``dequantize`` of constants, and the axis of the weights along the sums."""

    dequantize: Call
    depth_axis: int

    @property
    def dtype(self) -> str:
        """The dtype of the integers."""
        return self.dequantize.operands[0].dtype

    @property
    def centre(self) -> int:
        """Half of the range of integers without a sign, else 0."""
        return 1 << (_NUM_BITS[self.dtype] - 1) if self.dtype.startswith("uint") else 0


def add_quantised_product(call: Call, planner: Planner) -> str | None:
    """Add ``nn.dense`` or ``matmul`` by dequantised constants of two axes, or return the reason against it."""
    weights = _find_weights(call, planner)
    if weights is None or extension() is None:
        return "the right operand is no matrix of quantised constants"
    if call.operands[0].dtype != "float32" or call.result.dtype != "float32":
        return "the dtypes are not float32"
    arrays = [planner.array(id_) for id_ in weights.dequantize.inputs]
    reason = _unsupported(weights, arrays)
    if reason is not None:
        return reason
    x = call.inputs[0]
    needs = [(x, _LARGEST)]
    if planner.find_checks(needs, [x]) is None:
        return "the magnitudes of the rows are unknown"
    planner.check(needs, [x])
    _add(call, planner, weights, has_zeros=bool(np.any(np.asarray(arrays[2]).astype(np.int16) != weights.centre)))
    return None


def _find_weights(call: Call, planner: Planner) -> _Weights | None:
    """Return the weights behind the right operand of a product; transposes between are allowed."""
    depth_axis = 1 if call.op == "nn.dense" else 0
    maker = planner.graph.maker(call.inputs[1])
    while maker is not None and maker.op == "permute_dims" and len(maker.result.shape) == 2:
        axes = (1, 0) if maker.attrs.get("axes") is None else integers(maker, "axes", 2)
        depth_axis = depth_axis if axes[0] % 2 == 0 else 1 - depth_axis
        maker = planner.graph.maker(maker.inputs[0])
    is_matrix = maker is not None and maker.op == "dequantize" and len(maker.result.shape) == 2
    return _Weights(maker, depth_axis) if maker is not None and is_matrix else None


def _unsupported(weights: _Weights, arrays: list[NDArray | None]) -> str | None:
    """Return the reason against weights."""
    call = weights.dequantize
    sizes, parameters, block_size = sizes_of(call.operands[0]), shape_of(call.operands[1]), integer(call, "block_size")
    if weights.dtype not in _NUM_BITS or call.result.dtype != "float32":
        return "the weights are not of 4 or 8 bits"
    for array, tensor in zip(arrays, call.operands, strict=True):
        if array is None or array.shape != shape_of(tensor):
            return "the weights are not constant"
    if 0 in sizes:
        return "the weights are empty"
    if parameters and (axis_of(call) == weights.depth_axis) != (block_size > 0):
        return "the scales change along the sums without blocks, or are in blocks along the columns"
    if (block_size or sizes[weights.depth_axis]) > _MOST_STEPS:
        return "a block is too long"
    with np.errstate(over="ignore"):
        is_finite = np.isfinite(np.asarray(arrays[1]) * np.float32(2**8)).all()
    return None if is_finite else "a scale makes weights beyond the range of float32"


def _add(call: Call, planner: Planner, weights: _Weights, *, has_zeros: bool) -> None:
    dequantize, depth_axis = weights.dequantize, weights.depth_axis
    first, second = sizes_of(dequantize.operands[0])
    depth, columns = (first, second) if depth_axis == 0 else (second, first)
    block_size = min(integer(dequantize, "block_size") or depth, depth)
    num_bits = _NUM_BITS[weights.dtype]
    integers_, scale, zero = dequantize.inputs
    words = WeightPanels((first, second), depth_axis, num_bits, weights.centre, block_size)
    parameters = shape_of(dequantize.operands[1])
    scales = ParameterPanels(parameters, depth_axis, columns)
    zeros = ParameterPanels(parameters, depth_axis, columns, weights.centre)
    planner.add_kernel(
        WeightProduct(
            call.op,
            planner.row_major_location(call.inputs[0], "float32"),
            planner.allocate_result(call.output, planner.row_major(sizes_of(call.result))),
            planner.derived_constant(integers_, words, "int32"),
            planner.derived_constant(scale, scales, "float32"),
            planner.derived_constant(zero, zeros, "int8") if has_zeros else None,
            prod(sizes_of(call.operands[0])[:-1]),
            depth,
            columns,
            block_size,
            num_bits,
            _max_lanes(planner.engine.isa),
        )
    )


def _max_lanes(isa: int) -> int:
    """Return the floats of a vector in instructions used by oneDNN, which the user may limit."""
    return next((lanes for lanes, needed in ((16, Isa.AVX512_CORE), (8, Isa.AVX2)) if isa & needed == needed), 4)
