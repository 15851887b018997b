"""Exported C does the same as the virtual machine: instructions, builtins, views, constants, calls."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.artifact import Executable
from byoc_core.dims import parse_dim, symbol
from byoc_core.dtypes import all_dtypes, to_numpy
from byoc_core.native.toolchain import Toolchain
from byoc_core.runtime.module import CallTraits, NDArray, Signature, TensorSpec
from byoc_core.vm import Builtin, Call, CallKind, PlannedTensor, Program, Ret, VirtualMachine, VMFunction
from byoc_core.vm.instructions import BUILTINS, INSTRUCTIONS, Effect, Goto, If
from byoc_core.vm.program import View

from core.tests.artifact.exported_model import (
    FAILED,
    OK,
    ExportedModel,
    builtin,
    c_module,
    copies,
    executable_of,
    extern,
    shift,
    tensor,
)
from core.tests.artifact.test_library_program import TRUE, TWO, WEIGHT, caller, halves, loop
from core.tests.lowered_toys import LoweringToy

pytestmark = pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler: apt-get install gcc")

N = symbol("n")
ODD_VALUES: dict[str, list[Any]] = {
    "float32": [0.0, -0.0, 1.5, np.nan, -np.nan, np.inf, -np.inf, 1e-45, 3.4028235e38, 0.1],
    "float64": [0.0, -0.0, 1.5, np.nan, -np.nan, np.inf, -np.inf, 5e-324, 1.7976931348623157e308, 0.1],
    "float16": [0.0, -0.0, np.nan, np.inf, -np.inf, 6e-8, 65504.0],
    "bfloat16": [0.0, -0.0, np.nan, np.inf, -np.inf, 1e-40, 3e38],
    "float8_e4m3fn": [0.0, -0.0, np.nan, -448.0, 0.002],
    "float8_e5m2": [0.0, -0.0, np.nan, np.inf, -57344.0],
    "float8_e4m3fnuz": [0.0, np.nan, -240.0, 0.002],
    "float8_e5m2fnuz": [0.0, np.nan, -57344.0, 0.002],
    "float8_e8m0fnu": [1.0, np.nan, 2.0**-127, 2.0**127],
    "float4_e2m1fn": [0.0, -0.0, -6.0, 0.5],
    "int4": [0, 1, -8, 7],
    "uint4": [0, 1, 8, 15],
    "int2": [0, 1, -2, -1],
    "uint2": [0, 1, 2, 3],
    "bool": [True, False],
    **{
        f"{kind}int{bits}": [0, 1, (0 if kind else -(2 ** (bits - 1))), 2 ** (bits if kind else bits - 1) - 1]
        for kind in ("", "u")
        for bits in (8, 16, 32, 64)
    },
}


def check_same(
    executable: Executable, model: ExportedModel, name: str, sizes: dict[str, int], *inputs: NDArray
) -> None:
    """Compare a run with the virtual machine, byte by byte."""
    wanted = VirtualMachine(executable)[name](*inputs)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    status, outputs = model.call(inputs, sizes, name)
    assert status == OK
    for output, array in zip(outputs, wanted, strict=True):
        assert output.tobytes() == array.tobytes()


def branch() -> VMFunction:
    """Return x + 1 if the flag is true, else x + 10."""
    return VMFunction(
        "branch",
        (tensor("x", "n"), tensor("flag", dtype="bool")),
        (tensor("y", "n"),),
        (),
        (),
        (),
        (),
        (If(1, 3), extern(0, (0,), (2,)), Goto(4), extern(1, (0,), (2,)), Ret((2,))),
    )


def every_instruction() -> Executable:
    """Return functions with each instruction and each builtin."""
    functions = (loop(), halves(), caller(), branch())
    return executable_of(functions, [shift("one", 1), shift("ten", 10)], [TRUE, WEIGHT, TWO])


def test_the_functions_have_each_instruction_and_builtin() -> None:
    code = [instruction for function in every_instruction().program.functions for instruction in function.code]
    calls = [instruction for instruction in code if isinstance(instruction, Call)]
    assert {type(instruction) for instruction in code} == {spec.type for spec in INSTRUCTIONS}
    assert {call.kind for call in calls} == set(CallKind) - {CallKind.PACKED}
    called = {call.callee for call in calls if call.kind is CallKind.BUILTIN}
    assert called == {which for which, spec in BUILTINS.items() if spec.effect in (Effect.FILLS, Effect.UPDATES)}


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("name", ["loop", "halves", "caller", "branch"])
def test_each_instruction_stays_inside_its_memory(tmp_path: Path, name: str) -> None:
    """The test program has inputs, outputs and workspace of exactly the stated bytes, with memory between these."""
    functions = [
        replace(function, name="main") if function.name == name else function
        for function in every_instruction().program.functions
    ]
    executable = executable_of(functions, [shift("one", 1), shift("ten", 10)], [TRUE, WEIGHT, TWO])
    executable.export_c(tmp_path)
    flags = "CFLAGS=-std=c11 -O1 -Wall -Wextra -Werror -pedantic -fsanitize=address,undefined -fno-sanitize-recover=all"
    command = ["make", "-s", "check", "CC=gcc", flags]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": right") == len(executable.signature("main").outputs)


@pytest.mark.parametrize("constants", ["array", "object"])
def test_loops_views_constants_and_calls_equal_the_machine(tmp_path: Path, constants: str) -> None:
    executable = every_instruction()
    model = ExportedModel(executable, tmp_path, constants=constants)
    for size in (0, 1, 5, 12, 1000):
        x = np.arange(2 * size, dtype="float32")
        matrix = np.arange(3 * size, dtype="float32").reshape(3, size)
        for times in (0, 1, 3):
            check_same(executable, model, "loop", {"n": size}, x[:size], np.array(times))
        check_same(executable, model, "halves", {"n": size}, x, matrix)
        check_same(executable, model, "caller", {"n": size}, x[:size])


def test_the_workspace_is_the_same_for_the_largest_sizes(tmp_path: Path) -> None:
    executable = every_instruction()
    model = ExportedModel(executable, tmp_path, max_sizes={"n": 12})
    nbytes = {model.workspace_size({"n": size}, "caller") for size in range(13)}
    assert len(nbytes) == 1
    for size in (0, 5, 12):
        check_same(executable, model, "caller", {"n": size}, np.arange(size, dtype="float32"))


@pytest.mark.parametrize("size", [0, 1, 5])
def test_a_branch_takes_one_of_two_ways(tmp_path: Path, size: int) -> None:
    executable = every_instruction()
    model = ExportedModel(executable, tmp_path)
    x = np.arange(size, dtype="float32")
    for flag, by in ((True, 1), (False, 10)):
        check_same(executable, model, "branch", {"n": size}, x, np.array(flag))
        assert model.call((x, np.array(flag)), {"n": size}, "branch")[1][0].tolist() == (x + by).tolist()


@pytest.mark.parametrize("dtype", sorted(all_dtypes()))
@pytest.mark.parametrize("constants", ["array", "object"])
def test_constants_of_every_dtype_keep_their_bits(tmp_path: Path, dtype: str, constants: str) -> None:
    values = np.array(ODD_VALUES[dtype], to_numpy(dtype))
    scalar, empty = values[-1].reshape(()), values[:0].reshape(0, 3)
    arrays = [values, scalar, empty]
    results = tuple(TensorSpec(f"y{k}", dtype, array.shape) for k, array in enumerate(arrays))
    code = [builtin(Builtin.COPY, (3 + k,), k) for k in range(3)]
    main = VMFunction("main", (), results, (0, 1, 2), (), (), (), (*code, Ret((0, 1, 2))))
    executable = executable_of((main,), (), arrays)
    model = ExportedModel(executable, tmp_path, constants=constants)
    check_same(executable, model, "main", {})
    status, outputs = model.call(())
    assert status == OK
    assert [output.tobytes() for output in outputs] == [array.tobytes() for array in arrays]


@pytest.mark.parametrize("dtype", sorted(all_dtypes()))
def test_arguments_of_every_dtype_are_copied(tmp_path: Path, dtype: str) -> None:
    values = np.array(ODD_VALUES[dtype], to_numpy(dtype))
    main = copies("main", [tensor("x", "n", dtype=dtype)], [tensor("y", "n", dtype=dtype)])
    executable = executable_of((main,))
    model = ExportedModel(executable, tmp_path)
    for size in (0, 1, len(values)):
        check_same(executable, model, "main", {"n": size}, values[:size])


def test_views_with_strides_are_copied_in_both_directions(tmp_path: Path) -> None:
    columns = View(0, 4, "float32", (3, parse_dim("n-1")), (N, 1))
    turned = View(1, 0, "float32", (3, parse_dim("n-1")), (1, 3))
    main = VMFunction(
        "main",
        (tensor("x", 3, "n"),),
        (TensorSpec("y", "float32", (parse_dim("n-1"), 3)),),
        (),
        (),
        (),
        (),
        (builtin(Builtin.COPY, (2,), 3), Ret((1,))),
        (columns, turned),
    )
    executable = executable_of((main,))
    model = ExportedModel(executable, tmp_path)
    for size in (1, 2, 7):
        x = np.arange(3 * size, dtype="float32").reshape(3, size)
        check_same(executable, model, "main", {"n": size}, x)
        assert np.array_equal(model.call((x,), {"n": size})[1][0], x[:, 1:].T)


def test_a_function_without_inputs_and_constants(tmp_path: Path) -> None:
    code = (builtin(Builtin.ZERO, (), 0), builtin(Builtin.INCREMENT, (), 0), Ret((0,)))
    main = VMFunction("main", (), (tensor("y", dtype="int64"),), (), (), (), (), code)
    model = ExportedModel(executable_of((main,)), tmp_path)
    assert model.call(()) == (OK, [1])
    assert not [name for name in model.model.files if "constants" in name]


def test_the_counter_of_a_loop_wraps_around(tmp_path: Path) -> None:
    code = (builtin(Builtin.COPY, (0,), 1), builtin(Builtin.INCREMENT, (), 1), Ret((1,)))
    main = VMFunction("main", (tensor("x", dtype="int64"),), (tensor("y", dtype="int64"),), (), (), (), (), code)
    model = ExportedModel(executable_of((main,)), tmp_path)
    largest = np.iinfo("int64").max
    assert model.call((np.array(largest),)) == (OK, [np.iinfo("int64").min])


def test_scratch_memory_of_a_function_lies_in_the_workspace(tmp_path: Path) -> None:
    raw = """\
BYOC_EXPORT int32_t turn_(const float *x, float *out, int64_t dim_n, char *workspace) {
  float *scratch = (float *)(void *)workspace;
  for (int64_t i = 0; i < dim_n; ++i) scratch[i] = x[i];
  for (int64_t i = 0; i < dim_n; ++i) out[i] = scratch[dim_n - 1 - i];
  return 0;
}"""
    spec = tensor("x", "n")
    traits = CallTraits(workspace_nbytes=4 * N)
    module = c_module("turn", raw, Signature((spec,), (spec,)), traits=traits)
    main = VMFunction(
        "main",
        (spec,),
        (tensor("y", "n"),),
        (),
        (parse_dim("4*n"),),
        (PlannedTensor(0, 0, "uint8", (parse_dim("4*n"),)),),
        (),
        (Call(CallKind.EXTERN, 0, (0,), (1, 2)), Ret((1,))),
    )
    for largest in (None, {"n": 40}):
        model = ExportedModel(executable_of((main,), [module]), tmp_path, max_sizes=largest)
        for size in (0, 1, 40):
            x = np.arange(size, dtype="float32")
            status, (y,) = model.call((x,), {"n": size})
            assert status == OK
            assert np.array_equal(y, x[::-1])
        assert 160 <= model.workspace_size({"n": 40}) < 160 + 64


def test_a_failing_function_fails_the_run_and_leaves_the_model_usable(tmp_path: Path) -> None:
    model = ExportedModel(every_instruction(), tmp_path)
    for function in ("caller", "loop"):
        inputs = {"caller": 1, "loop": 2}[function]
        for size, status in ((12, OK), (13, FAILED), (12, OK)):
            arrays = (np.zeros(size, "float32"), np.array(2))[:inputs]
            assert model.call(arrays, {"n": size}, function)[0] == status


def test_the_same_function_runs_in_several_memories_of_threads(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    model = ExportedModel(every_instruction(), tmp_path)

    def work(seed: int) -> int:
        wrong = 0
        for size in range(14 + seed, 300, 7):
            status, (y,) = model.call((np.full(size, seed, "float32"),), {"n": size}, "caller")
            wrong += status != OK or not (y == seed + 2).all()
        return wrong

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) == 0


def test_a_program_may_define_nothing_but_copies_of_inputs(tmp_path: Path) -> None:
    specs = [tensor("x", 2), tensor("again", 2, dtype="int8")]
    executable = executable_of((copies("main", specs, [tensor("y", 2), tensor("z", 2, dtype="int8")]),))
    assert isinstance(executable.program, Program)
    model = ExportedModel(executable, tmp_path)
    check_same(executable, model, "main", {}, np.ones(2, "float32"), np.array([3, -4], "int8"))


def test_constants_above_the_limit_of_texts_are_binary(tmp_path: Path) -> None:
    for nbytes, is_binary in ((1 << 18, False), ((1 << 18) + 1, True)):
        big = np.random.default_rng(0).integers(0, 256, nbytes, "uint8")
        code = (builtin(Builtin.COPY, (1,), 0), Ret((0,)))
        main = VMFunction("main", (), (tensor("y", nbytes, dtype="uint8"),), (0,), (), (), (), code)
        executable = executable_of((main,), (), [big])
        model = ExportedModel(executable, tmp_path)
        assert ("model_constants.bin" in model.model.files) == is_binary
        check_same(executable, model, "main", {})


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is not installed")
@pytest.mark.parametrize("form", ["array", "object"])
def test_constants_lie_in_a_section_of_the_user(form: str, tmp_path: Path) -> None:
    every_instruction().export_c(tmp_path, constants=form)
    command = ["gcc", "-std=c11", '-DMODEL_CONSTANTS_SECTION=".flash"', "-c", "model_constants.c", "-o", "constants.o"]
    subprocess.run(command, cwd=tmp_path, check=True)
    command = ["objdump", "-h", "constants.o"]
    text = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    sections = {name: int(nbytes, 16) for name, nbytes in re.findall(r"(?m)^ +\d+ (\S+) +(\w+)", text)}
    assert sections[".flash"] >= WEIGHT.nbytes + TWO.nbytes
    assert not any(size for name, size in sections.items() if name.startswith((".rodata", ".data")))


def test_results_may_be_inputs_and_constants(tmp_path: Path) -> None:
    text = """
@R.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n",), "float32"), w: R.Tensor((3,), "float32")):
        a = R.add(x, x)
        return x, a, w, x
"""
    weight = np.array([1, np.nan, -0.0], "float32")
    module = byoc_core.transform.BindParams({"w": weight})(byoc_core.parse(text))

    def lower(function: Any, builder: Any) -> None:
        for call in function.bindings:
            left, right = map(builder.buffer, call.operands)
            builder.call_extern("toy_add", left, right, builder.buffer(call.result).written(), left.size)

    executable = byoc_core.build(module, backends=[LoweringToy(lower)], strict=True)
    executable.require_offload(1.0)
    x = np.array([1, 2, np.inf], "float32")
    status, outputs = ExportedModel(executable, tmp_path).call([x], {"n": 3})
    assert status == OK
    for output, expected in zip(outputs, (x, x + x, weight, x), strict=True):
        np.testing.assert_array_equal(output, expected)
