"""Permissions by the options of ``Canonicalise``, and the change of results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core.ir import IRModule, tensor, verify
from byoc_core.ops import FunctionBuilder
from byoc_core.transform import Canonicalise, evaluate_function
from hypothesis import given
from hypothesis import strategies as st

from core.tests.ir_text import check_pass, check_unchanged, parse_main

F32 = 'x: R.Tensor(("n", 4), "float32")'
ZERO = 'R.broadcast_to(R.const(0.0, "float32"), shape=("n", 4))'

SOME, ANY = {"keep_special_values": False}, {"keep_special_values": False, "keep_signed_zeros": False}
ROUND = {"keep_rounding": False}
PERMITTED = {
    "difference of equals": (SOME, "y = R.subtract(x, x)", f"y = {ZERO}"),
    "quotient of equals": (SOME, "y = R.divide(x, x)", f"y = {ZERO.replace('0.0', '1.0')}"),
    "tests for NaN": (
        SOME,
        "y = R.isnan(x)",
        'y = R.broadcast_to(R.const(False, "bool"), shape=("n", 4))',
    ),
    "times zero": (ANY, 'y = R.multiply(R.const(-0.0, "float32"), x)', f"y = {ZERO}"),
    "zero over": (ANY, 'y = R.divide(R.const(0.0, "float32"), x)', f"y = {ZERO}"),
    "sums": (
        ROUND,
        (
            'a = R.add(x, R.const(1.5, "float32"))\nb = R.subtract(a, R.const([1.0, 2.0, 3.0, 4.0], "float32"))\n'
            'y = R.add(R.const(0.5, "float32"), b)'
        ),
        'y = R.add(x, R.const([1.0, 0.0, -1.0, -2.0], "float32"))',
    ),
    "products": (
        ROUND,
        'a = R.multiply(x, R.const(3.0, "float32"))\ny = R.divide(a, R.const(3.0, "float32"))\nz = R.abs(y)',
        "z = R.abs(x)",
    ),
    "exponential of the logarithm": (SOME | ROUND, "a = R.log(x)\nb = R.exp(a)\ny = R.abs(b)", "y = R.abs(x)"),
    "logarithm of the exponential": (SOME | ROUND, "a = R.exp(x)\nb = R.log(a)\ny = R.abs(b)", "y = R.abs(x)"),
    "square of the root": (SOME | ROUND, "a = R.sqrt(x)\nb = R.multiply(a, a)\ny = R.exp(b)", "y = R.exp(x)"),
    "root to the power of two": (
        SOME | ROUND,
        'a = R.sqrt(x)\nb = R.power(a, R.const(2.0, "float32"))\ny = R.exp(b)',
        "y = R.exp(x)",
    ),
    "root of the square": (SOME | ROUND, "a = R.multiply(x, x)\ny = R.sqrt(a)", "y = R.abs(x)"),
}


@pytest.mark.parametrize("case", PERMITTED)
def test_what_an_option_permits(case: str) -> None:
    options, before, after = PERMITTED[case]
    last = after.rpartition("\n")[2].partition(" ")[0]
    check_pass(Canonicalise(**options), F32, f"{before}\nreturn {last}", f"{after}\nreturn {last}")


@pytest.mark.parametrize("case", PERMITTED)
def test_what_an_option_permits_is_asked_for(case: str) -> None:
    options, body, _ = PERMITTED[case]
    last = body.rpartition("\n")[2].partition(" ")[0]
    module = parse_main(F32, f"{body}\nreturn {last}")
    wanted = [binding.op.name for binding in module["main"].bindings]
    for name in options:
        after = Canonicalise(**{other: False for other in options if other != name})(module)
        found = [binding.op.name for binding in after["main"].bindings]
        assert len(found) == len(wanted)


TOO_FAR = {
    "a product that overflows": ("multiply", "1e30", "1e30"),
    "a product that underflows": ("multiply", "1e-30", "1e-30"),
    "a sum that overflows": ("add", "3e38", "3e38"),
    "a quotient by nothing": ("divide", "1.0", "0.0"),
    "a quotient that overflows": ("divide", "1.0", "1e-39"),
}


@pytest.mark.parametrize("case", TOO_FAR)
def test_constants_that_leave_the_range_stay_apart(case: str) -> None:
    op, first, second = TOO_FAR[case]
    inner = f'a = R.{op}(x, R.const({first}, "float32"))\n' if op != "divide" else "a = R.abs(x)\n"
    check_unchanged(
        Canonicalise(keep_rounding=False), F32, inner + f'y = R.{op}(a, R.const({second}, "float32"))\nreturn y'
    )


@given(
    numbers=st.lists(st.floats(0.125, 8.0, width=32), min_size=1, max_size=12),
    ops=st.lists(st.sampled_from(("multiply", "divide")), min_size=12, max_size=12),
    is_sum=st.booleans(),
)
def test_joined_constants_stay_within_the_bound_of_rounding(
    numbers: list[float], ops: list[str], *, is_sum: bool
) -> None:
    """A product of k factors has the relative error gamma(k), a sum this multiple of the magnitudes (Higham, ch. 3)."""
    fb = FunctionBuilder("main")
    y: Any = fb.param("x", tensor((5,)))
    for number, op in zip(numbers, ops, strict=False):
        y = fb.emit(("subtract" if op == "divide" else "add") if is_sum else op, y, np.array(number, np.float32))
    module = IRModule({"main": fb.finish(y)}, fb.constants)
    after = verify(Canonicalise(keep_rounding=False)(module))
    assert len(after["main"].bindings) <= 1
    x = np.array([0.1, -3.0, 7.5, 0.0, 1.0], np.float32)
    (want,) = evaluate_function(module, "main", [x], exact=True)
    (have,) = evaluate_function(after, "main", [x])
    terms = 2 * (len(numbers) + 1) * 2.0**-24
    magnitude = np.abs(x.astype(float)) + sum(numbers) if is_sum else np.abs(want)
    assert np.all(np.abs(have - want) <= terms / (1 - terms) * magnitude)
