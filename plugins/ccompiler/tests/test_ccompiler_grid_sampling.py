"""Sampling by a grid: every method and border against the reference in float64, and errors of sizes."""

from __future__ import annotations

import itertools
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

from plugins.ccompiler.tests.bench import PORTABLE, Bench

OP = "nn.grid_sample"
METHODS, BORDERS = ("nearest", "linear", "cubic"), ("zeros", "border", "reflection")
SIZES = "hwd"


def _types(rank: int, dtype: str = "float32", grid_dtype: str = "float32") -> list[Any]:
    image = tensor(("n", "c", *SIZES[:rank]), dtype)
    return [image, tensor(("n", *(f"{name}_out" for name in SIZES[:rank]), rank), grid_dtype)]


def _functions(bench: Bench, rank: int, dtype: str = "float32") -> list[Function]:
    methods = METHODS if 4**rank <= 16 else METHODS[:2]
    return [
        bench.op(OP, _types(rank, dtype), method=method, border=border, align_corners=align_corners)
        for method, border, align_corners in itertools.product(methods, BORDERS, (False, True))
    ]


def _check(bench: Bench, function: Function, image: NDArray, grid: NDArray) -> None:
    """Check a result: at most the roundings of weights, products and sums of all neighbours."""
    (binding,) = function.bindings
    kernel, attrs = binding.op.kernel, dict(binding.attrs)
    assert kernel is not None
    (actual,) = bench.run(function, image, grid)
    oracle = kernel(image.astype("float64"), grid, **attrs)
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(oracle))
    largest = float(np.max(np.abs(image), initial=0.0))
    # The weights of cubic interpolation add up to at most 1.5 along an axis.
    bound = 40 * float(np.finfo(image.dtype).eps) * largest
    np.testing.assert_allclose(actual, oracle, rtol=0, atol=bound)


@pytest.mark.parametrize("march", ["native", PORTABLE])
@pytest.mark.parametrize(("rank", "dtype"), [(1, "float32"), (2, "float32"), (2, "float64"), (3, "float32")])
def test_all_attributes(rank: int, dtype: str, march: str) -> None:
    bench = Bench(march=march)
    functions = _functions(bench, rank, dtype)
    rng = np.random.default_rng(rank)
    for lengths, sizes in (
        ((5, 7, 4), (3, 4, 2)),
        ((1, 1, 1), (2, 3, 2)),
        ((4, 1, 6), (1, 9, 1)),
        ((3, 2, 2), (0, 2, 2)),
    ):
        image = rng.standard_normal((2, 3, *lengths[:rank])).astype(dtype)
        grid = rng.uniform(-1.7, 1.7, (2, *sizes[:rank], rank)).astype("float32")
        grid.reshape(-1)[::5] = rng.choice([-1.0, 0.0, 1.0, 0.5], grid.reshape(-1)[::5].shape)
        for function in functions:
            _check(bench, function, image, grid)


def test_far_positions_and_nan() -> None:
    bench = Bench()
    functions = _functions(bench, 2)
    image = np.random.default_rng(0).standard_normal((1, 2, 4, 5)).astype("float32")
    grid = np.array([[[[np.nan, 0.0], [1e30, -1e30], [np.inf, 0.1], [-3.0, 5.0]]]], "float32")
    for function in functions:
        if function.bindings[0].attrs["method"] == "nearest":
            _check(bench, function, image, grid)
        (result,) = bench.run(function, image, grid)  # no access outside of the image
        assert result.shape == (1, 2, 1, 4)


def test_elements_outside_count_as_zero_whatever_they_are() -> None:
    bench = Bench()
    function = bench.op(OP, _types(2), method="linear", border="zeros", align_corners=False)
    image = np.full((1, 1, 3, 3), np.inf, "float32")
    grid = np.full((1, 1, 1, 2), 5.0, "float32")
    np.testing.assert_array_equal(bench.run(function, image, grid)[0], np.zeros((1, 1, 1, 1), "float32"))


def test_positions_in_an_image_without_elements() -> None:
    bench = Bench()
    function = bench.op(OP, _types(2), method="linear", border="zeros", align_corners=False)
    empty = np.zeros((1, 2, 0, 3), "float32")
    with pytest.raises(ExecutionError, match="without elements"):
        bench.run(function, empty, np.zeros((1, 2, 2, 2), "float32"))
    with pytest.raises(ExecutionError, match="without elements"):
        bench.reference(function, empty, np.zeros((1, 2, 2, 2), "float32"))
    assert bench.run(function, empty, np.zeros((1, 0, 2, 2), "float32"))[0].shape == (1, 2, 0, 2)


@pytest.mark.parametrize(("rank", "dtype", "method"), [(3, "float32", "cubic"), (2, "int32", "nearest")])
def test_what_is_not_compiled(rank: int, dtype: str, method: str) -> None:
    attrs = {"method": method, "border": "zeros", "align_corners": False}
    _, binding = new_function(default_ops()[OP], _types(rank, dtype), attrs)
    context = CompileContext("ccompiler", CCompilerOptions.model_validate({}))
    assert isinstance(byoc_supports(binding, context), Rejection)
