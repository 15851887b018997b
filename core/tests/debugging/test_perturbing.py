"""The permitted error of each op, propagated through all following ops."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core import parse
from byoc_core.debugging import References, Tolerance, compare_outputs
from byoc_core.ir import IRModule
from byoc_core.transform import evaluate_function

Array = npt.NDArray[np.float32]
RNG = np.random.default_rng(3)


def text_of(module: IRModule, inputs: tuple[Array, ...], found: Array, **stated: float) -> str:
    references = References(module, "main", inputs, {name.replace("_", ":"): unit for name, unit in stated.items()})
    findings, _ = compare_outputs([found], ["y"], references, Tolerance())
    return "; ".join(finding.text for finding in findings)


def gelu(x: Array) -> Array:
    return (
        np.float32(0.5)
        * x
        * (np.float32(1) + np.array([math.erf(v) for v in (x / np.float32(2**0.5)).flat], np.float32).reshape(x.shape))
    )


def test_a_formula_whose_terms_cancel_is_right_in_a_graph_as_alone() -> None:
    """After log_softmax all values are negative: there, GELU is the small difference of two large terms."""
    module = parse("""
@R.function
def main(x: R.Tensor((2, 64), "float32")):
    a = R.nn.log_softmax(x)
    b = R.nn.gelu(a)
    c = R.nn.leaky_relu(b)
    return c
""")
    x = RNG.standard_normal((2, 64)).astype(np.float32) * 0.01
    logs = (x - np.log(np.exp(x).sum(-1, keepdims=True))).astype(np.float32)
    tail = gelu(logs)
    assert text_of(module, (x,), np.where(tail < 0, tail * np.float32(0.01), tail)) == ""
    assert "more than" in text_of(module, (x,), np.where(tail < 0, tail * np.float32(0.02), tail))


def test_what_the_ops_behind_magnify_is_no_fault_of_theirs() -> None:
    """Logits of 7e9 have errors of hundreds; softmax turns these into another class."""
    module = parse("""
@R.function
def main(x: R.Tensor((1, 256), "float32"), w: R.Tensor((4, 256), "float32")):
    a = R.nn.dense(x, w)
    b = R.nn.softmax(a)
    return b
""")
    x = RNG.standard_normal((1, 256)).astype(np.float32) * np.float32(1e4)
    w = np.repeat(x, 4, axis=0)  # all classes are equal
    tied = np.array([[1.0, 0.0, 0.0, 0.0]], np.float32)
    assert text_of(module, (x, w), tied) == ""
    w[1] *= 2
    (right,) = evaluate_function(module, "main", (x, w))
    assert text_of(module, (x, w), right) == ""
    assert "more than" in text_of(module, (x, w), right[:, ::-1].copy())  # no rounding makes that of it


@pytest.mark.parametrize("flushed", [False, True])
def test_subnormal_values_between_ops_may_be_taken_for_zero(*, flushed: bool) -> None:
    module = parse("""
@R.function
def main(x: R.Tensor((4,), "float32")):
    a = R.multiply(x, x)
    b = R.divide(x, a)
    return b
""")
    x = np.array([1e-20, 2e-20, 1e-3, 3.0], np.float32)
    square = x * x
    if flushed:
        square[np.abs(square) < np.finfo(np.float32).smallest_normal] = 0
    with np.errstate(all="ignore"):
        found = x / square
    assert text_of(module, (x,), found) == ""
    found[2] = np.inf
    assert text_of(module, (x,), found)


def test_an_op_that_states_coarser_arithmetic_is_judged_by_it_downstream_too() -> None:
    module = parse("""
@R.function
def main(x: R.Tensor((3, 40), "float32")):
    a = R.exp(x)
    b = R.multiply(a, a)
    return b
""")
    x = RNG.standard_normal((3, 40)).astype(np.float32)
    half = np.exp(x).astype(np.float16).astype(np.float32)
    assert "more than" in text_of(module, (x,), half * half)
    assert text_of(module, (x,), half * half, exp_float32=2.0**-11) == ""
    assert "more than" in text_of(module, (x,), half * half, multiply_float16=2.0**-11)


def test_a_small_error_is_seen_where_nothing_magnifies_it() -> None:
    module = parse("""
@R.function
def main(x: R.Tensor((8, 8), "float32"), y: R.Tensor((8, 8), "float32")):
    a = R.add(x, y)
    b = R.multiply(a, y)
    c = R.nn.relu(b)
    return c
""")
    x, y = RNG.standard_normal((2, 8, 8)).astype(np.float32)
    found = np.maximum((x + y) * y, np.float32(0))
    assert text_of(module, (x, y), found) == ""
    found[found.argmax() // 8, found.argmax() % 8] *= np.float32(1 + 3e-6)
    assert "more than" in text_of(module, (x, y), found)
