"""The kit's rules: each accepts results right by the arithmetic, and nothing beyond the bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_conformance.judging import judge
from byoc_core.debugging.rounding import Rule, rule_of
from byoc_core.dtypes import computing_dtypes, float_limits, is_float, to_numpy
from byoc_core.ir import FunctionBuilder, IRModule, OpDef, OperandSpec, TensorType, no_flops
from byoc_core.ops import default_ops
from byoc_core.ops.cases import canonical_cases, new_function
from byoc_core.transform import evaluate_function

NDArray = npt.NDArray[Any]
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((2, 3, 40)).astype(np.float32)


def one_op(op: str, *arrays: NDArray, **attrs: object) -> IRModule:
    types = [TensorType(array.shape, array.dtype.name) for array in arrays]
    return IRModule({"main": new_function(default_ops()[op], types, attrs)[0]})


def text_of(
    op: str,
    inputs: tuple[NDArray, ...],
    found: NDArray,
    unit_roundoff: Mapping[str, float] | None = None,
    **attrs: object,
) -> str:
    return judge(one_op(op, *inputs, **attrs), "main", inputs, [found], unit_roundoff or {}).text


def test_ops_have_the_rule_that_they_state() -> None:
    found: dict[Rule, list[str]] = {rule: [] for rule in Rule}
    for name, cases in canonical_cases(default_ops()).items():
        binding = new_function(default_ops()[name], cases[0].types(), cases[0].attrs)[1]
        found[rule_of(binding)].append(name)
    assert {"nn.softmax", "nn.layer_norm", "nn.lstm", "nn.attention", "quantize", "prod"} <= set(found[Rule.NORM])
    assert {"reshape", "concat", "where", "take", "full", "nn.pad"} <= set(found[Rule.MOVEMENT])
    assert {"equal", "argmax", "shape_of", "nonzero"} <= set(found[Rule.EQUAL])
    assert {"matmul", "nn.conv2d", "mean", "nn.adaptive_avg_pool3d"} <= set(found[Rule.SUM])
    assert {"add", "exp", "nn.gelu", "nn.max_pool2d", "cast"} <= set(found[Rule.ULP])


@pytest.mark.parametrize(("op", "ulps"), [("add", 0.5), ("exp", 3.0), ("sqrt", 3.0)])
def test_a_function_may_be_off_by_its_bound_and_no_more(op: str, ulps: float) -> None:
    inputs = (X, Y) if op == "add" else (np.abs(X),)
    (exact,) = evaluate_function(one_op(op, *inputs), "main", inputs, exact=True)
    rounded = exact.astype(np.float32)
    assert text_of(op, inputs, rounded) == ""
    # A number is at least half as large as the next power of two: twice its ULP are more than the bound in any case.
    off = rounded + np.spacing(rounded) * np.float32(2 * ulps + 2)
    assert "elements are wrong" in text_of(op, inputs, off)


def test_the_text_names_the_worst_element() -> None:
    found = X + Y
    found[1, 7] += 1
    exact = float(X[1, 7]) + float(Y[1, 7])
    bound = 2.0**-24 * abs(exact) + float(np.finfo(np.float32).smallest_normal)
    assert text_of("add", (X, Y), found) == (
        f"result 0: 1 of 120 elements are wrong; the worst at [1, 7]: got {found[1, 7]!s}, expected {exact}, "
        f"allowed error {bound:.3g}"
    )


def test_elements_with_more_terms_than_others_may_be_off_by_more() -> None:
    x = (np.random.default_rng(2).random(200) + 1).astype(np.float16)
    running = np.empty_like(x)
    total = np.float16(0)
    for index, number in enumerate(x):
        running[index] = total = np.float16(total + number)
    assert text_of("cumsum", (x,), running, axis=0) == ""
    assert "elements are wrong" in text_of("cumsum", (x,), running * np.float16(2), axis=0)


def test_another_shape_or_dtype_is_wrong() -> None:
    assert text_of("add", (X, Y), X[:2]) == "result 0: got float32[2, 40], expected float32[3, 40]"
    assert text_of("add", (X, Y), X.astype(np.float64)) == "result 0: got float64[3, 40], expected float32[3, 40]"


@pytest.mark.parametrize("order", [1, -1])
def test_a_sum_may_be_added_in_any_order(order: int) -> None:
    weight = RNG.standard_normal((4, 40)).astype(np.float32)
    total = np.zeros((3, 4), np.float32)
    for k in range(40)[::order]:
        total += X[:, k, None] * weight[:, k]
    assert text_of("nn.dense", (X, weight), total) == ""


def test_a_sum_that_leaves_out_a_term_is_wrong() -> None:
    weight = RNG.standard_normal((4, 40)).astype(np.float32)
    assert "elements are wrong" in text_of("nn.dense", (X, weight), X[:, 1:] @ weight[:, 1:].T)


def test_half_precision_is_right_only_where_it_is_stated() -> None:
    weight = RNG.standard_normal((4, 40)).astype(np.float32)
    found = (X.astype(np.float16).astype(np.float32)) @ (weight.astype(np.float16).astype(np.float32)).T
    assert "elements are wrong" in text_of("nn.dense", (X, weight), found)
    assert text_of("nn.dense", (X, weight), found, {"float32": 2.0**-11}) == ""
    coarse = np.exp(X.astype(np.float16)).astype(np.float32)
    assert "elements are wrong" in text_of("exp", (X,), coarse)
    assert text_of("exp", (X,), coarse, {"float32": 2.0**-11}) == ""


def test_moved_data_keeps_every_bit() -> None:
    x = np.array([0.0, -0.0, 1e-40, np.nan, np.inf, 1.0], np.float32)
    assert text_of("flip", (x,), x[::-1].copy(), axis=0) == ""
    other_nan = x[::-1].copy()
    other_nan.view(np.uint32)[2] ^= 1
    assert text_of("flip", (x,), other_nan, axis=0) == ""
    for index, value in ((4, 0.0), (3, 0.0), (0, np.nextafter(np.float32(1), np.float32(2)))):
        changed = x[::-1].copy()
        changed[index] = value
        assert "1 of 6 elements are wrong" in text_of("flip", (x,), changed, axis=0)


@pytest.mark.parametrize("moves", [False, True])
def test_an_op_of_a_plugin_moves_data_only_if_it_says_so(*, moves: bool) -> None:
    op = OpDef("toy.softsign", (OperandSpec("x"),), lambda c: (c.tensor(0),), kernel=lambda x: x / (1 + abs(x)))
    op = replace(op, flops=no_flops) if moves else op
    function, binding = new_function(op, [TensorType(X.shape, "float32")], {})
    assert rule_of(binding) is (Rule.MOVEMENT if moves else Rule.NORM)
    module = IRModule({"main": function})
    (exact,) = evaluate_function(module, "main", (X,))
    assert judge(module, "main", (X,), [exact], {}).text == ""
    assert bool(judge(module, "main", (X,), [np.nextafter(exact, np.float32(2))], {}).text) is moves
    assert judge(module, "main", (X,), [exact + np.float32(0.1)], {}).text


def test_nan_and_infinities_are_not_lost() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    assert text_of("nn.relu", (x,), np.array([np.nan, np.inf, 0, 1], np.float32)) == ""
    for wrong in ([0, np.inf, 0, 1], [np.nan, 3e38, 0, 1], [np.nan, np.inf, np.nan, 1], [np.nan, np.inf, 0, np.nan]):
        assert "1 of 4 elements are wrong" in text_of("nn.relu", (x,), np.array(wrong, np.float32))


def test_subnormal_numbers_may_be_taken_for_zero() -> None:
    x = np.array([1e-40, -1e-40, 1.0], np.float32)
    assert text_of("log", (x,), np.array([-np.inf, -np.inf, 0.0], np.float32)) == ""
    assert text_of("log", (x,), np.log(np.abs(x)) * np.array([1, np.nan, 1], np.float32)) == ""
    assert text_of("sign", (x,), np.array([0, 0, 1], np.float32)) == ""
    assert text_of("less", (x, np.zeros(3, np.float32)), np.array([False, False, False])) == ""
    assert "1 of 3 elements are wrong" in text_of("sign", (x,), np.array([0, 0, 0], np.float32))


def test_one_operand_alone_may_be_taken_for_zero() -> None:
    x, y = np.array([1e-39, 1e-38], np.float32), np.array([2e-38, 1e-39], np.float32)
    assert text_of("divide", (x, y), x / y) == ""
    assert text_of("divide", (x, y), np.array([0.0, np.inf], np.float32)) == ""  # both
    assert text_of("divide", (x, y), np.array([0.0, 10.0], np.float32)) == ""  # the first alone
    assert text_of("divide", (x, y), np.array([0.05, np.inf], np.float32)) == ""  # the second alone
    assert "1 of 2 elements are wrong" in text_of("divide", (x, y), np.array([1.0, 10.0], np.float32))


def test_coarse_arithmetic_may_flush_too() -> None:
    """The first term is 0.3, or nothing if subnormal numbers are flushed to zero."""
    x, weight = np.array([[1e-39, 1.3]], np.float32), np.array([[3e38, 1.7]], np.float32)
    coarse = np.array([[1.3 * 1.7 * (1 + 2.0**-11)]], np.float32)
    assert text_of("nn.dense", (x, weight), coarse, {"float32": 2.0**-11}) == ""
    assert "elements are wrong" in text_of("nn.dense", (x, weight), coarse)


def test_who_computes_on_finite_numbers_only_is_not_judged_on_others() -> None:
    module = one_op("nn.relu", X)
    wild = X.copy()
    wild[1, 7] = np.nan
    for inputs, found, is_right in (((X,), np.zeros_like(X), False), ((wild,), np.zeros_like(X), True)):
        assert judge(module, "main", inputs, [found], {}, finite_only=True).is_right is is_right
        assert not judge(module, "main", inputs, [found], {}).is_right
    overflow = one_op("exp", X)
    assert judge(overflow, "main", (X * 1000,), [X], {}, finite_only=True).is_right


def test_a_byte_is_exact_where_its_quotient_is() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, 3.0], np.float32)
    zero = np.array(1, np.int8)
    away = np.array([2, 3, 4, 0, 4], np.int8)  # ties go to the even neighbour of what they are with the zero point
    for scale, is_right in ((np.float32(1), False), (np.float32(0.1), True)):
        exact = (np.rint(x) + 1).astype(np.int8)
        operands = (x * scale, np.array(scale), zero)
        assert text_of("quantize", operands, exact) == ""
        assert (text_of("quantize", operands, away) == "") is is_right


def test_nan_in_a_convolution_stays_where_it_is_read() -> None:
    image = RNG.standard_normal((1, 2, 8, 8)).astype(np.float32)
    image[0, 0, 2, 2] = np.nan
    weight = RNG.standard_normal((3, 2, 3, 3)).astype(np.float32)
    (right,) = evaluate_function(one_op("nn.conv2d", image, weight), "main", (image, weight))
    assert text_of("nn.conv2d", (image, weight), right) == ""
    with_further_nan = right.copy()
    with_further_nan[0, 0, 5, 5] = np.nan
    assert "1 of 108 elements are wrong" in text_of("nn.conv2d", (image, weight), with_further_nan)
    lost = np.nan_to_num(right)
    assert "27 of 108 elements are wrong" in text_of("nn.conv2d", (image, weight), lost)


def test_an_op_may_be_coarser_than_the_others() -> None:
    coarse = np.exp(X.astype(np.float16)).astype(np.float32)
    assert text_of("exp", (X,), coarse, {"exp:float32": 2.0**-10}) == ""
    assert "elements are wrong" in text_of("exp", (X,), coarse, {"log:float32": 2.0**-10, "exp:float64": 2.0**-10})


def test_what_is_as_large_as_the_type_holds_may_overflow() -> None:
    largest = float_limits("float32").largest
    x = np.array([np.log(largest)], np.float32)
    (exact,) = evaluate_function(one_op("exp", x), "main", (x,), exact=True)
    assert 0.99 < exact[0] / largest < 1.01
    assert text_of("exp", (x,), np.array([np.inf], np.float32)) == ""
    assert text_of("exp", (x,), np.array([-np.inf], np.float32)) != ""
    assert text_of("exp", (np.array([80], np.float32),), np.array([np.inf], np.float32)) != ""


def test_what_an_op_leaves_open_is_nobodys_fault() -> None:
    x = np.array([300.0, np.nan, -1.0, 7.9], np.float32)
    assert text_of("cast", (x,), np.array([44, 0, 255, 7], np.uint8), dtype="uint8") == ""
    assert "1 of 4 elements are wrong" in text_of("cast", (x,), np.array([255, 9, 0, 8], np.uint8), dtype="uint8")
    shifts = np.array([-1, 2], np.int32)
    assert text_of("left_shift", (np.array([1, 1], np.int32), shifts), np.array([77, 4], np.int32)) == ""
    assert text_of("left_shift", (np.array([1, 1], np.int32), shifts), np.array([77, 5], np.int32)) != ""


def test_a_graph_is_judged_as_the_debugger_does() -> None:
    builder = FunctionBuilder("main", ops=default_ops())
    x, y = (builder.param(name, TensorType((3, 40), "float32")) for name in "xy")
    total = builder.emit("add", x, y)
    assert not isinstance(total, tuple)
    result = builder.emit("multiply", total, total)
    assert not isinstance(result, tuple)
    module = IRModule({"main": builder.finish(result)}, builder.constants)
    found = (X + Y) * (X + Y)
    assert judge(module, "main", (X, Y), [found], {}).is_right
    wrong = found.copy()
    wrong[2, 39] += 0.1
    assert judge(module, "main", (X, Y), [wrong], {}).text.startswith("wrong-values: output `output0`: error 0.1")
    rounded = found.astype(np.float16).astype(np.float32)
    assert not judge(module, "main", (X, Y), [rounded], {}).is_right
    assert judge(module, "main", (X, Y), [rounded], {"float32": 2.0**-11}).is_right


@pytest.mark.parametrize("dtype", [name for name in computing_dtypes() if is_float(name)])
def test_correct_rounding_is_right_in_every_dtype(dtype: str) -> None:
    x = X.astype(to_numpy(dtype))
    for op in ("exp", "sigmoid", "nn.gelu", "negative", "sin"):
        (exact,) = evaluate_function(one_op(op, x), "main", (x,), exact=True)
        assert text_of(op, (x,), exact.astype(x.dtype)) == "", op
        wrong = (exact * 1.5 + 1).astype(x.dtype)
        assert text_of(op, (x,), wrong) != "", op
