"""Columns of deformable convolutions: against the reference in float64, and errors of sizes."""

from __future__ import annotations

import math
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

OP = "nn.deformable_im2col"
FORMS: dict[str, tuple[int, dict[str, Any]]] = {
    "line": (1, {"window": (3,), "dilation": (2,), "padding": (1, 2)}),
    "image": (1, {"window": (3, 3), "padding": (1, 1, 1, 1)}),
    "two groups": (2, {"window": (2, 3), "strides": (2, 1), "padding": (0, 1, 1, 0)}),
    "dilated": (4, {"window": (2, 2), "strides": (1, 2), "dilation": (2, 3), "padding": (2, 2, 2, 2)}),
    "volume": (2, {"window": (2, 1, 2), "padding": (1, 0, 0, 0, 0, 1)}),
}
SIZES = "hwd"


def _types(form: str, dtype: str = "float32", moves: str = "float32") -> list[Any]:
    groups, attrs = FORMS[form]
    rank, taps = len(attrs["window"]), math.prod(attrs["window"])
    image = tensor(("n", "c", *SIZES[:rank]), dtype)
    return [image, tensor(("n", groups, taps, rank, *(f"{name}_out" for name in SIZES[:rank])), moves)]


def _counts(form: str, image: NDArray) -> list[int]:
    _, attrs = FORMS[form]
    window, rank = attrs["window"], len(attrs["window"])
    strides, dilation, padding = (
        attrs.get(name, (least,) * count)
        for name, least, count in (("strides", 1, rank), ("dilation", 1, rank), ("padding", 0, 2 * rank))
    )
    return [
        (size + padding[axis] + padding[rank + axis] - dilation[axis] * (window[axis] - 1) - 1) // strides[axis] + 1
        for axis, size in enumerate(image.shape[2:])
    ]


def _inputs(
    form: str, sizes: tuple[int, ...], dtype: str, seed: int, batch: int = 2, moves_dtype: str = "float32"
) -> tuple[NDArray, NDArray]:
    groups, attrs = FORMS[form]
    rank, taps, rng = len(attrs["window"]), math.prod(attrs["window"]), np.random.default_rng(seed)
    image = rng.standard_normal((batch, 3 * groups, *sizes[:rank])).astype(dtype)
    moves = rng.uniform(-3, 3, (batch, groups, taps, rank, *_counts(form, image))).astype(moves_dtype)
    moves.reshape(-1)[::4] = np.rint(moves.reshape(-1)[::4])
    return image, moves


def _check(bench: Bench, function: Function, image: NDArray, moves: NDArray) -> None:
    """Check a result: at most the roundings of weights, products and sums of all neighbours."""
    (binding,) = function.bindings
    kernel = binding.op.kernel
    assert kernel is not None
    (actual,) = bench.run(function, image, moves)
    oracle = kernel(image.astype("float64"), moves, **binding.attrs)
    bound = 10 * float(np.finfo(image.dtype).eps) * float(np.max(np.abs(image), initial=0.0))
    np.testing.assert_allclose(actual, oracle, rtol=0, atol=bound)


@pytest.mark.parametrize("march", ["native", PORTABLE])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_all_forms(dtype: str, march: str) -> None:
    bench = Bench(march=march)
    functions = {form: bench.op(OP, _types(form, dtype), **attrs) for form, (_, attrs) in FORMS.items()}
    assert "deformable_im2col" in bench.module.get_source()
    for form, function in functions.items():
        for number, sizes in enumerate(((5, 7, 4), (4, 4, 2), (9, 5, 3))):
            _check(bench, function, *_inputs(form, sizes, dtype, number))
        _check(bench, function, *_inputs(form, (5, 6, 3), dtype, 9, batch=0))


@pytest.mark.parametrize(
    ("dtype", "moves_dtype"), [("float32", "float64"), ("float32", "float16"), ("float64", "float16")]
)
def test_offsets_of_other_dtypes(bench: Bench, dtype: str, moves_dtype: str) -> None:
    functions = {form: bench.op(OP, _types(form, dtype, moves_dtype), **attrs) for form, (_, attrs) in FORMS.items()}
    for form, function in functions.items():
        _check(bench, function, *_inputs(form, (5, 7, 4), dtype, 3, moves_dtype=moves_dtype))


def test_images_with_an_empty_axis_are_padding_alone(bench: Bench) -> None:
    window = {"window": (2, 2), "padding": (1, 1, 1, 1)}
    image = tensor(("n", "c", *SIZES[:2]))
    function = bench.op(OP, [image, tensor(("n", 1, 4, 2, "h_out", "w_out"))], **window)
    arrays = np.ones((2, 3, 0, 4), "float32"), np.zeros((2, 1, 4, 2, 1, 5), "float32")
    (actual,), (expected,) = bench.run(function, *arrays), bench.reference(function, *arrays)
    assert actual.size > 0
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(actual, np.zeros_like(actual))


def test_images_of_any_size() -> None:
    bench = Bench()
    functions = {form: bench.op(OP, _types(form), **attrs) for form, (_, attrs) in FORMS.items()}

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.sampled_from(list(FORMS)), st.tuples(*[st.integers(3, 12)] * 3), st.integers(0, 999))
    def check(form: str, sizes: tuple[int, int, int], seed: int) -> None:
        _check(bench, functions[form], *_inputs(form, sizes, "float32", seed))

    check()


def test_neighbours_without_weight_count_as_zero_whatever_they_are() -> None:
    bench = Bench()
    function = bench.op(OP, _types("image"), **FORMS["image"][1])
    image = np.full((1, 1, 4, 4), np.inf, "float32")
    image[..., 1, 1] = 3
    moves = np.zeros((1, 1, 9, 2, 4, 4), "float32")
    moves[0, 0, 4, :, 1, 1] = 0  # exactly on an element: neighbours have weight 0
    moves[0, 0, 4, :, 0, 0] = np.nan
    moves[0, 0, 4, :, 2, 2] = 1e30
    (result,) = bench.run(function, image, moves)
    assert [result[0, 0, 4, at, at] for at in range(3)] == [0, 3, 0]


def test_sizes_that_do_not_fit_are_errors() -> None:
    bench = Bench()
    function = bench.op(OP, _types("two groups"), **FORMS["two groups"][1])
    image, moves = _inputs("two groups", (5, 7), "float32", 0)
    for arrays in ((image[:, :5], moves), (image, moves[..., :-1]), (image[:, :, :0], moves)):
        with pytest.raises(ExecutionError):
            bench.run(function, *arrays)
        with pytest.raises(ExecutionError):
            bench.reference(function, *arrays)


@pytest.mark.parametrize("is_known", [True, False])
def test_the_groups_must_be_known(is_known: bool) -> None:
    image, moves = _types("image")
    groups = 1 if is_known else "g"
    types = [image, tensor((moves.shape[0], groups, *moves.shape[2:]))]
    _, binding = new_function(default_ops()[OP], types, FORMS["image"][1])
    context = CompileContext("ccompiler", CCompilerOptions.model_validate({}))
    assert isinstance(byoc_supports(binding, context), Rejection) != is_known
