"""Faults of ``byoc-dnnl`` not shown by single ops in usual sizes: evidence."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from byoc_core.dims import symbol
from byoc_core.dtypes import to_numpy

from conformance.tests.planted_faults.witness import Draft, Draw, Witness

__all__ = ["WITNESSES_OF_DNNL"]


def _overhanging_mean(draft: Draft) -> Witness:
    x = draft.param(1, 16, 9, 8)
    attrs = {"pool_size": (2, 2), "strides": (2, 2), "ceil_mode": True, "count_include_pad": True}
    return Witness([draft.op("nn.avg_pool2d", x, **attrs)], [[draft.normal(1, 16, 9, 8)]])


def _uneven_dilation(draft: Draft) -> Witness:
    x = draft.param(1, 16, 9, 8)
    return Witness([draft.op("nn.max_pool2d", x, pool_size=(2, 2), dilation=(2, 1))], [[draft.normal(1, 16, 9, 8)]])


def _nan_in_a_window(draft: Draft) -> Witness:
    array = draft.normal(1, 16, 8, 8)
    array[0, 3, 2, 2] = np.nan
    return Witness([draft.op("nn.max_pool2d", draft.param(1, 16, 8, 8), pool_size=(2, 2))], [[array]])


def _small_epsilon(draft: Draft) -> Witness:
    x, parameters = draft.param(2, 5, 16), [draft.const(draft.normal(16)) for _ in range(2)]
    result = draft.op("nn.layer_norm", x, *parameters, axes=(2,), epsilon=1e-12)
    return Witness([result], [[draft.normal(2, 5, 16) * np.float32(1e-3)]])


def _nan_in_a_row(draft: Draft) -> Witness:
    array = draft.normal(3, 17)
    array[1, 4] = np.nan
    return Witness([draft.op("nn.softmax", draft.param(3, 17), axis=1)], [[array]])


def _row_behind_a_convolution(draft: Draft) -> Witness:
    x = draft.param(1, 4, 8, 8)
    y = draft.op("nn.conv2d", x, draft.const(draft.normal(8, 4, 3, 3)), padding=(1, 1, 1, 1))
    return Witness([draft.op("add", y, draft.const(draft.normal(8)))], [[draft.normal(1, 4, 8, 8)]])


def _two_slopes(draft: Draft) -> Witness:
    x, weight = draft.param(1, 16, 8, 8), draft.const(draft.normal(16, 16, 3, 3))
    results = [
        draft.op("nn.leaky_relu", draft.op("nn.conv2d", x, weight, padding=(1, 1, 1, 1)), alpha=slope)
        for slope in (0.1, 0.3)
    ]
    return Witness(results, [[draft.normal(1, 16, 8, 8)]])


def _size_of_the_second_input(draft: Draft) -> Witness:
    x, y = draft.param(4, 16), draft.param(16, symbol("n"))
    calls = [[draft.normal(4, 16), draft.normal(16, size)] for size in (9, 5)]
    return Witness([draft.op("matmul", x, y)], calls)


def _reduction_of_a_permutation(draft: Draft) -> Witness:
    moved = draft.op("permute_dims", draft.param(3, 5, 7, 4), axes=(1, 0, 2, 3))
    return Witness([draft.op("sum", moved, axis=(3,))], [[draft.normal(3, 5, 7, 4)]])


def _bound_before_the_axis(draft: Draft) -> Witness:
    x = draft.param(4, 6)
    attrs = {"axes": (1,), "begin": (-9,), "end": (2,), "strides": (1,)}
    return Witness([draft.op("strided_slice", x, **attrs)], [[draft.normal(4, 6)]])


def _row_of_each_matrix(draft: Draft) -> Witness:
    x, row = draft.param(2, 16, 1024), draft.param(2, 1, 1024)
    y = draft.op("nn.dense", x, draft.const(draft.normal(1024, 1024)))
    return Witness([draft.op("add", y, row)], [[draft.normal(2, 16, 1024), draft.normal(2, 1, 1024)]])


def _ties(draft: Draft) -> Witness:
    x = draft.param(2, 16)
    result = draft.op("quantize", x, draft.const(np.float32(1)), draft.const(np.int8(1)))
    return Witness([result], [[np.arange(-15.5, 16.5, dtype=np.float32).reshape(2, 16)]], is_exact=True)


def _scales_along_the_sums(draft: Draft) -> Witness:
    x, weight = draft.param(4, 16, dtype="uint8"), draft.const(draft.integers(-100, 100, (16, 16), "int8"))
    left = draft.dequantised(x, 0.5, 3, "uint8")
    right = draft.dequantised(weight, draft.positive(16), np.zeros(16), "int8")
    return Witness([draft.op("matmul", left, right)], [[draft.integers(0, 200, (4, 16), "uint8")]])


def _two_zero_points(draft: Draft) -> Witness:
    shape = (1, 8, 4, 4)
    terms = [draft.dequantised(draft.param(*shape, dtype="uint8"), 0.5, zero, "uint8") for zero in (3, 90)]
    result = draft.op("quantize", draft.op("add", *terms), draft.const(np.float32(1)), draft.const(np.uint8(7)))
    return Witness([result], [[draft.integers(0, 200, shape, "uint8") for _ in range(2)]])


def _reverse_layer(draft: Draft) -> Witness:
    shapes = ((1, 16, 3), (1, 16, 4), (1, 32), (1, 2, 4), (1, 2, 4))
    constants = [draft.const(draft.normal(*shape)) for shape in shapes]
    return Witness(
        draft.ops("nn.lstm", draft.param(5, 2, 3), *constants, direction="reverse"), [[draft.normal(5, 2, 3)]]
    )


def _narrow_relu_before_a_product(draft: Draft) -> Witness:
    dtype = to_numpy("bfloat16")
    x, factor = draft.param(4, 16, dtype="bfloat16"), draft.param(8, dtype="bfloat16")
    y = draft.op("nn.relu", draft.op("nn.dense", x, draft.const(draft.normal(8, 16).astype(dtype))))
    return Witness(
        [draft.op("multiply", y, factor)], [[draft.normal(4, 16).astype(dtype), draft.normal(8).astype(dtype)]]
    )


def _integers_to_bytes(draft: Draft) -> Witness:
    x = draft.param(2, 8, dtype="int32")
    return Witness([draft.op("cast", x, dtype="int8")], [[draft.integers(-1000, 1000, (2, 8), "int32")]])


def _flattened_image(draft: Draft) -> Witness:
    x = draft.param(2, 16, 6, 7)
    y = draft.op("nn.conv2d", x, draft.const(draft.normal(16, 16, 3, 3)), padding=(1, 1, 1, 1))
    rows = draft.op("reshape", y, shape=(2, 16 * 42))
    return Witness([draft.op("nn.dense", rows, draft.const(draft.normal(8, 16 * 42)))], [[draft.normal(2, 16, 6, 7)]])


def _nan_in_an_image(draft: Draft) -> Witness:
    array = draft.normal(1, 3, 16, 16)
    array[0, 1, 7, 7] = np.nan
    weight = draft.const(draft.normal(2, 3, 3, 3))
    return Witness([draft.op("nn.conv2d", draft.param(1, 3, 16, 16), weight, padding=(1, 1, 1, 1))], [[array]])


WITNESSES_OF_DNNL: Mapping[str, Draw] = {
    "dnnl-avg-pool-counts-one-overhang": _overhanging_mean,
    "dnnl-pool-dilation-of-last-axis": _uneven_dilation,
    "dnnl-max-pool-loses-nan": _nan_in_a_window,
    "dnnl-layer-norm-epsilon-has-a-floor": _small_epsilon,
    "dnnl-softmax-nan-stays-in-one-place": _nan_in_a_row,
    "dnnl-conv-bias-along-the-width": _row_behind_a_convolution,
    "dnnl-kept-primitive-of-another-slope": _two_slopes,
    "dnnl-program-of-the-first-input-shape": _size_of_the_second_input,
    "dnnl-reduction-result-lies-row-major": _reduction_of_a_permutation,
    "dnnl-slice-begin-wraps": _bound_before_the_axis,
    "dnnl-transposed-product-takes-any-row": _row_of_each_matrix,
    "dnnl-quantize-rounds-behind-the-zero-point": _ties,
    "dnnl-byte-weights-scaled-along-any-axis": _scales_along_the_sums,
    "dnnl-quantised-sum-has-one-zero-point": _two_zero_points,
    "dnnl-reverse-layer-runs-forwards": _reverse_layer,
    "dnnl-post-op-operand-of-another-number": _narrow_relu_before_a_product,
    "dnnl-cast-to-bytes-saturates": _integers_to_bytes,
    "dnnl-flattened-weights-by-the-inverse-order": _flattened_image,
    "dnnl-pixels-share-a-nan": _nan_in_an_image,
}
"""By the name of the fault."""
