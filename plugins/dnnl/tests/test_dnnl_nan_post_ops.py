"""NaN and infinities reaching functions as post-ops, for any oneDNN implementation of the step before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from byoc_core.ir import Value, tensor
from byoc_dnnl.lowerings.functions import FUNCTIONS

from plugins.dnnl.tests.dnnl_region import Region, emit

Maker = Callable[[Region, Value], Value]


def _weights(region: Region, *shape: int) -> Value:
    """Return weights without 0: each output of a non-finite operand is not finite."""
    return region.builder.const(np.abs(region.draw(*shape)) + np.float32(0.1))


PRODUCERS: dict[str, tuple[tuple[int, ...], Maker]] = {
    "product": ((20, 30), lambda r, x: emit(r, "matmul", x, _weights(r, 30, 40))),
    "dense": ((20, 30), lambda r, x: emit(r, "nn.dense", x, _weights(r, 40, 30))),
    "stack": ((3, 20, 30), lambda r, x: emit(r, "matmul", x, _weights(r, 3, 30, 8))),
    "convolution": ((2, 16, 9, 9), lambda r, x: emit(r, "nn.conv2d", x, _weights(r, 32, 16, 3, 3))),
    "pointwise": ((2, 16, 9, 9), lambda r, x: emit(r, "nn.conv2d", x, _weights(r, 24, 16, 1, 1))),
    "few channels": ((2, 3, 9, 9), lambda r, x: emit(r, "nn.conv2d", x, _weights(r, 5, 3, 3, 3))),
    "groups": ((2, 6, 8), lambda r, x: emit(r, "nn.conv1d", x, _weights(r, 12, 3, 3), groups=2)),
    "many groups": ((2, 64, 8), lambda r, x: emit(r, "nn.conv1d", x, _weights(r, 512, 1, 1), groups=64)),
    "depthwise": ((2, 16, 9, 9), lambda r, x: emit(r, "nn.conv2d", x, _weights(r, 16, 1, 3, 3), groups=16)),
    "three axes": ((1, 4, 5, 6, 7), lambda r, x: emit(r, "nn.conv3d", x, _weights(r, 6, 4, 2, 2, 2))),
}


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("op", FUNCTIONS)
@pytest.mark.parametrize("producer", PRODUCERS)
def test_a_post_op_gives_nan_where_the_function_does(producer: str, op: str, special: float) -> None:
    shape, make = PRODUCERS[producer]
    region = Region()
    attrs: dict[str, Any] = {"clip": {"min": -1.0, "max": 1.0}}.get(op, {})
    region.finish(emit(region, op, make(region, region.builder.param("x", tensor(shape))), **attrs))
    x = region.draw(*shape)
    x = abs(x) if op == "sqrt" else x  # where sums cancel, a rounding decides their sign
    x.reshape(-1)[x.size // 2] = special
    (found,), (expected,) = region.run(x), region.oracle(x)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_array_equal(np.isposinf(found), np.isposinf(expected))
    if np.isnan(special):
        assert np.isnan(expected).any()
