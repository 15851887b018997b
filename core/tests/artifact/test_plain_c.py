"""Programs exported as plain C: instructions, builtins, constants, statuses, and the programs around the C."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.dims import parse_dim, symbol
from byoc_core.dtypes import to_numpy
from byoc_core.native.c_text import C_TYPES
from byoc_core.runtime.module import NDArray, TensorSpec
from byoc_core.vm import Builtin, Call, CallKind, Goto, If, PlannedTensor, Ret, VMFunction
from byoc_core.vm.instructions import BUILTINS, INSTRUCTIONS, Effect
from byoc_core.vm.program import View

from core.tests.artifact.plain_c_caller import FLAGS, WARNINGS, ExportedC, cubing, needs_gcc, program, scaler, scaling
from core.tests.artifact.test_library_program import builtin, caller, extern, halves, loop, tensors
from core.tests.lowered_toys import LoweringToy

pytestmark = needs_gcc

N, M = symbol("n"), symbol("m")


def branches() -> VMFunction:
    """Return z = x * 2 if the input is true, else x * 3; then y = z * 2."""
    params = (TensorSpec("x", "float32", (N,)), TensorSpec("is_double", "bool", ()))
    code = (If(1, 3), extern(0, 0, 3), Goto(4), extern(1, 0, 3), extern(0, 3, 2), Ret((2,)))
    storages, planned = (parse_dim("4*n"),), (PlannedTensor(0, 0, "float32", (N,)),)
    return VMFunction("branches", params, tensors((N,), prefix="y"), (), storages, planned, (), code)


def strided() -> VMFunction:
    """Copy a transposed input, every other column of an input, and an input into every other column of a result."""
    views = (
        View(0, 0, "float32", (M, N), (1, M)),
        View(1, 4, "float32", (N, 2), (4, 2)),
        View(4, 0, "float32", (N, 2), (4, 2)),
        View(4, 4, "float32", (N, 2), (4, 2)),
    )
    code = (
        builtin(Builtin.COPY, (5,), 2),
        builtin(Builtin.COPY, (6,), 3),
        builtin(Builtin.COPY, (6,), 7),
        builtin(Builtin.COPY, (3,), 8),
        Ret((2, 3, 4)),
    )
    params, results = tensors((N, M), (N, 4)), tensors((M, N), (N, 2), (N, 4), prefix="y")
    return VMFunction("strided", params, results, (), (), (), (), code, views)


TRUE, WEIGHT, TWO = np.array(True), np.arange(6, dtype="float32"), np.array(2, "int64")


@pytest.fixture(scope="module")
def instructions(tmp_path_factory: pytest.TempPathFactory) -> ExportedC:
    functions = (loop(), halves(), caller(), branches(), strided())
    executable = program(functions, scaler("twice", 2), scaler("thrice", 3), constants=(TRUE, WEIGHT, TWO))
    return ExportedC(executable, tmp_path_factory.mktemp("instructions"))


def test_the_program_has_each_instruction_and_builtin(instructions: ExportedC) -> None:
    code = [instruction for f in instructions.executable.program.functions for instruction in f.code]
    calls = [instruction for instruction in code if isinstance(instruction, Call)]
    assert {type(instruction) for instruction in code} == {spec.type for spec in INSTRUCTIONS}
    assert {call.kind for call in calls} == set(CallKind) - {CallKind.PACKED}
    in_program = {call.callee for call in calls if call.kind is CallKind.BUILTIN}
    assert in_program == {which for which, spec in BUILTINS.items() if spec.effect is not Effect.ALLOCATES}


@pytest.mark.parametrize("size", [0, 1, 5, 12, 1000])
def test_instructions_equal_the_machine(instructions: ExportedC, size: int) -> None:
    x = np.arange(2 * size, dtype="float32")
    instructions.check("loop", [x[:size], np.array(3)], [size])
    instructions.check("loop", [x[:size], np.array(-1)], [size])
    instructions.check("halves", [x, np.arange(3 * size, dtype="float32").reshape(3, size)], [size])
    (y,) = instructions.check("caller", [x[:size]], [size])
    np.testing.assert_array_equal(y, 4 * x[:size])
    for is_double, factor in ((True, 4), (False, 6)):
        (y,) = instructions.check("branches", [x[:size], np.array(is_double)], [size])
        np.testing.assert_array_equal(y, factor * x[:size])
    matrix = np.arange(4 * size, dtype="float32").reshape(size, 4)
    columns = np.arange(3 * size, dtype="float32").reshape(size, 3)
    transposed, *_ = instructions.check("strided", [columns, matrix], [3, size])
    assert transposed.shape == (3, size)


def test_a_failing_call_fails_the_run(instructions: ExportedC) -> None:
    x = np.zeros(13, "float32")
    assert instructions.call("caller", [x], [x], [13])[0] == -1
    assert instructions.call("loop", [x, np.array(1)], [x], [13])[0] == -1
    assert instructions.call("loop", [x, np.array(0)], [x], [13])[0] == 0


def edge_values(dtype: str) -> NDArray:
    """Return values at the edges of a dtype: extreme numbers, and for floats infinities, NaN, -0 and subnormals."""
    kind: Any = to_numpy(dtype)
    if dtype == "bool":
        return np.array([True, False, True])
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return np.array([limits.min, limits.max, limits.min + 1, 0, 1], kind)
    words: Any = {2: np.uint16, 4: np.uint32, 8: np.uint64}[kind.itemsize]
    patterns = np.array([0, 1, 2, np.iinfo(words).max >> 3], words)
    values = np.array([0.1, -0.1, 1e-3, -0.0, np.inf, -np.inf, np.nan, 1, 300]).astype(kind)
    return np.concatenate([values, patterns.view(kind)])


@pytest.mark.parametrize("form", ["auto", "array", "object"])
def test_constants_of_all_dtypes_keep_their_values(form: str, tmp_path: Path) -> None:
    arrays = [edge_values(dtype) for dtype in C_TYPES]
    arrays += [np.zeros((0, 3), "int16"), np.array(7, "uint8"), np.arange(6.0).reshape(2, 3)]
    results = tuple(TensorSpec(f"y{k}", array.dtype.name, array.shape) for k, array in enumerate(arrays))
    count = len(arrays)
    copies: list[Call | Ret] = [builtin(Builtin.COPY, (count + k,), k) for k in range(count)]
    code = (*copies, Ret(tuple(range(count))))
    main = VMFunction("main", (), results, tuple(range(count)), (), (), (), code)
    executable = program((main,), constants=tuple(arrays))
    exported = ExportedC(executable, tmp_path, options={"constants": form})
    status, found = exported.call("main", [], arrays)
    assert status == 0
    for array, result in zip(found, arrays, strict=True):
        if result.dtype.name in ("float32", "float64") and form != "object":
            np.testing.assert_array_equal(array, result)  # any NaN will do
            array, result = np.signbit(array[~np.isnan(array)]), np.signbit(result[~np.isnan(result)])
        assert array.tobytes() == result.tobytes()
    assert (tmp_path / "model_constants.bin").exists() == (form == "object")


def test_constants_larger_than_the_limit_are_binary(tmp_path: Path) -> None:
    for nbytes, is_binary in ((1 << 18, False), ((1 << 18) + 1, True)):
        big = np.random.default_rng(0).integers(0, 256, nbytes, "uint8")
        code = (builtin(Builtin.COPY, (1,), 0), Ret((0,)))
        main = VMFunction("main", (), (TensorSpec("y", "uint8", big.shape),), (0,), (), (), (), code)
        exported = ExportedC(program((main,), constants=(big,)), tmp_path / str(nbytes))
        assert (exported.folder / "model_constants.bin").exists() == is_binary
        exported.check("main", [])


@pytest.mark.parametrize("form", ["array", "object"])
def test_constants_lie_in_a_section_of_the_user(form: str, tmp_path: Path) -> None:
    executable = program((scaling(),), scaler("twice", 2))
    exported = ExportedC(executable, tmp_path, options={"constants": form})
    command = ["gcc", *WARNINGS, '-DMODEL_CONSTANTS_SECTION=".flash"', "-c", "model_constants.c", "-o", "constants.o"]
    subprocess.run(command, cwd=tmp_path, check=True)
    command = ["objdump", "-h", "constants.o"]
    text = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    sections = {name: int(nbytes, 16) for name, nbytes in re.findall(r"(?m)^ +\d+ (\S+) +(\w+)", text)}
    assert sections[".flash"] >= 4
    assert not any(size for name, size in sections.items() if name.startswith((".rodata", ".data")))
    exported.check("main", [np.arange(4, dtype="f")], [4])


def test_results_may_be_inputs_and_constants(tmp_path: Path) -> None:
    module = byoc_core.parse("""
@R.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n",), "float32"), w: R.Tensor((3,), "float32")):
        a = R.add(x, x)
        return x, a, w, x
""")
    weight = np.array([1, np.nan, -0.0], "float32")
    bound = byoc_core.transform.BindParams({"w": weight})(module)

    def lower(function: Any, builder: Any) -> None:
        for call in function.bindings:
            left, right = map(builder.buffer, call.operands)
            builder.call_extern("toy_add", left, right, builder.buffer(call.result).written(), left.size)

    executable = byoc_core.build(bound, backends=[LoweringToy(lower)], strict=True)
    executable.require_offload(1.0)
    x = np.array([1, 2, np.inf], "float32")
    flags = (*FLAGS, "-Wno-unused-function")  # the toy uses a single function of its source
    outputs = ExportedC(executable, tmp_path, flags=flags).check("main", [x], [3])
    for output, expected in zip(outputs, (x, x + x, weight, x), strict=True):
        np.testing.assert_array_equal(output, expected)


def test_a_function_called_by_another_shares_its_workspace(tmp_path: Path) -> None:
    """The callee's intermediates follow those of the caller; both functions are public."""
    inner = cubing(2).program.functions[0]
    call = Call(CallKind.FUNCTION, 0, (2,), (1,))
    planned = (PlannedTensor(0, 0, "float32", (N,)),)
    outer = VMFunction(
        "main",
        tensors((N,)),
        tensors((N,), prefix="y"),
        (),
        (parse_dim("4*n"),),
        planned,
        (),
        (extern(0, 0, 2), call, Ret((1,))),
    )
    executable = program((replace(inner, name="inner"), outer), scaler("scale", 2))
    exported = ExportedC(executable, tmp_path)
    x = np.arange(20, dtype="float32")
    np.testing.assert_array_equal(exported.check("main", [x], [20])[0], 16 * x)
    np.testing.assert_array_equal(exported.check("inner", [x], [20])[0], 8 * x)
