"""Every elementwise op on every dtype in C, compiled for several processors, against the reference kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.authoring.csource_scalars import SCALAR_OPS, scalar_expression, without_parentheses
from byoc_core.authoring.csource_types import C_TYPES, HALF_DTYPES, c_literal, c_suffix, c_type
from byoc_core.dtypes import is_float
from byoc_core.errors import ByocError
from byoc_core.ir import FunctionBuilder, TensorType, tensor
from byoc_core.native.cpu import check_target
from byoc_core.native.toolchain import BuildOptions, find_toolchain
from byoc_core.ops import default_ops
from byoc_core.opset.opdef import Trait
from hypothesis import given
from hypothesis import strategies as st

from core.tests.authoring.header_bounds import MAGNITUDES, assert_close, stated_bounds

NDArray = npt.NDArray[Any]
WARNINGS = ("-Wall", "-Wextra", "-Werror")
COUNT = 611  # prime: no multiple of a vector

HEADERS = {"float32": "byoc_math_f32.h", "float64": "byoc_math_f64.h"}
ACTIVATIONS = "byoc_activations.h"

DTYPES = tuple(dtype for dtype in C_TYPES if dtype not in HALF_DTYPES)

ATTRIBUTES: Mapping[str, Sequence[dict[str, Any]]] = {
    "cast": [{"dtype": dtype} for dtype in DTYPES],
    "clip": [{"min": -1.5, "max": 2.1}, {"min": 0.0, "max": 3.0}, {"min": 0.1}, {"max": 0.1}, {}],
    "isinf": [{"detect_negative": n, "detect_positive": p} for n in (False, True) for p in (False, True)],
    "mod": [{"fmod": False}, {"fmod": True}],
    "nn.celu": [{}, {"alpha": 0.3}],
    "nn.elu": [{}, {"alpha": 0.3}],
    "nn.gelu": [{"approximate": "none"}, {"approximate": "tanh"}],
    "nn.hard_sigmoid": [{}, {"alpha": 0.3, "beta": 0.7}],
    "nn.leaky_relu": [{"alpha": 0.3}],
    "nn.selu": [{}, {"alpha": 0.3, "gamma": 0.7}],
    "nn.shrink": [{}, {"lambd": 0.1, "bias": 1.9}, {"lambd": 1e300, "bias": 1e300}],
    "nn.swish": [{}, {"alpha": 1.7}, {"alpha": -0.3}, {"alpha": 0.0}],
    "nn.thresholded_relu": [{}, {"alpha": 0.1}, {"alpha": -0.1}, {"alpha": 1e300}],
}

# The C library's own, in units in the last place: what the GNU one states, rounded up.
C_LIBRARY: Mapping[str, tuple[float, str]] = {
    **dict.fromkeys(["sin", "cos", "tan", "asin", "acos", "atan", "power"], (1.5, "result")),
    **dict.fromkeys(["sinh", "cosh", "asinh", "acosh", "atanh"], (2.5, "result")),
}


@dataclass(frozen=True)
class Case:
    """One op on operands of given dtypes."""

    op: str
    attrs: Mapping[str, Any]
    dtypes: tuple[str, ...]
    result: str

    @property
    def expression(self) -> str | None:
        values = [f"{name}[i]" for name in "abc"[: len(self.dtypes)]]
        return scalar_expression(self.op, values, self.dtypes, self.result, self.attrs)

    def function(self, name: str) -> str:
        operands = [f"const {c_type(dtype)} *{n}" for n, dtype in zip("abc", self.dtypes, strict=False)]
        head = f"BYOC_EXPORT void {name}({', '.join(operands)}, {c_type(self.result)} *restrict out, int64_t n)"
        assert self.expression is not None
        return f"{head} {{ for (int64_t i = 0; i < n; ++i) out[i] = {without_parentheses(self.expression)}; }}"

    def __str__(self) -> str:
        return f"{self.op} {dict(self.attrs)} {self.dtypes} -> {self.result}"


def _cases() -> Iterator[Case]:
    """Yield every op of the table on every dtype that its type rule permits."""
    for name, op in default_ops().items():
        if name not in SCALAR_OPS:
            continue
        for dtype in DTYPES:
            dtypes = ["bool", dtype, dtype] if name == "where" else [dtype] * len(op.operands)
            for attrs in ATTRIBUTES.get(name, [{}]):
                builder = FunctionBuilder("f", ops=default_ops())
                operands = [builder.param(f"x{k}", tensor((COUNT,), d)) for k, d in enumerate(dtypes)]
                try:
                    binding = builder.bind(name, operands, attrs)
                except ByocError:
                    continue
                (result,) = binding.results
                assert isinstance(result.type, TensorType)
                yield Case(name, binding.attrs, tuple(dtypes), result.type.dtype)


CASES = tuple(_cases())


def test_every_op_of_the_table_has_an_expression_for_every_dtype_that_it_takes() -> None:
    elementwise = {name for name, op in default_ops().items() if Trait.ELEMENTWISE in op.traits}
    assert {case.op for case in CASES} == set(SCALAR_OPS) <= elementwise
    assert [str(case) for case in CASES if case.expression is None] == []


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


def _samples(dtype: str, seed: int) -> NDArray:
    """Gives awkward values, then random ones of all sizes; every operand has another order of them."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random(COUNT) > 0.5
    if is_float(dtype):
        info: Any = np.finfo(dtype)
        awkward = [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 3, -3, 0.1, -0.1, 88, -88]
        awkward += [info.max, info.min, info.tiny, -info.tiny, info.smallest_subnormal, -info.smallest_subnormal]
        points = np.array([1, -1, 0.1, 3], dtype)
        near = np.concatenate([np.nextafter(points, info.dtype.type(towards)) for towards in (-9, 9)])
        signs = rng.choice([-1.0, 1.0], COUNT)
        wide = signs * np.exp2(rng.uniform(-20, 8, COUNT))
        return rng.permutation(np.concatenate([awkward, near, wide])[:COUNT].astype(dtype))
    limits = np.iinfo(dtype)
    awkward = [0, 1, 2, limits.max, limits.min, limits.max - 1, limits.min + 1, limits.bits, limits.bits - 1]
    small = rng.integers(max(limits.min, -9), 9, COUNT // 2, dtype=dtype)
    anything = rng.integers(limits.min, limits.max, COUNT, dtype=dtype, endpoint=True)
    return rng.permutation(np.concatenate([np.array(awkward, dtype), small, anything])[:COUNT])


def _operands(case: Case) -> list[NDArray]:
    arrays = [_samples(dtype, seed) for seed, dtype in enumerate(case.dtypes)]
    if case.op == "cast" and is_float(case.dtypes[0]) and not is_float(case.result) and case.result != "bool":
        limits = np.iinfo(case.result)  # beyond them a cast has no defined result
        arrays[0] = np.clip(np.nan_to_num(arrays[0]), max(limits.min, -1e6), min(limits.max, 1e6))
    return arrays


def _kernel(case: Case, operands: Sequence[NDArray]) -> NDArray:
    kernel = default_ops()[case.op].kernel
    assert kernel is not None
    return np.asarray(kernel(*operands, **case.attrs))


def _check(case: Case, operands: Sequence[NDArray], actual: NDArray) -> None:
    bounds = {**C_LIBRARY, **stated_bounds(HEADERS.get(case.dtypes[0], ACTIVATIONS)), **stated_bounds(ACTIVATIONS)}
    function = case.op.removeprefix("nn.") + ("_tanh" if case.attrs.get("approximate") == "tanh" else "")
    if function not in bounds or not is_float(case.dtypes[0]):
        np.testing.assert_array_equal(actual, _kernel(case, operands), err_msg=str(case))
        return
    bound, unit = bounds[function]
    wide = [operand.astype(np.float64) for operand in operands]
    exact = _kernel(case, wide)
    # In float64 the oracle errs as well.
    slack = 2 if actual.dtype == np.float64 else 1
    assert_close(actual, exact, MAGNITUDES[unit](wide[0], exact), bound * slack, str(case))


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
    source = "\n".join(case.function(f"f{k}") for k, case in enumerate(CASES))
    library = _load(source, BuildOptions(opt_level, march, WARNINGS), tmp_path)
    for k, case in enumerate(CASES):
        operands = _operands(case)
        out = np.full(COUNT, 1, case.result)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*operands, out)]
        library[f"f{k}"](*pointers, ctypes.c_int64(COUNT))
        _check(case, operands, out)


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
