"""Quotients of sizes less a number, against ONNX Runtime: ONNX rounds towards zero, also for small sizes."""

from __future__ import annotations

from collections import Counter

import byoc_core
import numpy as np
from byoc_core.frontend.onnx import from_onnx
from onnx import parser

from core.tests.frontend.conftest import run_onnxruntime

_MODEL = """<ir_version: 10, opset_import: ["" : 18]> g (float[n, 3] x) => (float[p] y, int64 second, float[m, 3] z) {
    zero = Constant<value = int64 {0}>() nine = Constant<value = int64 {9}>() four = Constant<value = int64 {4}>()
    two = Constant<value = int64 {2}>() five = Constant<value = int64 {5}>() axes = Constant<value = int64[1] {0}>()
    s = Shape(x) n = Gather(s, zero) less = Sub(n, nine) first = Div(less, four)
    lesser = Sub(first, two) second = Div(lesser, two)
    size = Add(second, five) shape = Unsqueeze(size, axes)
    one = Constant<value = float {1}>() y = Expand(one, shape)
    w = Neg(x) z = Reshape(w, s) }"""


def test_a_quotient_is_rounded_towards_zero() -> None:
    model = parser.parse_model(_MODEL)
    run = byoc_core.VirtualMachine(byoc_core.build(from_onnx(model), []))["main"]
    for n in range(24):
        x = np.arange(3 * n, dtype=np.float32).reshape(n, 3)
        for result, wanted in zip(run(x), run_onnxruntime(model, {"x": x}), strict=True):
            np.testing.assert_array_equal(result, wanted, strict=True)


def test_the_quotient_of_a_quotient_is_the_only_computed_number() -> None:
    ops = Counter(binding.op.name for binding in from_onnx(parser.parse_model(_MODEL))["main"].bindings)
    assert ops["as_size"] == 1
