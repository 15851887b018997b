"""The limits of native calls in one go: steps left to Python, with equal messages and results by both ways."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from byoc_core.dims import parse_dim
from byoc_core.errors import CallError, ExecutionError
from byoc_core.runtime.extension import extension, extension_status
from byoc_core.runtime.module import NDArray, TensorSpec
from byoc_core.vm import Builtin, Call, PlannedTensor, Program, Ret, VirtualMachine, VMFunction

from core.tests.vm.native_functions import native_function
from core.tests.vm.programs import Executable
from core.tests.vm.test_call_list import BUILTIN, EXTERN, QUADRUPLE, Module, X, add, of_one_function, ones

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.skipif(extension() is None, reason=extension_status()[1] or "it is there"),
]

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
    """Return a machine with a single function; the symbol is ``add``."""
    main = VMFunction("main", tuple(params), tuple(results), (), tuple(storages), tuple(tensors), (), tuple(code))
    executable = Executable(Program((main,), ("add",)), [Module(add=native_function("add", add))])
    return VirtualMachine(executable, native=native)


@BOTH_WAYS
def test_results_do_not_take_over_the_dtype_of_a_buffer(native: bool) -> None:
    vm = of_one_function(QUADRUPLE, native_function("add", add), tensors=(X,), native=native)
    buffer = np.empty(3, np.dtype(np.float32, metadata={"owner": "caller"}))
    assert vm.run("main", {"x": ones(3)}, {"y": buffer}) is buffer
    result = vm["main"](ones(3))
    assert isinstance(result, np.ndarray)
    assert result.dtype.metadata is None


@BOTH_WAYS
def test_of_two_sizes_that_cannot_be_the_same_one_is_named(native: bool) -> None:
    code = (Call(EXTERN, 0, (0, 0), (2,)), Call(EXTERN, 0, (0, 0), (1,)), Ret((1,)))
    late = TensorSpec("y", "float32", (n - 5,))
    vm = machine(native, code, (X,), (late,), (PlannedTensor(0, 0, "float32", (n - 3,)),), (4 * n,))
    calls: list[Callable[[], object]] = [lambda: vm["main"](ones(2)), lambda: vm.run("main", {"x": ones(2)})]
    for call in calls:
        with pytest.raises(CallError) as caught:
            call()
        assert str(caught.value) == "function `main`, result `y`: size n-5 is negative; got -3"


@BOTH_WAYS
def test_a_copy_between_sizes_that_differ_fails_with_both_named(native: bool) -> None:
    code = (Call(EXTERN, 0, (0, 0), (3,)), Call(BUILTIN, Builtin.COPY, (0,), (2,)), Ret((2, 3)))
    params = X, TensorSpec("z", "float32", (m,))
    vm = machine(native, code, params, (TensorSpec("long", "float32", (m,)), TensorSpec("short", "float32", (n,))))
    inputs = {"x": ones(2), "z": ones(3)}
    bound = vm.bind("main", inputs)
    calls: list[Callable[[], object]] = [lambda: vm["main"](*inputs.values()), lambda: vm.run("main", inputs), bound]
    for call in calls:
        for _ in range(2):
            with pytest.raises(ExecutionError) as caught:
                call()
            assert str(caught.value) == (
                "function `main`, instruction 1 (call_builtin `copy`): failed with CallError: copy: the shapes differ; "
                "got [2], expected [3]"
            )


@BOTH_WAYS
def test_sizes_are_checked_when_a_function_is_bound(native: bool) -> None:
    code = (Call(EXTERN, 0, (0, 0), (2,)), Call(EXTERN, 0, (0, 0), (1,)), Ret((1,)))
    tensor = PlannedTensor(0, 0, "float32", (n - 3,))
    vm = machine(native, code, (X,), (TensorSpec("y", "float32", (n,)),), (tensor,), (4 * n,))
    with pytest.raises(CallError) as caught:
        vm.bind("main", {"x": ones(2)})
    assert str(caught.value) == "function `main`, register t0: size n-3 is negative; got -1"


@BOTH_WAYS
def test_a_bound_call_inside_itself_fails(native: bool) -> None:
    seen: list[str] = []

    def add_once_more(x: NDArray, y: NDArray, out: NDArray) -> None:
        add(x, y, out)
        with pytest.raises(RuntimeError) as caught:
            bound()
        seen.append(str(caught.value))

    bound = of_one_function(QUADRUPLE, native_function("add", add_once_more), tensors=(X,), native=native).bind(
        "main", {"x": ones(3)}
    )
    for _ in range(2):
        np.testing.assert_array_equal(bound(), 4 * ones(3))
    assert seen == ["a bound function cannot be called inside itself in one thread"] * 4


@BOTH_WAYS
def test_functions_are_submitted_to_a_pool(native: bool) -> None:
    vm = of_one_function(QUADRUPLE, native_function("add", add), tensors=(X,), native=native)
    bound = vm.bind("main", {"x": ones(3)})
    with ThreadPoolExecutor(1) as pool:
        np.testing.assert_array_equal(pool.submit(bound).result(), 4 * ones(3))
        np.testing.assert_array_equal(pool.submit(vm["main"], ones(3)).result(), 4 * ones(3))


FORK = """
import os, signal, sys, threading, warnings
from core.tests.vm.programs import Executable
from core.tests.vm.test_call_list import QUADRUPLE, X, add, native_function, of_one_function, ones

entered, leave = threading.Event(), threading.Event()
parent = os.getpid()


def wait(x, y, out):
    add(x, y, out)
    if os.getpid() == parent:
        entered.set()
        leave.wait(60)


vm = of_one_function(QUADRUPLE, native_function("add", wait), tensors=(X,), native=sys.argv[1] == "True")
bound = vm.bind("main", {"x": ones(3)})
caller = threading.Thread(target=bound)
caller.start()
assert entered.wait(60)
warnings.simplefilter("ignore")
child = os.fork()
if child == 0:
    signal.alarm(30)
    found = [bound().tolist() for _ in range(2)]
    helper = threading.Thread(target=bound)
    helper.start()
    helper.join()
    os._exit(0 if found == [[4, 8, 12]] * 2 else 1)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
leave.set()
caller.join()
print(status, bound().tolist())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
@BOTH_WAYS
def test_a_forked_child_calls_what_a_thread_of_its_parent_was_running(native: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK, str(native)], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "0 [4.0, 8.0, 12.0]"


ENDLESS = """
import signal, sys
from core.tests.vm.programs import Executable
from core.tests.vm.test_call_list import *

code = (
    Call(EXTERN, 0, (0, 0), (1,)),
    Call(BUILTIN, Builtin.ZERO, (), (2,)),
    Call(BUILTIN, Builtin.INCREMENT, (), (2,)) if sys.argv[3] == "builtin" else Call(EXTERN, 1, (0,), (1,)),
    Goto(2),
    Ret((1,)),
)
count = TensorSpec("count", "int64", ())
vm = of_one_function(
    code,
    native_function("add", add),
    externs={"negative": np.negative},
    tensors=(count,),
    native=sys.argv[1] == "True",
)
signal.signal(signal.SIGALRM, signal.default_int_handler)
call = vm["main"] if sys.argv[2] == "call" else vm.bind("main", {"x": ones(3)})
for _ in range(2):
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        call(*([ones(3)] if sys.argv[2] == "call" else []))
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="a system without this timer")
@pytest.mark.parametrize("how", ["call", "bind"])
@pytest.mark.parametrize("step", ["builtin", "extern in C"])
@BOTH_WAYS
def test_an_endless_loop_is_interrupted(native: bool, step: str, how: str) -> None:
    command = [sys.executable, "-c", ENDLESS, str(native), how, step]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["interrupted"] * 2
