"""Generated C on other processors: the bits of the interpreter for nests, the project's bounds for kernels.

``nox -s processors`` runs these tests; pytest does not collect them by default, because zig and qemu are required.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_ccompiler.codegen import FusedCodegen
from byoc_ccompiler.options import CCompilerOptions
from byoc_ccompiler.regions import prepare_regions
from byoc_ccompiler.registry import FAMILIES
from byoc_ccompiler.support import reject_step
from byoc_core.authoring.c import C11_VECTORS, Function, Schedule, hoist, outline, simplify, verify
from byoc_core.dims import symbol
from byoc_core.dtypes import dtype_info, to_numpy
from byoc_core.native.toolchain import BuildOptions
from byoc_core.ops import default_ops
from byoc_core.ops.cases import OpCase, canonical_cases, new_function
from hypothesis import given, settings
from hypothesis import strategies as st

from core.tests.authoring.c.nests import (
    Case,
    cases,
    function_of,
    product_case,
    run,
    schedules,
    schedules_that_fit,
    with_much_work,
)
from core.tests.authoring.c.programs import program_of, run_program
from plugins.ccompiler.tests.processors.machines import Machine, machines
from plugins.ccompiler.tests.processors.module_programs import Call, run_calls

NDArray = npt.NDArray[Any]
NUM_NESTS = 40
SEED = 5


@pytest.fixture(scope="module", params=list(machines()), ids=lambda machine: machine.vectors.name)
def machine(request: pytest.FixtureRequest) -> Machine:
    found: Machine = request.param
    return found


@pytest.fixture(scope="module")
def nests() -> list[tuple[Function, Case]]:
    """Random nests under random schedules."""
    runs: list[tuple[Function, Case]] = []

    @settings(max_examples=NUM_NESTS, deadline=None, database=None, derandomize=True)
    @given(st.data())
    def collect(data: st.DataObject) -> None:
        case = data.draw(cases())
        schedule = schedules_that_fit(case, data.draw(schedules(case.nest)))
        runs.append((function_of(case, schedule, f"kernel{len(runs)}"), case))

    collect()
    return runs


def test_nests_compute_the_bits_of_the_interpreter(
    machine: Machine, nests: list[tuple[Function, Case]], tmp_path: Path
) -> None:
    """The nests include a matrix product in tiles of the machine's own registers."""
    lanes = machine.vectors.unit.lanes("float32")
    case = product_case(symbol("n"), 2 * lanes, 5, {"n": 11})
    order = ("i.tile", "j.tile", "r", "i", "j")
    tiles = Schedule({"i": 4, "j": lanes}, order, ("i.tile",), "j", lanes, frozenset({"i"}))
    drawn = [*nests, (function_of(case, tiles, f"kernel{len(nests)}"), case)]
    runs = [(verify(outline(with_much_work(simplify(hoist(function))))), case) for function, case in drawn]
    text = machine.guard + program_of(runs, C11_VECTORS)
    assert f"vec_f32x{lanes} total[4]" in text
    flags = ["-O2", "-ffp-contract=off", "-Wno-psabi", *machine.vectors.flags]
    actual = run_program(text, flags, tmp_path, machine.compiler, machine.emulator)
    assert actual == [array for function, case in drawn for array in run(function, case)]


def canonical() -> Iterator[tuple[OpCase, str]]:
    """Yield the canonical cases of all compiled ops, each with a name."""
    for name in sorted(FAMILIES):
        for case in canonical_cases(default_ops()).get(name, ()):
            _, binding = new_function(default_ops()[name], case.types(), case.attrs)
            if reject_step(binding, tutorial=False) is None:
                yield case, name


def test_canonical_cases_of_all_ops_are_right(machine: Machine, tmp_path: Path) -> None:
    """Integers and moves have equal bits; floats are within 64 units in the last place of the largest result."""
    drawn = [case for case, _ in canonical()]
    ops = default_ops()
    functions = [
        new_function(ops[case.op], case.types(), case.attrs, name=f"f{number}")[0] for number, case in enumerate(drawn)
    ]
    codegen = FusedCodegen(BuildOptions(), machine.vectors.unit, CCompilerOptions.model_validate({}))
    module = codegen.generate(prepare_regions(functions, {}, FAMILIES))
    inputs = [case.arrays(np.random.default_rng(SEED)) for case in drawn]
    calls = [Call(f"f{number}", arrays, {}) for number, arrays in enumerate(inputs)]
    actual = run_calls(module, calls, machine, tmp_path)
    faults = []
    for case, arrays, results in zip(drawn, inputs, actual, strict=True):
        kernel = ops[case.op].kernel
        assert kernel is not None
        is_float = dtype_info(case.dtype).kind == "float"
        wide = [x.astype(np.float64) if is_float and x.dtype == to_numpy(case.dtype) else x for x in arrays]
        expected = kernel(*wide, **ops[case.op].normalise_attrs(case.attrs))
        for result, right in zip(results, expected if isinstance(expected, tuple) else (expected,), strict=True):
            if not _is_right(result, right):
                faults.append((case, result, right))
    assert faults == []
    assert len(drawn) > 200


def _is_right(result: NDArray, right: NDArray) -> bool:
    if right.dtype != np.float64 or result.dtype.kind in "iub":
        return bool(result.shape == right.shape and np.ascontiguousarray(right).tobytes() == result.tobytes())
    with np.errstate(over="ignore"):
        finite = np.isfinite(right.astype(result.dtype))
        same = np.array_equal(result[~finite], right[~finite].astype(result.dtype), equal_nan=True)
    bound = 64 * float(np.finfo(result.dtype).eps) / 2 * max(1.0, float(np.abs(right[finite]).max(initial=0)))
    return same and bool(np.all(np.abs(result[finite].astype(np.float64) - right[finite]) <= bound))
