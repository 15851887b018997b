"""Convolutions of all layouts and geometries against a float64 oracle, with the bound of Higham, ch. 3."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core.ir import Function, tensor


def _random(shape: Any, dtype: str = "float32", seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def _check(sum_check: Any, function: Function, actual: Any, x: Any, w: Any) -> None:
    """Holds the result of a function of one convolution to the reference kernel in float64."""
    (binding,) = function.bindings
    kernel = binding.op.kernel
    assert kernel is not None
    wide = [array.astype("float64") for array in (x, w)]
    oracle = kernel(*wide, **binding.attrs)
    magnitude = kernel(*map(np.abs, wide), **binding.attrs)
    sum_check(actual, oracle, magnitude, int(np.prod(w.shape[1:])))


CHANNELS_LAST: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "pointwise": ((1, 9, 11, 17), (40, 17, 1, 1), {}),
    "pointwise, strided": ((2, 9, 8, 5), (33, 5, 1, 1), {"strides": (2, 3)}),
    "pointwise, padded": ((1, 4, 3, 20), (6, 20, 1, 1), {"padding": (1, 0, 2, 1)}),
    "a line of taps": ((2, 6, 7, 20), (5, 20, 1, 3), {"padding": (0, 1)}),
    "padded": ((2, 9, 11, 18), (70, 18, 3, 3), {"padding": (1, 1)}),
    "uneven padding": ((1, 9, 11, 18), (5, 18, 3, 2), {"padding": (0, 1, 2, 3)}),
    "padding beyond the filter": ((1, 2, 3, 18), (5, 18, 2, 2), {"padding": (4, 3)}),
    "strided": ((2, 13, 12, 17), (10, 17, 3, 3), {"strides": (2, 2), "padding": (1, 1)}),
    "strides of two kinds": ((1, 13, 17, 17), (6, 17, 3, 5), {"strides": (1, 3), "padding": (1, 2)}),
    "dilated and strided": ((1, 15, 15, 4), (6, 4, 3, 3), {"dilation": (2, 3), "padding": (2, 2), "strides": (3, 2)}),
    "first layer": ((2, 30, 29, 3), (20, 3, 7, 7), {"strides": (2, 2), "padding": (3, 3)}),
    "first layer, one channel": ((2, 12, 11, 1), (6, 1, 5, 5), {"padding": (2, 2)}),
    "first layer, dilated down": ((1, 12, 11, 3), (6, 3, 3, 3), {"dilation": (2, 1), "padding": (1, 2, 3, 0)}),
    "first layer, not padded": ((2, 12, 11, 3), (6, 3, 11, 11), {}),
    "groups": ((2, 9, 9, 12), (9, 4, 3, 3), {"groups": 3, "padding": (1, 1)}),
    "wide groups": ((1, 5, 9, 40), (72, 20, 3, 3), {"groups": 2}),
    "pointwise groups": ((1, 9, 9, 12), (8, 3, 1, 1), {"groups": 4}),
    "depthwise": ((1, 9, 9, 20), (20, 1, 3, 3), {"groups": 20, "padding": (1, 1)}),
    "long sums": ((1, 4, 5, 700), (20, 700, 1, 1), {}),
    "long sums of taps": ((1, 4, 5, 130), (20, 130, 3, 3), {"padding": (1, 1)}),
    "a large filter": ((2, 6, 8, 600), (34, 600, 3, 3), {"padding": (1, 1)}),
    "many taps": ((1, 90, 91, 2), (3, 2, 90, 90), {"padding": (1, 1), "dilation": (1, 1)}),
    "many taps of many channels": ((1, 34, 36, 17), (3, 17, 33, 33), {"padding": (1, 1)}),
    "one pixel": ((1, 3, 3, 4), (5, 4, 3, 3), {}),
    "empty batch": ((0, 5, 5, 4), (5, 4, 3, 3), {}),
    "one output channel": ((2, 7, 7, 4), (1, 4, 3, 3), {}),
}


@pytest.mark.parametrize("march", ["generic", "x86-64-v3", "native"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_channels_last(make_bench: Any, sum_check: Any, dtype: str, march: str) -> None:
    bench = make_bench(march=march)
    made = []
    for x, w, attrs in CHANNELS_LAST.values():
        for is_constant in (True, False):
            builder = bench.builder()
            image = builder.param("x", tensor(x, dtype))
            weight = builder.const(_random(w, dtype, 1)) if is_constant else builder.param("w", tensor(w, dtype))
            made.append(bench.add(builder, builder.emit("nn.conv2d", image, weight, data_layout="NHWC", **attrs)))
    for function, (x, w, _) in zip(made, [case for case in CHANNELS_LAST.values() for _ in range(2)], strict=True):
        inputs = [_random(x, dtype), _random(w, dtype, 1)]
        (actual,) = bench.run(function, *inputs[: len(function.params)])
        _check(sum_check, function, actual, *inputs)
