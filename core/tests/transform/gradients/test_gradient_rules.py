"""The rule of each op, on canonical cases and variants, for known and unknown sizes; derivatives of derivatives."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
from byoc_core.errors import IRTypeError
from byoc_core.ir import IRModule, TensorType, tensor
from byoc_core.ops import FunctionBuilder, OpCase, default_ops
from byoc_core.transform import evaluate_function
from byoc_core.transform.gradients import RULES

from core.tests.ir_text import parse_main
from core.tests.transform.gradients.cases import CONSTANT_OPERANDS, all_cases, build_module, draw_inputs
from core.tests.transform.gradients.differences import (
    check_gradients,
    check_slopes,
    float_params,
    gradient_module,
    separated,
    weighted_sum,
)

OWN_TESTS = {"as_dynamic", "cast"}
FIRST_ORDER_ONLY = {"prod"}
"""Ops with a rule emitting an op without rule."""
OF_KNOWN_SIZES = {"full"}
"""Ops without a case of unknown sizes: the operands have no sizes, or the type rule refuses unknown sizes."""

OPS = sorted(set(RULES) - OWN_TESTS)


def _variables(case: OpCase, module: IRModule) -> list[int]:
    return [index for index in float_params(module) if index not in CONSTANT_OPERANDS.get(case.op, ())]


@contextmanager
def _noting(case: OpCase) -> Iterator[None]:
    """Add the case to the text of an error."""
    try:
        yield
    except Exception as error:
        error.add_note(str(case))
        raise


def test_rules_are_of_ops_of_the_core() -> None:
    assert set(RULES) <= set(default_ops())


@pytest.mark.parametrize("op", OPS)
def test_slopes(op: str) -> None:
    for case in all_cases(op):
        with _noting(case):
            generator = np.random.default_rng(1)
            module = build_module(case)
            check_gradients(module, draw_inputs(case, generator), generator, _variables(case, module))


@pytest.mark.parametrize("op", OPS)
def test_slopes_of_unknown_sizes(op: str) -> None:
    count = 0
    for case, everywhere in itertools.product(all_cases(op), (False, True)):
        types = case.symbolic_types(everywhere=everywhere)
        if not any(type_.symbols for type_ in types):
            continue
        try:
            module = build_module(case, types)
        except IRTypeError:  # the op needs known sizes
            continue
        with _noting(case):
            generator = np.random.default_rng(2)
            check_gradients(module, draw_inputs(case, generator), generator, _variables(case, module))
        count += 1
    assert (count == 0) == (op in OF_KNOWN_SIZES)


@pytest.mark.parametrize("op", sorted(set(OPS) - FIRST_ORDER_ONLY))
def test_slopes_of_gradients(op: str) -> None:
    for case in itertools.islice(all_cases(op), 2):
        with _noting(case):
            generator = np.random.default_rng(3)
            module = build_module(case)
            inputs = draw_inputs(case, generator)
            results = evaluate_function(module, "main", inputs)
            weights = [generator.uniform(0.5, 1.5, result.shape) for result in results if result.dtype == np.float64]
            gradients = gradient_module(weighted_sum(module), _variables(case, module))
            check_gradients(gradients, [*inputs, *weights], generator, _variables(case, module))


@pytest.mark.parametrize("op", sorted(FIRST_ORDER_ONLY))
def test_ops_of_first_order_only(op: str) -> None:
    module = build_module(next(all_cases(op)))
    gradients = gradient_module(weighted_sum(module), [0])
    with pytest.raises(Exception, match="meets ops without a derivative; got op `cumprod`"):
        gradient_module(weighted_sum(gradients), [0])


def test_the_check_sees_a_wrong_gradient() -> None:
    params = 'x: R.Tensor((2, 3), "float64")'
    right, wrong = (parse_main(params, f"y = R.{op}(x)\nz = R.sum(y)\nreturn z") for op in ("sin", "tanh"))
    generator = np.random.default_rng(1)
    x = separated(generator, (2, 3))
    check_slopes(right, gradient_module(right, [0]), [x], 6, generator, [0])
    with pytest.raises(AssertionError):
        check_slopes(right, gradient_module(wrong, [0]), [x], 6, generator, [0])


def test_casts_between_floats() -> None:
    module = parse_main(
        'x: R.Tensor((3,), "float64")',
        """
        a = R.cast(x, dtype="float32")
        b = R.multiply(a, R.const([2.0, 3.0, 4.0], "float32"))
        c = R.cast(b, dtype="float64")
        y = R.sum(c)
        return y
        """,
    )
    (gradient,) = evaluate_function(gradient_module(module, [0]), "main", [np.ones(3)])
    assert gradient.dtype == np.float64
    np.testing.assert_array_equal(gradient, [2, 3, 4])


def test_casts_to_integers_have_no_slope() -> None:
    module = parse_main(
        'x: R.Tensor((3,), "float64")',
        'a = R.cast(x, dtype="int64")\nb = R.cast(a, dtype="float64")\nc = R.multiply(b, x)\ny = R.sum(c)\nreturn y',
    )
    (gradient,) = evaluate_function(gradient_module(module, [0]), "main", [np.array([1.5, -2.5, 3.25])])
    np.testing.assert_array_equal(gradient, [1, -2, 3])


def test_sizes_changed_to_run_time() -> None:
    module = parse_main(
        'x: R.Tensor((2, 3), "float64"), y: R.Tensor((3,), "float64")',
        """
        a, b = R.as_dynamic(x, y, axes=(1, 0), out_types=[R.Tensor((2, "k"), "float64"), R.Tensor(("k",), "float64")])
        c = R.multiply(a, b)
        d = R.sin(c)
        z = R.sum(d)
        return z
        """,
    )
    generator = np.random.default_rng(1)
    check_gradients(module, [separated(generator, (2, 3)), separated(generator, (3,))], generator)


def test_ties() -> None:
    """Equal extremes share the cotangent, of two operands and of a reduction; a window has a first largest element."""
    x = np.array([[1.0, 1.0, 0.0, 1.0]])
    expected: dict[str, Sequence[Sequence[float]]] = {
        "y = R.max(x)": [[1 / 3, 1 / 3, 0, 1 / 3]],
        'a = R.maximum(x, R.const(1.0, "float64"))\ny = R.sum(a)': [[0.5, 0.5, 0, 0.5]],
        "a = R.reshape(x, shape=(1, 1, 4))\nb = R.nn.max_pool1d(a, pool_size=(2,))\ny = R.sum(b)": [[1, 0, 0, 1]],
        "a = R.nn.relu(x)\ny = R.sum(a)": [[1, 1, 0, 1]],
        "a = R.abs(x)\ny = R.sum(a)": [[1, 1, 0, 1]],
        "a = R.clip(x, min=0.0, max=1.0)\ny = R.sum(a)": [[1, 1, 1, 1]],
    }
    for body, gradient in expected.items():
        module = parse_main('x: R.Tensor((1, 4), "float64")', f"{body}\nreturn y")
        (found,) = evaluate_function(gradient_module(module, [0]), "main", [x])
        np.testing.assert_allclose(found, gradient, rtol=4e-16, atol=0)


def test_powers_of_zero() -> None:
    params = 'x: R.Tensor((3,), "float64"), y: R.Tensor((3,), "float64")'
    module = parse_main(params, "a = R.power(x, y)\nz = R.sum(a)\nreturn z")
    found = evaluate_function(gradient_module(module, [0, 1]), "main", [np.zeros(3), np.array([0.0, 1.0, 2.0])])
    np.testing.assert_array_equal(found, [[0, 1, 0], [0, 0, 0]])


def test_lines_without_numbers_are_constant() -> None:
    """Masked attention replaces the weights of steps without keys, the softmax of minus infinities."""
    module = parse_main(
        'x: R.Tensor((2, 3), "float64"), m: R.Tensor((2, 1), "float64"), v: R.Tensor((3,), "float64")',
        """
        a = R.add(x, m)
        b = R.nn.softmax(a)
        c = R.isnan(b)
        d = R.where(c, R.const(0.0, "float64"), b)
        e = R.matmul(d, v)
        y = R.sum(e)
        return y
        """,
    )
    inputs = [np.arange(6.0).reshape(2, 3), np.array([[-np.inf], [0.0]]), np.array([1.0, 2, 4])]
    (found,) = evaluate_function(gradient_module(module, [0]), "main", inputs)
    np.testing.assert_array_equal(found[0], [0, 0, 0])
    assert found[1].all()


def test_means_of_more_elements_than_a_float16() -> None:
    module = parse_main('x: R.Tensor((400, 400), "float16")', "y = R.mean(x)\nreturn y")
    (found,) = evaluate_function(gradient_module(module, [0]), "main", [np.ones((400, 400), np.float16)])
    np.testing.assert_allclose(found, 1 / 160000, rtol=2**-6)  # a subnormal of five digits


def test_products_of_zeros() -> None:
    module = parse_main('x: R.Tensor((2, 3), "float64")', "a = R.prod(x, axis=(1,))\nz = R.sum(a)\nreturn z")
    (found,) = evaluate_function(gradient_module(module, [0]), "main", [np.array([[0.0, 2, 3], [0, 4, 0]])])
    np.testing.assert_array_equal(found, [[6, 0, 0], [0, 0, 0]])


def test_the_last_update_of_an_element_has_the_gradient() -> None:
    params = 'x: R.Tensor((2,), "float64"), i: R.Tensor((3, 1), "int64"), u: R.Tensor((3,), "float64")'
    module = parse_main(params, "a = R.scatter_nd(x, i, u)\nz = R.sum(a)\nreturn z")
    inputs = [np.zeros(2), np.array([[1], [1], [-1]]), np.zeros(3)]
    by_x, by_updates = evaluate_function(gradient_module(module, [0, 2]), "main", inputs)
    np.testing.assert_array_equal(by_x, [1, 0])
    np.testing.assert_array_equal(by_updates, [0, 0, 1])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_gradients_have_the_dtype_of_the_variable(dtype: str) -> None:
    fb = FunctionBuilder("main")
    x, w = fb.param("x", tensor((2, 3), dtype)), fb.param("w", tensor((4, 3), dtype))
    y = fb.bind("nn.softmax", fb.bind("nn.dense", (x, w), {}).results, {}).result
    total = fb.bind("max", (y,), {}).result
    module = gradient_module(IRModule({"main": fb.finish(total)}, fb.constants), [0, 1])
    assert [result.type for result in module["main"].results] == [TensorType((2, 3), dtype), TensorType((4, 3), dtype)]
