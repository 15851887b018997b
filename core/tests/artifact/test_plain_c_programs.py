"""Exported C does the same as the virtual machine: instructions, builtins, views, constants, calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from byoc_core.artifact import Executable
from byoc_core.dims import parse_dim, symbol
from byoc_core.dtypes import all_dtypes, to_numpy
from byoc_core.native.toolchain import Toolchain
from byoc_core.runtime.module import CallTraits, NDArray, Signature, TensorSpec
from byoc_core.vm import Builtin, Call, CallKind, PlannedTensor, Program, Ret, VirtualMachine, VMFunction
from byoc_core.vm.instructions import Goto, If
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

pytestmark = pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler: apt-get install gcc")

N = symbol("n")
ODD_VALUES: dict[str, list[Any]] = {
    "float32": [0.0, -0.0, 1.5, np.nan, -np.nan, np.inf, -np.inf, 1e-45, 3.4028235e38, 0.1],
    "float64": [0.0, -0.0, 1.5, np.nan, -np.nan, np.inf, -np.inf, 5e-324, 1.7976931348623157e308, 0.1],
    "float16": [0.0, -0.0, np.nan, np.inf, -np.inf, 6e-8, 65504.0],
    "bfloat16": [0.0, -0.0, np.nan, np.inf, -np.inf, 1e-40, 3e38],
    "float8_e4m3fn": [0.0, -0.0, np.nan, -448.0, 0.002],
    "float8_e5m2": [0.0, -0.0, np.nan, np.inf, -57344.0],
    "int4": [0, 1, -8, 7],
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


def library_functions() -> Executable:
    return executable_of((loop(), halves(), caller()), [shift("one", 1), shift("ten", 10)], [TRUE, WEIGHT, TWO])


@pytest.mark.parametrize("constants", ["array", "object"])
def test_loops_views_constants_and_calls_equal_the_machine(tmp_path: Path, constants: str) -> None:
    executable = library_functions()
    model = ExportedModel(executable, tmp_path, constants=constants)
    for size in (0, 1, 5, 12, 1000):
        x = np.arange(2 * size, dtype="float32")
        matrix = np.arange(3 * size, dtype="float32").reshape(3, size)
        for times in (0, 1, 3):
            check_same(executable, model, "loop", {"n": size}, x[:size], np.array(times))
        check_same(executable, model, "halves", {"n": size}, x, matrix)
        check_same(executable, model, "caller", {"n": size}, x[:size])


def test_the_workspace_is_the_same_for_the_largest_sizes(tmp_path: Path) -> None:
    executable = library_functions()
    model = ExportedModel(executable, tmp_path, max_sizes={"n": 12})
    nbytes = {model.workspace_size({"n": size}, "caller") for size in range(13)}
    assert len(nbytes) == 1
    for size in (0, 5, 12):
        check_same(executable, model, "caller", {"n": size}, np.arange(size, dtype="float32"))


def test_a_branch_takes_one_of_two_ways(tmp_path: Path) -> None:
    main = VMFunction(
        "main",
        (tensor("x", "n"), tensor("flag", dtype="bool")),
        (tensor("y", "n"),),
        (),
        (),
        (),
        (),
        (If(1, 3), extern(0, (0,), (2,)), Goto(4), extern(1, (0,), (2,)), Ret((2,))),
    )
    executable = executable_of((main,), [shift("one", 1), shift("ten", 10)])
    model = ExportedModel(executable, tmp_path)
    x = np.arange(4, dtype="float32")
    for flag, by in ((True, 1), (False, 10)):
        check_same(executable, model, "main", {"n": 4}, x, np.array(flag))
        assert model.call((x, np.array(flag)), {"n": 4})[1][0].tolist() == (x + by).tolist()


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
    model = ExportedModel(library_functions(), tmp_path)
    for function in ("caller", "loop"):
        inputs = {"caller": 1, "loop": 2}[function]
        for size, status in ((12, OK), (13, FAILED), (12, OK)):
            arrays = (np.zeros(size, "float32"), np.array(2))[:inputs]
            assert model.call(arrays, {"n": size}, function)[0] == status


def test_the_same_function_runs_in_several_memories_of_threads(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    model = ExportedModel(library_functions(), tmp_path)

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
