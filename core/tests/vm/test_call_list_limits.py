"""Where native calls in one go end: what they leave to Python, and that both ways then say and give the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from byoc_core.dims import parse_dim
from byoc_core.errors import CallError, ExecutionError
from byoc_core.runtime.module import NDArray, TensorSpec
from byoc_core.vm import Builtin, Call, PlannedTensor, Program, Ret, VirtualMachine, VMFunction
from byoc_core.vm.extension import extension, extension_status

from core.tests.vm.native_functions import native_function
from core.tests.vm.test_call_list import BUILTIN, EXTERN, QUADRUPLE, Executable, Module, X, add, of_one_function, ones

pytestmark = pytest.mark.skipif(extension() is None, reason=extension_status()[1] or "it is there")

n, m = parse_dim("n"), parse_dim("m")
BOTH_WAYS = pytest.mark.parametrize("native", [True, False])


def machine(
    native: bool,
    code: Sequence[Any],
    params: Sequence[TensorSpec],
    results: Sequence[TensorSpec],
    tensors: Sequence[PlannedTensor] = (),
    storages: Sequence[Any] = (),
) -> VirtualMachine:
    """Gives a machine with one function; its symbol is ``add``."""
    main = VMFunction("main", tuple(params), tuple(results), (), tuple(storages), tuple(tensors), (), tuple(code))
    executable = Executable(Program((main,), ("add",)), Module(add=native_function("add", add)))
    return VirtualMachine(executable, native=native)


@BOTH_WAYS
def test_results_do_not_take_over_the_dtype_of_a_buffer(native: bool) -> None:
    vm = of_one_function(QUADRUPLE, native_function("add", add), tensors=(X,), native=native)
    buffer = np.empty(3, np.dtype(np.float32, metadata={"owner": "caller"}))  # type: ignore[call-overload]
    assert vm.run("main", {"x": ones(3)}, {"y": buffer}) is buffer
    assert vm["main"](ones(3)).dtype.metadata is None


@BOTH_WAYS
def test_of_two_sizes_that_cannot_be_the_same_one_is_named(native: bool) -> None:
    code = (Call(EXTERN, 0, (0, 0), (2,)), Call(EXTERN, 0, (0, 0), (1,)), Ret((1,)))
    late = TensorSpec("y", "float32", (n - 5,))
    vm = machine(native, code, (X,), (late,), (PlannedTensor(0, 0, "float32", (n - 3,)),), (4 * n,))
    for call in (lambda: vm["main"](ones(2)), lambda: vm.run("main", {"x": ones(2)})):
        with pytest.raises(CallError) as caught:
            call()
        assert str(caught.value) == "function `main`, register t0: size n-3 is negative; got -1"


def test_arrays_that_change_while_a_frame_is_made_are_left_to_python() -> None:
    module = extension()
    assert module is not None
    x: NDArray = np.zeros((2, 3), np.float32)
    y: NDArray = np.zeros((2, 3), np.float32)
    code = module.Code(((module.RET, (), 0, 0, 0),), 2, print)
    changed: list[NDArray] = []

    def new_frame() -> Any:
        for array in changed:
            array.resize((6,), refcheck=False)
        register = (0, 2, 32, 4, (0, 0), None)
        return module.Frame(code, (register, register), (), ())

    spec = (np.dtype(np.float32), (2, 3))
    for changed in ([x], [y]):
        plan = module.Plan((spec,), (spec,), new_frame)
        assert plan.run_into([x], [y]) is None
        changed[0].resize((2, 3), refcheck=False)
        assert plan.run_into([x], [y]) is y
