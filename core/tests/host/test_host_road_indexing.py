"""Gathers, scatters and moves of slices in all stages: printed, parsed, built for the host, saved, loaded, run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.dims import Dim, symbol
from byoc_core.errors import ExecutionError
from byoc_core.ir import IRModule, TensorType
from byoc_core.ops import FunctionBuilder, default_ops
from byoc_core.opset.families import KERNELS

Case = tuple[list[TensorType], dict[str, Any]]


def _floats(*shape: Dim) -> TensorType:
    return TensorType(shape, "float32")


def _ints(*shape: Dim) -> TensorType:
    return TensorType(shape, "int64")


_CASES: dict[str, Callable[[Dim, Dim], Case]] = {
    "take": lambda n, m: ([_floats(n, 3), _ints(m, 2)], {"axis": 0}),
    "gather_elements": lambda n, m: ([_floats(n, 3), _ints(m, 3)], {"axis": 0}),
    "gather_nd": lambda n, m: ([_floats(n, 3, m), _ints(n, m, 1)], {"batch_dims": 1}),
    "scatter_elements": lambda n, m: ([_floats(n, 3), _ints(m, 3), _floats(m, 3)], {"reduction": "add"}),
    "scatter_nd": lambda n, m: ([_floats(n, 3), _ints(m, 1), _floats(m, 3)], {"reduction": "max"}),
    "scatter_slice": lambda n, m: ([_floats(n, m + 1, 3), _floats(n, m, 3), _ints(n)], {"axis": 1}),
    "one_hot": lambda n, m: ([_ints(m), _floats(), _floats(), _floats(n)], {"depth": 2 * n, "axis": 0}),
    "tile": lambda n, m: ([_floats(n, m)], {"repeats": (2, n)}),
    "flip": lambda n, m: ([_floats(n, m)], {"axis": -1}),
    "roll": lambda n, m: ([_floats(n, m)], {"shift": (1, -1), "axis": (0, 1)}),
    "stack": lambda n, m: ([_floats(n, m), _floats(n, m)], {"axis": -1}),
    "reverse_sequence": lambda n, m: ([_floats(n, m, 2), _ints(n)], {}),
}
"""Parameters and attributes for two sizes; parameters beyond the op's operands only determine a symbol's size."""


def _build_module(name: str, case: Case) -> IRModule:
    types, attrs = case
    builder = FunctionBuilder("main")
    params = [builder.param(f"p{index}", type_) for index, type_ in enumerate(types)]
    operands = default_ops()[name].operands
    used = params if operands[-1].variadic else params[: len(operands)]
    main = builder.finish(*builder.bind(name, used, attrs).results)
    return IRModule({"main": main}, builder.constants)


def _inputs(case: Case) -> list[Any]:
    """Return random numbers; integers are 0 and 1, valid as indices, starts and lengths."""
    rng = np.random.default_rng(0)
    shapes: list[Any] = [type_.shape for type_ in case[0]]
    return [rng.integers(0, 2, shape).astype(type_.dtype) for shape, type_ in zip(shapes, case[0], strict=True)]


@pytest.mark.parametrize("name", sorted(_CASES))
def test_op_runs_as_its_kernel_with_static_and_dynamic_sizes(name: str, tmp_path: Path) -> None:
    op, case_of = default_ops()[name], _CASES[name]
    dynamic = _build_module(name, case_of(symbol("n"), symbol("m")))
    executable = byoc_core.build(dynamic, [])
    executable.save(tmp_path / "dynamic.byoc")
    machines = [byoc_core.VirtualMachine(e) for e in (executable, byoc_core.load(tmp_path / "dynamic.byoc"))]
    for sizes in ((2, 1), (3, 5)):
        case = case_of(*sizes)
        static = _build_module(name, case)
        for module in (dynamic, static):
            assert R.parse(str(module)) == module
        inputs = _inputs(case)
        operands = inputs if op.operands[-1].variadic else inputs[: len(op.operands)]
        expected = KERNELS[name](*operands, **op.normalise_attrs(case[1]))
        for machine in (*machines, byoc_core.VirtualMachine(byoc_core.build(static, []))):
            np.testing.assert_array_equal(machine["main"](*inputs), expected, strict=True)


def test_an_index_outside_is_an_error_that_names_the_op() -> None:
    module = _build_module("gather_elements", _CASES["gather_elements"](symbol("n"), symbol("m")))
    machine = byoc_core.VirtualMachine(byoc_core.build(module, []))
    with pytest.raises(ExecutionError) as caught:
        machine["main"](np.zeros((2, 3), np.float32), np.full((1, 3), 2))
    assert str(caught.value) == (
        "function `main`, instruction 0 (call_dps_packed `host_main_0` of runtime `graph`): failed with "
        "ExecutionError: graph function `host_main_0`, node 0 (`gather_elements`, `lv0`): op `gather_elements`: an "
        "index lies outside axis 0; got 2, expected -2 to 1"
    )
