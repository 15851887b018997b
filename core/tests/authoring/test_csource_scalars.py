"""Every elementwise op on every dtype in C, compiled for several processors, against the reference kernels."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.authoring.csource_scalars import SCALAR_OPS, scalar_expression, without_parentheses
from byoc_core.authoring.csource_types import HALF_DTYPES, c_literal, c_suffix, c_type
from byoc_core.dtypes import is_float
from byoc_core.errors import ByocError
from byoc_core.native.cpu import check_target
from byoc_core.native.toolchain import BuildOptions, find_toolchain
from byoc_core.ops import default_ops
from byoc_core.opset.opdef import Trait
from hypothesis import given
from hypothesis import strategies as st

from core.tests.authoring.scalar_cases import CASES, COUNT, DTYPES, ScalarCase, check_results, operands_of

NDArray = npt.NDArray[Any]
WARNINGS = ("-Wall", "-Wextra", "-Werror")


def _expression(case: ScalarCase) -> str | None:
    values = [f"{name}[i]" for name in "abc"[: len(case.dtypes)]]
    return scalar_expression(case.op, values, case.dtypes, case.result, case.attrs)


def _function(case: ScalarCase, name: str) -> str:
    operands = [f"const {c_type(dtype)} *{n}" for n, dtype in zip("abc", case.dtypes, strict=False)]
    head = f"BYOC_EXPORT void {name}({', '.join(operands)}, {c_type(case.result)} *restrict out, int64_t n)"
    expression = _expression(case)
    assert expression is not None
    return f"{head} {{ for (int64_t i = 0; i < n; ++i) out[i] = {without_parentheses(expression)}; }}"


def test_every_op_of_the_table_has_an_expression_for_every_dtype_that_it_takes() -> None:
    elementwise = {name for name, op in default_ops().items() if Trait.ELEMENTWISE in op.traits}
    assert {case.op for case in CASES} == set(SCALAR_OPS) <= elementwise
    assert [str(case) for case in CASES if _expression(case) is None] == []


@pytest.mark.parametrize("half", sorted(HALF_DTYPES))
def test_halves_are_moved_and_cast_and_nothing_else(half: str) -> None:
    offered = {
        name
        for name, op in default_ops().items()
        if name in SCALAR_OPS
        and scalar_expression(name, list("abc")[: len(op.operands)], [half] * len(op.operands), half, {})
    }
    assert offered == {"cast", "where"}
    assert scalar_expression("isnan", ["a"], [half], "bool", {}) is None


def test_a_limit_that_is_not_a_number_wins_over_every_number() -> None:
    limits = {"min": float("nan"), "max": 2.0}
    text = scalar_expression("clip", ["a"], ["float32"], "float32", limits)
    assert text == f"byoc_at_most_f32(byoc_maximum_f32(a, {c_literal(float('nan'), 'float32')}), 2.0f)"


def _load(source: str, options: BuildOptions, folder: Path) -> ctypes.CDLL:
    built = find_toolchain().compile(f'#include "byoc_ffi.h"\n#include "byoc_scalar.h"\n{source}', options)
    try:
        check_target(built.target, "library")
    except ByocError as error:
        pytest.skip(str(error))
    path = folder / "library.so"
    path.write_bytes(built.data)
    return ctypes.CDLL(str(path))


@pytest.mark.parametrize(("opt_level", "march"), [(1, "generic"), (2, "x86-64-v3"), (3, "native")])
def test_results_are_those_of_the_reference_kernels(opt_level: int, march: str, tmp_path: Path) -> None:
    source = "\n".join(_function(case, f"f{k}") for k, case in enumerate(CASES))
    library = _load(source, BuildOptions(opt_level, march, WARNINGS), tmp_path)
    for k, case in enumerate(CASES):
        operands = operands_of(case)
        out = np.full(COUNT, 1, case.result)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*operands, out)]
        library[f"f{k}"](*pointers, ctypes.c_int64(COUNT))
        check_results(case, operands, out)


@pytest.mark.parametrize("march", ["generic", "native"])
def test_remainders_of_floats_are_exact(march: str, tmp_path: Path) -> None:
    """All sizes of both operands, and multiples; a remainder has the bits of the quotient's exact rest."""
    case = next(case for case in CASES if case.op == "mod" and case.attrs["fmod"] and case.dtypes[0] == "float32")
    library = _load(_function(case, "f"), BuildOptions(3, march, WARNINGS), tmp_path)
    special = np.array([0, 1, 3, 1e-45, 1.2e-38, 1e-30, 0.1, 16777215, 3.4e38, np.inf, np.nan], "float32")
    special = np.concatenate([special, -special])

    @given(st.integers(0, 2**32 - 1))
    def check(seed: int) -> None:
        rng = np.random.default_rng(seed)
        a, b = (rng.integers(0, 2**32, 400, "uint32").view("float32") for _ in range(2))
        with np.errstate(all="ignore"):
            a[::3] = b[::3] * rng.integers(0, 2**24, len(a[::3])).astype("float32")
            a, b = (
                np.concatenate([part, every.ravel()])
                for part, every in zip((a, b), np.meshgrid(special, special), strict=True)
            )
            exact = np.fmod(a.astype("float64"), b.astype("float64")).astype("float32")
        out = np.zeros(len(a), "float32")
        library["f"](*(ctypes.c_void_p(array.ctypes.data) for array in (a, b, out)), ctypes.c_int64(len(a)))
        np.testing.assert_array_equal(out, exact)
        np.testing.assert_array_equal(np.signbit(out), np.signbit(np.where(np.isnan(exact), out, a)))

    check()


INTEGERS = tuple(dtype for dtype in DTYPES if dtype != "bool" and not is_float(dtype))
LAWS = ("divide", "fmod", "mod", "multiply", "add", "left_shift", "right_shift")


@pytest.fixture(scope="module")
def integer_functions(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    lines = [
        f"BYOC_EXPORT {c_type(dtype)} {name}_{dtype}({c_type(dtype)} a, {c_type(dtype)} b) "
        f"{{ return byoc_{name}_{c_suffix(dtype)}(a, b); }}"
        for name in LAWS
        for dtype in INTEGERS
    ]
    return _load("\n".join(lines), BuildOptions(1, "generic", WARNINGS), tmp_path_factory.mktemp("integers"))


@pytest.mark.parametrize("dtype", INTEGERS)
@given(data=st.data())
def test_laws_of_integer_division_and_shifts(integer_functions: ctypes.CDLL, dtype: str, data: st.DataObject) -> None:
    limits = np.iinfo(dtype)
    numbers = st.integers(int(limits.min), int(limits.max))
    a, b = data.draw(numbers), data.draw(numbers | st.integers(max(-3, int(limits.min)), 3))
    ctype = getattr(ctypes, f"c_{dtype}")

    def call(name: str, x: int, y: int) -> int:
        function = integer_functions[f"{name}_{dtype}"]
        function.argtypes, function.restype = [ctype, ctype], ctype
        return int(function(x, y))

    quotient, rest, floor_rest = (call(name, a, b) for name in ("divide", "fmod", "mod"))
    if b == 0:
        assert (quotient, rest, floor_rest) == (0, 0, 0)
    else:
        # The smallest integer by -1 wraps around, and the identity with it.
        assert call("add", call("multiply", quotient, b), rest) == a
        assert abs(rest) < abs(b)
        assert rest == 0 or (rest < 0) == (a < 0)
        assert floor_rest == a % b
    shift = data.draw(st.integers(0, limits.bits + 2))
    kept = (a << shift) % 2**limits.bits if shift < limits.bits else 0
    assert call("left_shift", a, shift) % 2**limits.bits == kept
    assert call("right_shift", a, shift) == a >> shift
