"""Every kernel on strided inputs: permitted substitutes for C-contiguous arrays in calls of host functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from byoc_core.dtypes import dtype_info, float_limits
from byoc_core.ops import default_ops
from byoc_core.ops.cases import canonical_cases, dtypes_of, new_function
from byoc_core.opset.families import KERNELS
from byoc_core.opset.opdef import Trait

pytestmark = pytest.mark.lowest

Array = np.ndarray[Any, Any]


def _cut(array: Array) -> Array:
    """Return the array as a block in the middle of a larger array, like a part of a split or a concat."""
    middle: Any = (..., *(slice(1, size + 1) for size in array.shape))
    block: Array = np.zeros(tuple(size + 3 for size in array.shape), array.dtype)[middle]
    block[...] = array
    return block


def _stepped(array: Array) -> Array:
    """Return the array as every second element along the last axis."""
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]) if array.shape else (2,), array.dtype)
    stepped = wide[..., ::2].reshape(()) if not array.shape else wide[..., ::2]
    stepped[...] = array
    return stepped


def _transposed(array: Array) -> Array:
    """Return the array with the first axis innermost in memory."""
    transposed = np.zeros(array.shape[::-1], array.dtype).T
    transposed[...] = array
    return transposed


_EXACT = frozenset({"matmul", "mean", "nn.dense", "sum"})
"""Kernels with exact sums of small integers in any order; numpy's order of additions depends on the strides."""
_ROUNDED = frozenset({"acos", "asin", "logsumexp", "nn.attention", "nn.instance_norm", "nn.layer_norm"})
_ROUNDED |= {"nn.log_softmax", "nn.softmax", "prod"}
"""Kernels that numpy computes with other instructions, or in another order, where elements are apart."""


def _bound(dtype: str, num_terms: int, values: Iterable[Array]) -> float:
    """Return the largest distance between two orders of up to ``num_terms`` operations.

    Terms are positive, or products, so each order is within gamma_K of the exact result (Higham, Accuracy and
    Stability, ch. 3), relative to the largest possible value; exp and the division add less than gamma_K again. Floats
    below 32 bits are computed in float32 and rounded once.
    """
    roundoff = 2.0**-53 if dtype == "float64" else 2.0**-24
    gamma = num_terms * roundoff / (1 - num_terms * roundoff)
    largest = max(float(np.abs(value.astype(np.float64)).max(initial=1, where=~np.isnan(value))) for value in values)
    return (4 * gamma + 2 * float_limits(dtype).unit_roundoff) * largest


_COMPARED = (op for op in default_ops().values() if op.kernel is not None and not op.declares_results)


@pytest.mark.parametrize("name", sorted(op.name for op in _COMPARED if not op.has_trait(Trait.NONDETERMINISTIC)))
def test_a_kernel_gives_the_same_on_strided_inputs(name: str) -> None:
    op = default_ops()[name]
    for case in canonical_cases(default_ops())[name]:
        for dtype in dtypes_of(case, op):
            _, binding = new_function(op, case.types(dtype), case.attrs)
            arrays = case.arrays(np.random.default_rng(0), dtype)
            if name in _EXACT:
                arrays = tuple(np.rint(array.astype(np.float64)).astype(array.dtype) for array in arrays)
            wanted = KERNELS[name](*arrays, **binding.attrs)
            for lay_out in (_cut, _stepped, _transposed):
                given = [lay_out(array) for array in arrays]
                before = [array.tobytes() for array in given]
                found = KERNELS[name](*given, **binding.attrs)
                assert [array.tobytes() for array in given] == before
                may_round = lay_out is not _cut and name in _ROUNDED and dtype_info(dtype).kind == "float"
                pairs = zip(*(item if isinstance(item, tuple) else (item,) for item in (wanted, found)), strict=True)
                for want, have in pairs:
                    assert (have.dtype, have.shape) == (want.dtype, want.shape)
                    if may_round:
                        bound = _bound(dtype, max(array.size for array in arrays), [*arrays, want])
                        apart = np.abs(have.astype(np.float64) - want.astype(np.float64))
                        assert np.array_equal(np.isnan(have), np.isnan(want))
                        assert np.nanmax(apart, initial=0) <= bound
                    else:
                        assert have.tobytes() == want.tobytes()  # in row-major order, whatever the strides
