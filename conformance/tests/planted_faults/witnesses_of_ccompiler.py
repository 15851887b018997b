"""Faults of ``byoc-ccompiler`` not shown by single ops in usual sizes: evidence."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from byoc_core.dims import symbol

from conformance.tests.planted_faults.witness import Draft, Draw, Witness

__all__ = ["WITNESSES_OF_CCOMPILER"]


def _many_channels(draft: Draft) -> Witness:
    result = draft.op("nn.max_pool2d", draft.param(1, 5, 5, 300), pool_size=(2, 2), layout="NHWC")
    return Witness([result], [[draft.normal(1, 5, 5, 300)]])


def _several_nan(draft: Draft) -> Witness:
    array = draft.normal(3, 9)
    array[1, [2, 6]] = np.nan
    return Witness([draft.op("argmax", draft.param(3, 9), axis=1)], [[array]])


def _long_lines(draft: Draft) -> Witness:
    """Enough elements for several threads."""
    return Witness([draft.op("sort", draft.param(256, 4096), axis=1)], [[draft.normal(256, 4096)]] * 3)


def _indices_out_of_range(draft: Draft) -> Witness:
    result = draft.op("take", draft.param(4, 3), draft.param(5, dtype="int64"), mode="clip")
    return Witness([result], [[draft.normal(4, 3), np.array([-2, -1, 0, 5, 3])]])


def _negative_tuples(draft: Draft) -> Witness:
    result = draft.op("gather_nd", draft.param(4, 3), draft.param(2, 1, dtype="int64"))
    return Witness([result], [[draft.normal(4, 3), np.array([[-1], [1]])]])


def _inner_one_hot(draft: Draft) -> Witness:
    operands = (draft.param(2, 3, dtype="int64"), draft.param(), draft.param())
    on, off = np.array(1, np.float32), np.array(0, np.float32)
    return Witness([draft.op("one_hot", *operands, depth=5, axis=1)], [[np.array([[0, 1, 2], [4, 3, 0]]), on, off]])


def _products_of_integers(draft: Draft) -> Witness:
    operands = (draft.param(4, 3, dtype="int32"), draft.param(2, 3, dtype="int64"), draft.param(2, 3, dtype="int32"))
    x, updates = (draft.integers(3, 9, shape, "int32") for shape in ((4, 3), (2, 3)))
    result = draft.op("scatter_elements", *operands, reduction="mul")
    return Witness([result], [[x, np.array([[0, 1, 2], [0, 3, 2]]), updates]])


def _weights_of_attention(draft: Draft) -> Witness:
    shapes = ((1, 2, 5, 24), (1, 2, 7, 24), (1, 2, 7, 6))
    results = draft.ops("nn.attention", *(draft.param(*shape) for shape in shapes), scores="weights")
    return Witness(results, [[draft.normal(*shape) for shape in shapes]])


def _mask_of_each_head(draft: Draft) -> Witness:
    shapes = ((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6), (3, 5, 7))
    results = draft.ops("nn.attention", *(draft.param(*shape) for shape in shapes), scores="weights")
    return Witness(results, [[draft.normal(*shape) for shape in shapes]])


def _many_keys(draft: Draft) -> Witness:
    shapes = ((1, 2, 5, 8), (1, 2, 600, 8), (1, 2, 600, 6))
    query, key, value = (draft.normal(*shape) for shape in shapes)
    key *= np.linspace(0.1, 3, 600, dtype=np.float32)[:, None]
    return Witness([draft.op("nn.attention", *(draft.param(*shape) for shape in shapes))], [[query, key, value]])


def _equation_without_an_arrow(draft: Draft) -> Witness:
    result = draft.op("einsum", draft.param(2, 3), draft.param(3, 4), equation="ki,ij")
    return Witness([result], [[draft.normal(2, 3), draft.normal(3, 4)]])


def _roll_around_twice(draft: Draft) -> Witness:
    return Witness([draft.op("roll", draft.param(4, 3), axis=(1,), shift=(7,))], [[draft.normal(4, 3)]])


def _long_columns(draft: Draft) -> Witness:
    return Witness([draft.op("sum", draft.param(300, 20), axis=(0,))], [[draft.normal(300, 20)]])


def _large_sum(draft: Draft) -> Witness:
    """All of the same sign: for both signs, the bound of a sum this long exceeds the sum of a block."""
    return Witness([draft.op("sum", draft.param(300, 300))], [[draft.positive(300, 300)]])


def _nan_in_the_tail(draft: Draft) -> Witness:
    array = draft.normal(37, 37)
    np.fill_diagonal(array, np.nan)
    return Witness([draft.op("max", draft.param(37, 37), axis=(1,))], [[array]])


def _large_epsilon(draft: Draft) -> Witness:
    constants = [draft.const(draft.positive(4)) for _ in range(4)]
    result = draft.op("nn.batch_norm", draft.param(2, 4, 5), *constants, epsilon=1e-3)
    return Witness([result], [[draft.normal(2, 4, 5)]])


def _blocks_of_two_images(draft: Draft) -> Witness:
    operands = (draft.param(2, 4, 3), draft.param(2, 2, 3), draft.param(2, 2, 3, dtype="int8"))
    result = draft.op("quantize", *operands, axis=1, block_size=2)
    return Witness([result], [[draft.normal(2, 4, 3) * 10, draft.positive(2, 2, 3), np.zeros((2, 2, 3), np.int8)]])


def _depthwise_rows(draft: Draft) -> Witness:
    attrs = {"groups": 32, "padding": (1, 1, 1, 1), "data_layout": "NHWC"}
    result = draft.op("nn.conv2d", draft.param(2, 10, 40, 32), draft.const(draft.normal(32, 1, 3, 3)), **attrs)
    return Witness([result], [[draft.normal(2, 10, 40, 32)]])


def _uneven_padding(draft: Draft) -> Witness:
    attrs = {"padding": (0, 1, 2, 1), "data_layout": "NHWC"}
    result = draft.op("nn.conv2d", draft.param(1, 28, 28, 64), draft.const(draft.normal(64, 64, 3, 3)), **attrs)
    return Witness([result], [[draft.normal(1, 28, 28, 64)]])


def _padded_bytes(draft: Draft) -> Witness:
    x, weight = draft.param(1, 8, 8, 16, dtype="uint8"), draft.const(draft.integers(-100, 100, (32, 16, 3, 3), "int8"))
    factors = (draft.dequantised(x, 0.5, 37, "uint8"), draft.dequantised(weight, 0.25, 0, "int8"))
    result = draft.op("nn.conv2d", *factors, padding=(1, 1, 1, 1), strides=(2, 2), data_layout="NHWC")
    return Witness([result], [[draft.integers(0, 200, (1, 8, 8, 16), "uint8")]])


def _row_of_each_matrix(draft: Draft) -> Witness:
    x, row = draft.param(2, 4, 16), draft.param(2, 1, 8)
    y = draft.op("nn.dense", x, draft.const(draft.normal(8, 16)))
    return Witness([draft.op("add", y, row)], [[draft.normal(2, 4, 16), draft.normal(2, 1, 8)]])


def _symbol_of_one(draft: Draft) -> Witness:
    x, y = draft.param(symbol("n"), 3), draft.param(symbol("m"), 3)
    calls = [[draft.normal(rows, 3), draft.normal(other_rows, 3)] for rows, other_rows in ((4, 4), (4, 1), (1, 4))]
    return Witness([draft.op("add", x, y)], calls)


def _growing_layers(draft: Draft) -> Witness:
    value = draft.op("nn.dense", draft.param(symbol("n"), 4), draft.const(draft.normal(8, 4)))
    for shape in ((8, 8), (4096, 8), (8, 4096), (8, 8)):
        value = draft.op("nn.dense", value, draft.const(draft.normal(*shape)))
    return Witness([value], [[draft.normal(rows, 4)] for rows in (7, 300)])


def _subnormal_keys(draft: Draft) -> Witness:
    array = np.array([[1e-40, 3, -1e-41, 2, -0.0, 1], [1, 2, 3, 4, 5, -1e-40]], np.float32)
    return Witness([draft.op("sort", draft.param(2, 6), axis=1)], [[array]])


WITNESSES_OF_CCOMPILER: Mapping[str, Draw] = {
    "cc-pool-chunks-share-a-place": _many_channels,
    "cc-argmax-takes-the-last-nan": _several_nan,
    "cc-workers-share-scratch": _long_lines,
    "cc-take-clips-no-negative-index": _indices_out_of_range,
    "cc-tuples-of-negative-indices": _negative_tuples,
    "cc-one-hot-along-an-inner-axis": _inner_one_hot,
    "cc-scatter-adds-integers-to-multiply": _products_of_integers,
    "cc-attention-scales-queries-in-place": _weights_of_attention,
    "cc-attention-mask-of-the-first-head": _mask_of_each_head,
    "cc-attention-total-of-another-top": _many_keys,
    "cc-einsum-result-in-order-of-occurrence": _equation_without_an_arrow,
    "cc-roll-turns-once": _roll_around_twice,
    "cc-long-columns-lose-a-round": _long_columns,
    "cc-large-sum-loses-a-block": _large_sum,
    "cc-maximum-loses-nan-in-the-tail": _nan_in_the_tail,
    "cc-batch-norm-epsilon-is-the-default": _large_epsilon,
    "cc-block-scales-of-the-first-row": _blocks_of_two_images,
    "cc-depthwise-reads-a-row-too-far": _depthwise_rows,
    "cc-winograd-swaps-top-and-left": _uneven_padding,
    "cc-byte-conv-has-zeros-around": _padded_bytes,
    "cc-epilogue-repeats-the-first-row": _row_of_each_matrix,
    "cc-symbol-is-never-one": _symbol_of_one,
    "cc-workspace-does-not-grow": _growing_layers,
    "cc-sort-flushes-its-input": _subnormal_keys,
}
"""By the name of the fault."""
