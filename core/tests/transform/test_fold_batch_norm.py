"""Folding of batch normalisation into the weights before, and the change of results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core.ir import IRModule, tensor, verify
from byoc_core.ops import FunctionBuilder
from byoc_core.opset.families import KERNELS
from byoc_core.transform import FoldBatchNorm, evaluate_function
from hypothesis import given, settings
from hypothesis import strategies as st

from core.tests.ir_text import check_pass, check_unchanged

X = 'x: R.Tensor((1, 1, 2, 2), "float32")'
MATRIX = 'x: R.Tensor(("n", 2), "float32")'
WEIGHT = 'R.const([[[[2.0]]], [[[3.0]]]], "float32")'
GAMMA = 'R.const([1.0, 2.0], "float32"), R.const([0.5, 0.25], "float32")'
STATISTICS = f'{GAMMA}, R.const([1.0, -1.0], "float32"), R.const([3.0, 0.0], "float32")'
NORM = f"y = R.nn.batch_norm(a, {STATISTICS}, axis={{axis}}, epsilon=1.0)"

FOLDED = {
    "conv2d": (
        X,
        f"a = R.nn.conv2d(x, {WEIGHT}, padding=(1,))\n" + NORM.format(axis=1),
        (
            'a = R.nn.conv2d(x, R.const([[[[1.0]]], [[[6.0]]]], "float32"), padding=(1,))\n'
            'y = R.nn.bias_add(a, R.const([0.0, 2.25], "float32"), axis=1)'
        ),
    ),
    "conv2d with bias": (
        X,
        f'b = R.nn.conv2d(x, {WEIGHT})\na = R.nn.bias_add(b, R.const([4.0, 1.0], "float32"), axis=-3)\n'
        + NORM.format(axis=1),
        (
            'b = R.nn.conv2d(x, R.const([[[[1.0]]], [[[6.0]]]], "float32"))\n'
            'y = R.nn.bias_add(b, R.const([2.0, 4.25], "float32"), axis=1)'
        ),
    ),
    "conv1d": (
        'x: R.Tensor((1, 1, 2), "float32")',
        'a = R.nn.conv1d(x, R.const([[[2.0]], [[3.0]]], "float32"))\n' + NORM.format(axis=1),
        (
            'a = R.nn.conv1d(x, R.const([[[1.0]], [[6.0]]], "float32"))\n'
            'y = R.nn.bias_add(a, R.const([0.0, 2.25], "float32"), axis=1)'
        ),
    ),
    "transposed conv2d": (
        X,
        f"a = R.nn.conv2d_transpose(x, {WEIGHT}, kernel_layout='OIHW')\n" + NORM.format(axis=1),
        (
            'a = R.nn.conv2d_transpose(x, R.const([[[[1.0]]], [[[6.0]]]], "float32"), kernel_layout="OIHW")\n'
            'y = R.nn.bias_add(a, R.const([0.0, 2.25], "float32"), axis=1)'
        ),
    ),
    "transposed conv1d in groups": (
        'x: R.Tensor((1, 4, 3), "float32")',
        'a = R.nn.conv1d_transpose(x, R.const([[[2.0]], [[4.0]], [[3.0]], [[5.0]]], "float32"), groups=2)\n'
        + NORM.format(axis=1),
        (
            'a = R.nn.conv1d_transpose(x, R.const([[[1.0]], [[2.0]], [[6.0]], [[10.0]]], "float32"), groups=2)\n'
            'y = R.nn.bias_add(a, R.const([0.0, 2.25], "float32"), axis=1)'
        ),
    ),
    "dense": (
        MATRIX,
        'a = R.nn.dense(x, R.const([[1.0, 2.0], [3.0, 4.0]], "float32"))\n' + NORM.format(axis=-1),
        (
            'a = R.nn.dense(x, R.const([[0.5, 1.0], [6.0, 8.0]], "float32"))\n'
            'y = R.nn.bias_add(a, R.const([0.0, 2.25], "float32"), axis=-1)'
        ),
    ),
    "matmul": (
        MATRIX,
        'a = R.matmul(x, R.const([[1.0, 2.0], [3.0, 4.0]], "float32"))\n' + NORM.format(axis=1),
        (
            'a = R.matmul(x, R.const([[0.5, 4.0], [1.5, 8.0]], "float32"))\n'
            'y = R.nn.bias_add(a, R.const([0.0, 2.25], "float32"), axis=1)'
        ),
    ),
}


@pytest.mark.parametrize("case", FOLDED)
def test_statistics_go_into_the_weights(case: str) -> None:
    params, before, after = FOLDED[case]
    check_pass(FoldBatchNorm(), params, f"{before}\nreturn y", f"{after}\nreturn y")


def _norm(gamma: str = "1.0, 2.0", variance: str = "3.0, 0.0", axis: int = 1) -> str:
    parts = [f'R.const([{numbers}], "float32")' for numbers in (gamma, "0.5, 0.25", "1.0, -1.0", variance)]
    return f"y = R.nn.batch_norm(a, {', '.join(parts)}, axis={axis}, epsilon=0.0)"


CONV = f"a = R.nn.conv2d(x, {WEIGHT})\n"
KEPT = {
    "no product": (MATRIX, "a = R.abs(x)\n" + NORM.format(axis=1), "y"),
    "another reader": (X, CONV + NORM.format(axis=1), "y, a"),
    "another reader of the product": (
        X,
        f'b = R.nn.conv2d(x, {WEIGHT})\na = R.nn.bias_add(b, R.const([4.0, 1.0], "float32"), axis=1)\n'
        + NORM.format(axis=1),
        "y, b",
    ),
    "a bias along another axis": (
        X,
        f'b = R.nn.conv2d(x, {WEIGHT})\na = R.nn.bias_add(b, R.const([4.0, 1.0], "float32"), axis=2)\n'
        + NORM.format(axis=1),
        "y",
    ),
    "another axis": (X, CONV + NORM.format(axis=2), "y"),
    "weights from outside": (
        f'{X}, w: R.Tensor((2, 1, 1, 1), "float32")',
        "a = R.nn.conv2d(x, w)\n" + NORM.format(axis=1),
        "y",
    ),
    "statistics from outside": (
        f'{X}, g: R.Tensor((2,), "float32")',
        CONV + f"y = R.nn.batch_norm(a, g, {STATISTICS.partition('), ')[2]})",
        "y",
    ),
    "a variance of zero": (X, CONV + _norm(), "y"),
    "a negative variance": (X, CONV + _norm(variance="1.0, -4.0"), "y"),
    "weights that overflow": (X, CONV + _norm(gamma="3e38, 1.0", variance="1.0, 1.0"), "y"),
    "weights that underflow": (X, CONV + _norm(gamma="1e-38, 1.0", variance="4.0, 1.0"), "y"),
}


@pytest.mark.parametrize("case", KEPT)
def test_what_would_change_the_numbers_stays(case: str) -> None:
    params, body, results = KEPT[case]
    check_unchanged(FoldBatchNorm(), params, f"{body}\nreturn {results}")


_UNIT = {"float32": 2.0**-24, "float64": 2.0**-53}


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(("nn.conv2d", "nn.conv2d_transpose", "nn.dense", "matmul")),
    dtype=st.sampled_from(("float32", "float64")),
    data_layout=st.sampled_from(("NCHW", "NHWC")),
    kernel_layout=st.sampled_from(("OIHW", "IOHW", "HWIO")),
    groups=st.sampled_from((1, 2)),
    with_bias=st.booleans(),
)
def test_the_numbers_stay_within_the_bound_of_rounding(
    seed: int, kind: str, dtype: str, data_layout: str, kernel_layout: str, groups: int, with_bias: bool
) -> None:
    """A sum of K terms in any order has the error ``gamma(K)`` times the sum of magnitudes (Higham, section 3.1)."""
    generator = np.random.default_rng(seed)

    def draw(*shape: int) -> Any:
        return generator.normal(size=shape).astype(dtype)

    fb = FunctionBuilder("main")
    if kind.startswith("nn.conv"):
        is_transposed = kind.endswith("transpose")
        filters = {"O": 6 // groups, "I": 4} if is_transposed else {"O": 6, "I": 4 // groups}
        sizes = {**filters, "H": 3, "W": 2, "N": 2, "C": 4}
        shape = [{**sizes, "H": 5, "W": 5}[axis] for axis in data_layout]
        weight = draw(*(sizes[axis] for axis in kernel_layout))
        attrs: dict[str, Any] = {"groups": groups, "data_layout": data_layout, "kernel_layout": kernel_layout}
        axis, length = data_layout.index("C"), 4 // groups * 6
    else:
        shape, attrs, axis, length = [3, 4], {}, 1, 4
        weight = draw(6, 4) if kind == "nn.dense" else draw(4, 6)
    x = fb.param("x", tensor(shape, dtype))
    y: Any = fb.emit(kind, x, weight, **attrs)
    bias = draw(6) if with_bias else np.zeros(6, dtype)
    if with_bias:
        y = fb.emit("nn.bias_add", y, bias, axis=axis)
    gamma, beta, mean, variance = draw(6), draw(6), draw(6), np.abs(draw(6)) + np.asarray(0.1, dtype)
    y = fb.emit("nn.batch_norm", y, gamma, beta, mean, variance, axis=axis, epsilon=1e-3)
    module = IRModule({"main": fb.finish(y)}, fb.constants)
    after = verify(FoldBatchNorm()(module))
    assert [binding.op.name for binding in after["main"].bindings] == [kind, "nn.bias_add"]

    image = draw(*shape)
    scale = np.abs(gamma.astype(float)) / np.sqrt(variance.astype(float) + 1e-3)
    # Every weight of an output channel has the same factor, which may as well stand behind the sum.
    along = [-1 if index == axis else 1 for index in range(len(shape))]
    product: Any = KERNELS[kind](np.abs(image).astype(float), np.abs(weight.astype(float)), **_full(kind, attrs))
    constant = (np.abs(bias) + np.abs(mean)).astype(float) * scale + np.abs(beta)
    magnitude = product * scale.reshape(along) + constant.reshape(along)
    for exact in (False, True):
        (want,) = evaluate_function(module, "main", [image], exact=exact)
        (have,) = evaluate_function(after, "main", [image], exact=exact)
        # Two sums, the four roundings of the scale, its product, and the bias: each side has no more.
        terms = 2 * (length + 8) if not exact or dtype == "float64" else 1.01
        error = terms * _UNIT[dtype]
        assert np.all(np.abs(have.astype(float) - want) <= error / (1 - error) * magnitude)


def _full(kind: str, attrs: dict[str, Any]) -> dict[str, Any]:
    if not attrs:
        return {}
    windows = {"strides": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), **attrs}
    return windows | {"output_padding": (0, 0)} if kind.endswith("transpose") else windows
