"""Convolutions of few pixels by large filters, read piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.ir import Binding, tensor
from byoc_core.runtime.module import NDArray

from plugins.ccompiler.tests.bench import Bench, assert_sum

# Image, filter, attributes: pixels and channels that fill tiles, pieces and panels, and that do not.
CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "three by three": ((1, 7, 7, 200), (150, 200, 3, 3), {"padding": (1, 1)}),
    "pointwise": ((1, 7, 7, 1100), (130, 1100, 1, 1), {}),
    "pointwise, strided": ((1, 13, 13, 1030), (128, 1030, 1, 1), {"strides": (2, 2)}),
    "strided": ((1, 13, 14, 130), (128, 130, 3, 3), {"strides": (2, 2), "padding": (1, 1)}),
    "several images": ((2, 3, 5, 600), (97, 600, 3, 3), {"padding": (1, 1)}),
    "uneven padding": ((1, 5, 6, 300), (131, 300, 2, 3), {"padding": (0, 1, 3, 2)}),
    "dilated": ((1, 9, 10, 129), (128, 129, 3, 3), {"dilation": (2, 3), "padding": (1, 2)}),
    "two pixels": ((1, 3, 4, 256), (128, 256, 3, 3), {}),
    "as many pixels as there may be": ((1, 8, 8, 513), (260, 513, 1, 1), {}),
}


def _random(shape: int | Sequence[int], dtype: str = "float32", seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def _correlate(binding: Binding, x: NDArray, w: NDArray) -> Any:
    """Return the float64 result of a convolution's reference kernel."""
    assert binding.op.kernel is not None
    return binding.op.kernel(x.astype("float64"), w.astype("float64"), **binding.attrs)


@pytest.mark.parametrize("march", ["generic", "x86-64-v3", "native"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums(dtype: str, march: str) -> None:
    bench = Bench(march=march, winograd="off")
    functions = []
    for x, w, attrs in CASES.values():
        builder = bench.builder()
        weight = builder.const(_random(w, dtype, 1))
        image = builder.param("x", tensor(x, dtype))
        functions.append(bench.add(builder, builder.emit("nn.conv2d", image, weight, data_layout="NHWC", **attrs)))
    assert bench.module.get_source().count("ahead = byoc_min(") == len(CASES)
    for function, (x, w, _) in zip(functions, CASES.values(), strict=True):
        inputs = [_random(x, dtype), _random(w, dtype, 1)]
        (actual,) = bench.run(function, inputs[0])
        oracle = _correlate(function.bindings[0], *inputs)
        magnitude = _correlate(function.bindings[0], *map(np.abs, inputs))
        assert_sum(actual, oracle, magnitude, int(np.prod(w[1:])))


def test_one_axis(bench: Bench) -> None:
    builder = bench.builder()
    weight, image = _random((130, 300, 5), seed=1), builder.param("x", tensor((1, 50, 300)))
    result = builder.emit("nn.conv1d", image, builder.const(weight), data_layout="NWC", padding=(2, 2))
    function = bench.add(builder, result)
    assert "ahead = byoc_min(" in bench.module.get_source()
    inputs = (_random((1, 50, 300)), weight)
    (actual,) = bench.run(function, inputs[0])
    magnitude = _correlate(function.bindings[0], *map(np.abs, inputs))
    assert_sum(actual, _correlate(function.bindings[0], *inputs), magnitude, 1500)


def test_what_follows_and_views() -> None:
    """The image is a part of a larger image, the result a slice of a concat; a bias and a residual follow."""
    bench = Bench(winograd="off")
    builder = bench.builder()
    image = builder.param("x", tensor((1, 7, 9, 300)))
    residual = builder.param("y", tensor((1, 7, 7, 130)))
    part = builder.emit("strided_slice", image, axes=(2,), begin=(1,), end=(8,), strides=(1,))
    weight, bias = _random((130, 300, 3, 3), seed=1), _random((130,), seed=2)
    sums = builder.emit("nn.conv2d", part, builder.const(weight), data_layout="NHWC", padding=(1, 1))
    shifted = builder.emit("nn.bias_add", sums, builder.const(bias), axis=3)
    result = builder.emit("nn.relu", builder.emit("add", shifted, residual))
    function = bench.add(builder, builder.emit("concat", result, residual, axis=3))
    assert "ahead = byoc_min(" in bench.module.get_source()
    x, y = _random((1, 7, 9, 300)), _random((1, 7, 7, 130), seed=3)
    (actual,) = bench.run(function, x, y)
    wide = _correlate(function.bindings[1], x[:, :, 1:8], weight)
    expected = np.maximum(wide + bias + y, 0)
    np.testing.assert_allclose(actual[..., :130], expected, rtol=0, atol=2700 * 2.0**-24 * 60)
    np.testing.assert_array_equal(actual[..., 130:], y)


def test_the_bits_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byoc_core.authoring.csource_parallel.PARALLEL_WORK_PS", 1)
    builder: Any = byoc_core.FunctionBuilder("main")
    x = builder.param("x", tensor((1, 7, 7, 200)))
    weight = builder.const(_random((330, 200, 3, 3), seed=1))
    result = builder.emit("nn.conv2d", x, weight, data_layout="NHWC", padding=(1, 1))
    module = byoc_core.IRModule({"main": builder.finish(result)}, builder.constants)
    executable = byoc_core.build(
        module, backends=["ccompiler"], options={"ccompiler": {"winograd": "off"}}, fallback="error"
    )
    assert sum(m.get_source("c").count("ahead = byoc_min(") for m in executable.modules) == 1
    image = _random((1, 7, 7, 200))
    results = [byoc_core.VirtualMachine(executable, num_threads=n)["main"](image) for n in (1, 2, 3, 7)]
    assert len({np.asarray(result).tobytes() for result in results}) == 1
