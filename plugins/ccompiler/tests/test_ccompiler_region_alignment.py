"""Pooling of aligned regions: sums against a float64 oracle, maxima near the reference, and errors of regions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_ccompiler.backend import byoc_supports
from byoc_ccompiler.options import CCompilerOptions
from byoc_core.backend.hooks import CompileContext, Rejection
from byoc_core.errors import ExecutionError
from byoc_core.ir import Function, tensor
from byoc_core.ops import default_ops
from byoc_core.ops.cases import new_function
from byoc_core.runtime.module import NDArray
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plugins.ccompiler.tests.bench import PORTABLE, Bench

SHAPE = ("n", "c", "h", "w")
OP = "nn.roi_align"


def _functions(bench: Bench, dtype: str = "float32") -> list[Function]:
    """Return functions with each value of each attribute, for symbolic sizes."""
    types = [tensor(SHAPE, dtype), tensor(("r", 4), "float32"), tensor(("r",), "int64")]
    forms = [
        ("avg", False, 0, (3, 2)),
        ("avg", True, 0, (2, 3)),
        ("avg", True, 2, (7, 7)),
        ("avg", False, 40, (2, 1)),
        ("max", False, 0, (1, 2)),
        ("max", True, 0, (3, 3)),
        ("max", True, 5, (2, 1)),
        ("max", False, 1, (2, 3)),
    ]
    return [
        bench.op(OP, types, size=size, samples=samples, scale=0.5, method=method, half_pixel=half_pixel)
        for method, half_pixel, samples, size in forms
    ]


def _check(bench: Bench, function: Function, image: NDArray, rois: NDArray, batches: NDArray) -> None:
    """Check a result: the error of a mean is within the roundings of the pixels of a bin, however they are ordered."""
    (binding,) = function.bindings
    kernel, attrs = binding.op.kernel, dict(binding.attrs)
    assert kernel is not None
    (actual,) = bench.run(function, image, rois, batches)
    with np.errstate(invalid="ignore"):
        oracle = kernel(image.astype("float64"), rois, batches, **attrs)
        magnitude = kernel(np.abs(image.astype("float64")), rois, batches, **attrs)
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(oracle))
    finite = np.isfinite(oracle)
    np.testing.assert_array_equal(actual[~finite], oracle[~finite])
    # A weight and a product are rounded for each factor; the sums go over at most all pixels of the image.
    roundings = 5 + (sum(image.shape[2:]) if attrs["method"] == "avg" else 0)
    unit = float(np.finfo(image.dtype).eps) / 2
    bound = 2 * roundings * unit / (1 - roundings * unit) * np.abs(magnitude)
    if attrs["method"] == "max":
        bound = 2 * roundings * unit * np.abs(oracle)
    assert np.all(np.abs(actual[finite] - oracle[finite]) <= bound[finite] + np.finfo(image.dtype).tiny)


def _regions(rng: np.random.Generator, count: int, size: float) -> NDArray:
    """Return regions inside, across and outside of an image, also turned round and of no extent."""
    rois = rng.uniform(-0.4 * size, 2.6 * size, (count, 4)).astype("float32")
    rois[::7, 2:] = rois[::7, :2]
    rois[1::7] = np.round(rois[1::7])
    return rois


@pytest.mark.parametrize("march", ["native", PORTABLE])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_all_attributes(march: str, dtype: str) -> None:
    bench = Bench(march=march)
    functions = _functions(bench, dtype)
    rng = np.random.default_rng(3)
    for sizes in ((2, 5, 9, 13), (1, 1, 1, 1), (3, 2, 1, 6), (1, 9, 17, 2)):
        image = rng.standard_normal(sizes).astype(dtype)
        rois, batches = _regions(rng, 21, max(sizes)), rng.integers(0, sizes[0], 21)
        for function in functions:
            _check(bench, function, image, rois, batches)


@pytest.fixture(scope="module")
def sampled() -> tuple[Bench, list[Function]]:
    """Return a bench, and functions of all attributes."""
    bench = Bench()
    return bench, _functions(bench)


coordinates = st.one_of(
    st.floats(-30, 60, width=32), st.integers(-4, 30).map(float), st.sampled_from([float("nan"), -0.0, 1e-30, 11.99999])
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_region_of_any_image(sampled: tuple[Bench, list[Function]], data: st.DataObject) -> None:
    bench, functions = sampled
    function = data.draw(st.sampled_from(functions))
    n, c, h, w = (data.draw(st.integers(1, most)) for most in (2, 3, 12, 12))
    rois = np.array(data.draw(st.lists(st.tuples(*[coordinates] * 4), max_size=4)), "float32").reshape(-1, 4)
    batches = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=len(rois), max_size=len(rois))), "int64")
    image = np.random.default_rng(data.draw(st.integers(0, 99))).standard_normal((n, c, h, w)).astype("float32")
    for special in data.draw(st.lists(st.sampled_from([np.inf, np.nan]), max_size=1)):
        image.reshape(-1)[data.draw(st.integers(0, image.size - 1))] = special
    _check(bench, function, image, rois, batches)


@pytest.mark.parametrize("shape", [(1, 2, 0, 0), (2, 3, 0, 4), (1, 1, 5, 0), (0, 2, 0, 3), (0, 1, 2, 2)])
def test_images_without_pixels_and_regions_give_no_results(
    sampled: tuple[Bench, list[Function]], shape: tuple[int, ...]
) -> None:
    bench, functions = sampled
    inputs = np.zeros(shape, "float32"), np.zeros((0, 4), "float32"), np.zeros(0, "int64")
    for function in functions:
        (found,) = bench.run(function, *inputs)
        (binding,) = function.bindings
        assert binding.op.kernel is not None
        expected = binding.op.kernel(*inputs, **dict(binding.attrs))
        assert found.shape == np.shape(expected)


def test_images_known_to_have_no_pixels_compile(bench: Bench) -> None:
    types = [tensor((1, 2, 0, 3)), tensor(("r", 4)), tensor(("r",), "int64")]
    function = bench.op(OP, types, size=(2, 2))
    (found,) = bench.run(function, np.zeros((1, 2, 0, 3), "float32"), np.zeros((0, 4), "float32"), np.zeros(0, "int64"))
    assert found.shape == (0, 2, 2, 2)
    call = bench.module.get_function(function.name)
    with pytest.raises(ExecutionError, match="has a region in an image without pixels"):
        call(
            np.zeros((1, 2, 0, 3), "float32"),
            np.zeros((1, 4), "float32"),
            np.zeros(1, "int64"),
            np.empty((1, 2, 2, 2), "float32"),
        )


def test_infinite_pixels(sampled: tuple[Bench, list[Function]]) -> None:
    bench, functions = sampled
    for function in functions:
        _check(
            bench, function, np.full((1, 1, 1, 1), np.inf, "float32"), np.zeros((3, 4), "float32"), np.zeros(3, "int64")
        )


def test_huge_regions_with_a_number_of_samples(sampled: tuple[Bench, list[Function]]) -> None:
    """Samples outside of the image count as zeros, whatever their distance."""
    bench, functions = sampled
    image = np.random.default_rng(0).standard_normal((1, 2, 6, 7)).astype("float32")
    rois = np.array([[-3e38, 0, 3e38, 1e30], [1e20, 1e20, -1e20, 1e20], [-np.inf, 0, 4, np.inf]], "float32")
    for function in functions:
        if function.bindings[0].attrs["samples"]:
            with np.errstate(all="ignore"):
                _check(bench, function, image, rois, np.zeros(3, "int64"))


def test_images_and_results_with_channels_last(bench: Bench) -> None:
    """A transposed image is read at its strides, and the result is written transposed."""
    builder = bench.builder()
    x, rois = builder.param("x", tensor((2, 6, 7, 5))), builder.param("rois", tensor(("r", 4)))
    batches = builder.param("batches", tensor(("r",), "int64"))
    image = builder.emit("permute_dims", x, axes=(0, 3, 1, 2))
    pooled = builder.emit(OP, image, rois, batches, size=(3, 3), samples=2)
    function = bench.add(builder, builder.emit("permute_dims", pooled, axes=(0, 2, 3, 1)))
    rng = np.random.default_rng(4)
    inputs = rng.standard_normal((2, 6, 7, 5)).astype("float32"), _regions(rng, 9, 7), rng.integers(0, 2, 9)
    (actual,), (expected,) = bench.run(function, *inputs), bench.reference(function, *inputs, wide=True)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=13 * 2.0**-24 * float(np.abs(inputs[0]).max()))
    assert len(bench.calls(function)) == 1


FAILING: list[tuple[tuple[int, ...], Any, Any, str]] = [
    ((2, 1, 3, 3), [[0, 0, 1, 1], [0, 0, 1, 1]], [0, 2], "a region is in a missing image; got 2, expected 0 to 1"),
    ((2, 1, 3, 3), [[0, 0, 1, 1]], [-1], "a region is in a missing image; got -1, expected 0 to 1"),
    (
        (1, 1, 3, 3),
        [[0, 0, 1, 1], [0, 0, 1e30, 1]],
        [0, 0],
        "region 1 is far larger than an image, with over 16384 samples of a bin",
    ),
    ((1, 1, 3, 3), [[0, 0, 1, np.inf]], [0], "region 0 is far larger than an image, with over 16384 samples of a bin"),
    ((1, 1, 0, 3), [[0, 0, 1, 1]], [0], "op `nn.roi_align`: has a region in an image without pixels"),
    ((1, 1, 3, 0), [[0, 0, 1, 1]], [0], "op `nn.roi_align`: has a region in an image without pixels"),
    ((1, 1, 3, 3), [[0, 0, 1, 1]], [0, 0], "wrong size of axis 0"),
]


@pytest.fixture(scope="module")
def failing(module_bench: Bench) -> list[Function]:
    """Return a function for each entry of the table."""
    functions = []
    for _, rois, batches, _ in FAILING:
        regions = "r" if len(rois) == len(batches) else "r2"
        types = [tensor(SHAPE), tensor(("r", 4)), tensor((regions,), "int64")]
        functions.append(module_bench.op(OP, types, size=(1, 1)))
    return functions


@pytest.mark.parametrize("index", range(len(FAILING)))
def test_what_no_region_can_be_is_an_error(module_bench: Bench, failing: list[Function], index: int) -> None:
    shape, rois, batches, text = FAILING[index]
    call = module_bench.module.get_function(failing[index].name)
    inputs = np.zeros(shape, "float32"), np.array(rois, "float32"), np.array(batches, "int64")
    with pytest.raises(ExecutionError, match=text):
        call(*inputs, np.empty((len(rois), shape[1], 1, 1), "float32"))


def test_more_samples_than_the_reference_takes_are_refused() -> None:
    types = [tensor((1, 1, 3, 3)), tensor((1, 4)), tensor((1,), "int64")]
    _, binding = new_function(default_ops()[OP], types, {"size": (1, 1), "samples": 20000})
    context = CompileContext("ccompiler", CCompilerOptions.model_validate({}))
    text = "nn.roi_align is compiled for at most 16384 samples, not for 20000"
    assert byoc_supports(binding, context) == Rejection("attribute", text)
