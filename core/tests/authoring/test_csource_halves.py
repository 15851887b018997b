"""Half precision in C: conversions bit for bit, and functions of generated C with half operands and results."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.authoring.csource import CSourceCodegen
from byoc_core.authoring.csource_scalars import scalar_expression
from byoc_core.authoring.csource_types import C_TYPES, HALF_DTYPES, c_type
from byoc_core.dims import parse_dim
from byoc_core.dtypes import is_float, to_numpy
from byoc_core.errors import ByocError, CodegenError, ToolchainError
from byoc_core.ir import FunctionBuilder, tensor
from byoc_core.native.cpu import check_target
from byoc_core.native.toolchain import BuildOptions, find_toolchain
from byoc_core.ops import default_ops
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import RuntimeModule, TensorSpec
from byoc_core.vm import Call, CallKind, Program, Ret, VirtualMachine, VMFunction

NDArray = npt.NDArray[Any]
WARNINGS = ("-Wall", "-Wextra", "-Werror")
HALVES = tuple(sorted(HALF_DTYPES))
PAIRS = [(half, other) for half in HALVES for other in C_TYPES]
PAIRS += [(other, half) for half in HALVES for other in C_TYPES if other not in HALF_DTYPES]


def _casts(opt_level: int, march: str, folder: Path) -> ctypes.CDLL:
    lines = ['#include "byoc_ffi.h"', '#include "byoc_scalar.h"']
    for source, target in PAIRS:
        expression = scalar_expression("cast", ["x[i]"], [source], target, {"dtype": target})
        head = f"BYOC_EXPORT void {source}_{target}(const {c_type(source)} *x, {c_type(target)} *restrict out, int n)"
        lines.append(f"{head} {{ for (int i = 0; i < n; ++i) out[i] = {expression}; }}")
    built = find_toolchain().compile("\n".join(lines), BuildOptions(opt_level, march, WARNINGS))
    try:
        check_target(built.target, "library")
    except ByocError as error:
        pytest.skip(str(error))
    path = folder / "library.so"
    path.write_bytes(built.data)
    return ctypes.CDLL(str(path))


@pytest.fixture(scope="module", params=[(0, "generic"), (2, "x86-64-v3"), (3, "native")], ids=lambda p: p[1])
def casts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    opt_level, march = request.param
    return _casts(opt_level, march, tmp_path_factory.mktemp("casts"))


def _cast(library: ctypes.CDLL, x: NDArray, source: str, target: str) -> NDArray:
    x = np.ascontiguousarray(x)
    out = np.zeros(x.shape, to_numpy(target))
    library[f"{source}_{target}"](ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(out.ctypes.data), x.size)
    return out


def _all_of(half: str) -> tuple[NDArray, NDArray]:
    """Return all numbers of a half type, and the same in float64."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(to_numpy(half))
    with np.errstate(invalid="ignore"):  # signalling NaN among them
        return halves, halves.astype(np.float64)


def _assert_same(actual: NDArray, expected: NDArray) -> None:
    """Compare bit by bit, except for the bits of a NaN."""
    nan = expected != expected
    assert np.all(actual[nan] != actual[nan])
    assert actual[~nan].tobytes() == expected[~nan].tobytes()


@pytest.mark.parametrize("half", HALVES)
def test_every_half_becomes_what_the_kernel_gives(casts: ctypes.CDLL, half: str) -> None:
    x, wide = _all_of(half)
    for target in C_TYPES:
        values = x
        if target != "bool" and not is_float(target):
            limits = np.iinfo(target)  # beyond them a cast has no defined result
            values = x[(wide > max(limits.min, -(2.0**31)) - 1) & (wide < min(limits.max, 2.0**31))]
        with np.errstate(all="ignore"):
            _assert_same(_cast(casts, values, half, target), values.astype(to_numpy(target)))


def _rounded(x: NDArray, half: str) -> NDArray:
    """Return float64 numbers rounded once to a half, by float64 arithmetic exact except for a single ``rint``."""
    bits, smallest = {"float16": (11, -24), "bfloat16": (8, -133)}[half]
    magnitude = np.where(np.isfinite(x) & (x != 0), np.abs(x), 1.0)
    last_place = np.exp2(np.maximum(np.frexp(magnitude)[1] - bits, smallest))
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray((np.rint(x / last_place) * last_place).astype(to_numpy(half)))


def _near_halves(half: str) -> NDArray:
    """Return all numbers of a half type, the midpoints between neighbours, and the float64 neighbours of both."""
    _, wide = _all_of(half)
    halves = np.sort(wide[np.isfinite(wide)])
    points = np.concatenate([halves, (halves[1:] + halves[:-1]) / 2])
    beyond = np.array([np.inf, -np.inf, np.nan, 1e300, -1e300, 65519.9, 65520.0, 3.39e38, 3.4e38, 1e-300])
    return np.concatenate([points, np.nextafter(points, np.inf), np.nextafter(points, -np.inf), beyond])


@pytest.mark.parametrize("half", HALVES)
def test_floats_are_rounded_once(casts: ctypes.CDLL, half: str) -> None:
    x = _near_halves(half)
    _assert_same(_cast(casts, x, "float64", half), _rounded(x, half))
    if half == "float16":
        with np.errstate(over="ignore"):
            _assert_same(_rounded(x, half), x.astype(np.float16))
    with np.errstate(over="ignore"):
        narrow = x.astype(np.float32)
    narrow = np.concatenate([narrow, np.nextafter(narrow, np.float32(9e9)), np.nextafter(narrow, np.float32(-9e9))])
    with np.errstate(over="ignore"):
        _assert_same(_cast(casts, narrow, "float32", half), narrow.astype(to_numpy(half)))


@pytest.mark.parametrize("half", HALVES)
def test_integers_are_rounded_once(casts: ctypes.CDLL, half: str) -> None:
    rng = np.random.default_rng(5)
    for dtype in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
        limits = np.iinfo(dtype)
        powers = np.array([(1 << k) + (1 << (k - 8)) for k in range(8, limits.bits - 1)], dtype)
        ends = np.array([limits.min, limits.max, 0, 1], dtype)
        x = np.concatenate([ends, powers, powers + 1, powers - 1, rng.integers(limits.min, limits.max, 997, dtype)])
        # Ties of bfloat16 among integers beyond 2**53 are not numbers of float64: longer arithmetic tells them apart.
        exact = [_rounded_integer(int(value), half) for value in x]
        _assert_same(_cast(casts, x, dtype, half), np.array(exact).astype(to_numpy(half)))
    flags = np.array([True, False])
    _assert_same(_cast(casts, flags, "bool", half), flags.astype(to_numpy(half)))


def _rounded_integer(value: int, half: str) -> float:
    excess = max(0, abs(value).bit_length() - {"float16": 11, "bfloat16": 8}[half])
    quotient, rest = divmod(abs(value), 1 << excess)
    middle = (1 << excess) / 2
    quotient += excess > 0 and (rest > middle or (rest == middle and quotient % 2 == 1))
    magnitude = float(quotient << excess)
    if half == "float16" and magnitude > 65504:
        magnitude = np.inf
    return -magnitude if value < 0 else magnitude


def test_c_refuses_arithmetic_on_halves() -> None:
    source = '#include "byoc_scalar.h"\nbyoc_f16 f(byoc_f16 x, byoc_f16 y) { return x + y; }'
    with pytest.raises(ToolchainError, match="C compiler: failed"):
        find_toolchain().compile(source, BuildOptions(0, "generic"))


class _Executable:
    def __init__(self, program: Program, *modules: RuntimeModule) -> None:
        self.program = program
        self.modules = modules
        self.constants: dict[str, NDArray] = {}


def _builder() -> Any:
    return FunctionBuilder("f", ops=default_ops())


def _machine(module: CSourceModule, inputs: Sequence[TensorSpec], output: TensorSpec) -> VirtualMachine:
    call = Call(CallKind.EXTERN, 0, tuple(range(len(inputs))), (len(inputs),))
    function = VMFunction("main", tuple(inputs), (output,), (), (), (), (), (call, Ret((len(inputs),))))
    return VirtualMachine(_Executable(Program((function,), ("f",)), module))


@pytest.mark.parametrize("half", HALVES)
def test_generated_functions_take_hold_and_give_halves(half: str) -> None:
    builder = _builder()
    n = parse_dim("n")
    x, chosen = builder.param("x", tensor((n, 3), half)), builder.param("chosen", tensor((n, 3), "bool"))
    wide = builder.emit("exp", builder.emit("cast", x, dtype="float32"))
    narrow = builder.emit("cast", wide, dtype=half)
    short, long = np.array([1.5, -0.0, np.nan], to_numpy(half)), np.ones((40, 3), to_numpy(half))
    result = builder.emit("where", chosen, narrow, short)
    function = builder.finish(result, builder.bind("where", [chosen, x, short], {}).results[0])
    module = CSourceCodegen(BuildOptions(1, "generic", WARNINGS)).generate(function, builder.constants)
    x_value = (np.arange(12).reshape(4, 3) / 8).astype(to_numpy(half))
    mask = x_value > 0.5
    outputs = [np.zeros((4, 3), to_numpy(half)) for _ in range(2)]
    module.get_function("f")(x_value, mask, *outputs)
    expected = np.exp(x_value.astype(np.float32)).astype(to_numpy(half))
    _assert_same(outputs[0], np.where(mask, expected, short))
    _assert_same(outputs[1], np.where(mask, x_value, short))

    builder = _builder()
    x = builder.param("x", tensor((n, 3), half))
    function = builder.finish(builder.emit("cast", x, dtype="float32"))
    module = CSourceCodegen(BuildOptions(1, "generic", WARNINGS)).generate(function)
    machine = _machine(module, [TensorSpec("x", half, (n, 3))], TensorSpec("y", "float32", (n, 3)))
    np.testing.assert_array_equal(machine["main"](x_value), x_value.astype(np.float32))
    np.testing.assert_array_equal(machine["main"](long), long.astype(np.float32))


def test_a_constant_of_many_halves_stands_in_the_table() -> None:
    builder = _builder()
    table = (np.arange(50) / 4).astype(to_numpy("bfloat16"))
    condition = builder.param("c", tensor((50,), "bool"))
    function = builder.finish(builder.emit("where", condition, table, np.zeros(50, to_numpy("bfloat16"))))
    module = CSourceCodegen(BuildOptions(1, "generic", WARNINGS)).generate(function, builder.constants)
    assert "BYOC_CONSTANT_TABLE(2);" in module.get_source()
    out = np.ones(50, to_numpy("bfloat16"))
    module.get_function("f")(np.arange(50) % 2 == 0, out)
    _assert_same(out, np.where(np.arange(50) % 2 == 0, table, np.zeros_like(table)))


def test_arithmetic_on_halves_is_an_error() -> None:
    builder = _builder()
    x = builder.param("x", tensor((2,), "float16"))
    with pytest.raises(CodegenError) as caught:
        CSourceCodegen().generate(builder.finish(builder.emit("negative", x)))
    assert str(caught.value) == (
        "function `f`, op `negative`: has no plain C kernel; got float16, expected an elementwise op on float32, "
        "float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool"
    )
