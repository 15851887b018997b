"""Folding of factors and terms of channels into earlier parameters, and the change of results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core.ir import IRModule, tensor, verify
from byoc_core.ops import FunctionBuilder
from byoc_core.transform import FoldScales, evaluate_function
from hypothesis import given, settings
from hypothesis import strategies as st

from core.tests.ir_text import check_pass, check_unchanged

X = 'x: R.Tensor((1, 1, 2, 2), "float32")'
IMAGE = 'x: R.Tensor((1, 2, 2, 2), "float32")'
MATRIX = 'x: R.Tensor(("n", 2), "float32")'
CONV = 'a = R.nn.conv2d(x, R.const([[[[2.0]]], [[[3.0]]]], "float32"))'
BIASED = (
    'b = R.nn.conv2d(x, R.const([[[[2.0]]], [[[3.0]]]], "float32"))\n'
    'a = R.nn.bias_add(b, R.const([4.0, 1.0], "float32"), axis=1)'
)
OTHERS = 'R.const([7.0, 8.0], "float32"), R.const([1.0, 2.0], "float32")'
NORM = f'a = R.nn.batch_norm(x, R.const([1.0, 2.0], "float32"), R.const([0.5, 0.25], "float32"), {OTHERS}, axis=1)'
NUMBERS = 'R.const([[[2.0]], [[-3.0]]], "float32")'
TIMES, PLUS = f"y = R.multiply(a, {NUMBERS})", f"y = R.add({NUMBERS}, a)"

FOLDED = {
    "conv2d by a factor": (X, f"{CONV}\n{TIMES}", 'y = R.nn.conv2d(x, R.const([[[[4.0]]], [[[-9.0]]]], "float32"))'),
    "conv2d with bias by a factor": (
        X,
        f"{BIASED}\n{TIMES}",
        (
            'b = R.nn.conv2d(x, R.const([[[[4.0]]], [[[-9.0]]]], "float32"))\n'
            'y = R.nn.bias_add(b, R.const([8.0, -3.0], "float32"), axis=1)'
        ),
    ),
    "conv2d with bias and a term": (
        X,
        f"{BIASED}\n{PLUS}",
        (
            'b = R.nn.conv2d(x, R.const([[[[2.0]]], [[[3.0]]]], "float32"))\n'
            'y = R.nn.bias_add(b, R.const([6.0, -2.0], "float32"), axis=1)'
        ),
    ),
    "batch norm by a factor, and a term": (
        IMAGE,
        f"{NORM}\nc = R.multiply({NUMBERS}, a)\ny = R.add(c, {NUMBERS})",
        f'y = R.nn.batch_norm(x, R.const([2.0, -6.0], "float32"), R.const([3.0, -3.75], "float32"), {OTHERS}, axis=1)',
    ),
    "dense by a factor": (
        MATRIX,
        (
            'a = R.nn.dense(x, R.const([[1.0, 2.0], [3.0, 4.0]], "float32"))\n'
            'y = R.multiply(a, R.const([2.0, 0.5], "float32"))'
        ),
        'y = R.nn.dense(x, R.const([[2.0, 4.0], [1.5, 2.0]], "float32"))',
    ),
}


@pytest.mark.parametrize("case", FOLDED)
def test_numbers_go_into_the_parameters(case: str) -> None:
    params, before, after = FOLDED[case]
    check_pass(FoldScales(), params, f"{before}\nreturn y", f"{after}\nreturn y")


KEPT = {
    "no product": (IMAGE, f"a = R.abs(x)\n{TIMES}", "y"),
    "another reader": (X, f"{CONV}\n{TIMES}", "y, a"),
    "a term without a bias": (X, f"{CONV}\n{PLUS}", "y"),
    "another axis": (X, f'{CONV}\ny = R.multiply(a, R.const([[2.0], [3.0]], "float32"))', "y"),
    "two axes": (X, f'{CONV}\ny = R.multiply(a, R.const([[[2.0], [1.0]], [[3.0], [4.0]]], "float32"))', "y"),
    "one number": (X, f'{CONV}\ny = R.multiply(a, R.const(2.0, "float32"))', "y"),
    "numbers from outside": (f'{X}, w: R.Tensor((2, 1, 1), "float32")', f"{CONV}\ny = R.multiply(a, w)", "y"),
    "a result of more axes": (X, f'{CONV}\ny = R.multiply(a, R.const([[[[[2.0]], [[3.0]]]]], "float32"))', "y"),
    "weights that overflow": (X, f'{CONV}\ny = R.multiply(a, R.const([[[3e38]], [[1.0]]], "float32"))', "y"),
    "batch norm along another axis": (IMAGE, f"{NORM.replace('axis=1', 'axis=2')}\n{TIMES}", "y"),
    "a gamma that overflows": (IMAGE, f'{NORM}\ny = R.multiply(a, R.const([[[1.0]], [[3e38]]], "float32"))', "y"),
}


@pytest.mark.parametrize("case", KEPT)
def test_all_else_stays(case: str) -> None:
    params, body, results = KEPT[case]
    check_unchanged(FoldScales(), params, f"{body}\nreturn {results}")


UNIT = 2.0**-24


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), with_norm=st.booleans())
def test_the_numbers_stay_within_the_bound_of_rounding(seed: int, with_norm: bool) -> None:
    """A sum of K terms in any order has the error ``gamma(K)`` times the sum of magnitudes (Higham, section 3.1)."""
    generator = np.random.default_rng(seed)

    def draw(*shape: int) -> Any:
        return generator.normal(size=shape).astype(np.float32)

    fb = FunctionBuilder("main")
    x = fb.param("x", tensor((1, 4, 5, 5)))
    if with_norm:
        gamma, beta, mean, variance = draw(4), draw(4), draw(4), np.abs(draw(4)) + np.float32(0.1)
        y: Any = fb.emit("nn.batch_norm", x, gamma, beta, mean, variance, axis=1, epsilon=1e-3)
    else:
        y = fb.emit("nn.conv2d", x, draw(4, 4, 3, 3))
        y = fb.emit("nn.bias_add", y, draw(4), axis=1)
    y = fb.emit("multiply", y, draw(4, 1, 1))
    y = fb.emit("add", y, draw(1, 4, 1, 1))
    module = IRModule({"main": fb.finish(y)}, fb.constants)
    after = verify(FoldScales()(module))
    assert [binding.op.name for binding in after["main"].bindings][-1] != "add"
    assert len(after["main"].bindings) == len(module["main"].bindings) - 2

    image = draw(1, 4, 5, 5)
    (want,) = evaluate_function(module, "main", [image], exact=True)
    (magnitude,) = evaluate_function(_magnitudes(module), "main", [np.abs(image)], exact=True)
    (have,) = evaluate_function(after, "main", [image], exact=True)
    # Each parameter is rounded once; batch norm has two that a result depends on, and a convolution's sum as well.
    assert np.all(np.abs(have - want) <= 2.02 * UNIT * magnitude)


def _magnitudes(module: IRModule) -> IRModule:
    """Return the module with the magnitudes of all constants, except for means with reversed signs."""
    function = module["main"]
    fb = FunctionBuilder("main")
    values: dict[Any, Any] = {param: fb.param(param.name, param.type) for param in function.params}
    for binding in function.bindings:
        operands = []
        for number, value in enumerate(binding.operands):
            if value in values:
                operands.append(values[value])
            else:
                size = np.abs(module.constants[value.digest])  # type: ignore[union-attr]
                operands.append(fb.const(-size if binding.op.name == "nn.batch_norm" and number == 3 else size))
        values[binding.result] = fb.emit(binding.op.name, *operands, **binding.attrs)  # type: ignore[arg-type]
    return IRModule({"main": fb.finish(*(values[value] for value in function.results))}, fb.constants)
