"""Many threads call a machine at once, in every way: none sees another's values, sizes or failures.

The sanitizers run this test too (``python -m core.tests.sanitizers.run``), with the called code instrumented.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest
from byoc_core.artifact import Executable
from byoc_core.dims import symbol
from byoc_core.errors import ExecutionError
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import NDArray, Signature, TensorSpec
from byoc_core.vm import Call, CallKind, PlannedTensor, Program, Ret, VirtualMachine, VMFunction
from byoc_core.vm.program import nbytes_of

pytestmark = pytest.mark.interpreter

NUM_THREADS = 8
NUM_CALLS = 60
SIZES = (2_000, 2_001, 3_000)
NO_SIZE = 7
SOURCE = f"""\
#include "byoc_ffi.h"

/* y = x + 1, one element after the other; tensors of {NO_SIZE} elements it refuses, and says whose. */
BYOC_EXPORT int32_t __tvm_ffi_advance(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {{
  (void)handle;
  (void)result;
  if (byoc_check_count("advance", num_args, 2)) return -1;
  const DLTensor *x = byoc_tensor("advance", "x", &args[0]), *y = byoc_tensor("advance", "y", &args[1]);
  if (!x || !y) return -1;
  const float *from = byoc_data(x);
  float *to = byoc_data(y);
  if (x->shape[0] == {NO_SIZE}) return byoc_fail("ValueError", "function `advance`: refuses %d", (int)from[0]);
  for (int64_t i = 0; i < x->shape[0]; ++i) to[i] = from[i] + 1;
  return 0;
}}
"""
N = symbol("n")
X, Y = TensorSpec("x", "float32", (N,)), TensorSpec("y", "float32", (N,))


@pytest.fixture(scope="module")
def executable() -> Executable:
    """Return y = x + 1 + 1 + 1, by way of two values in planned memory."""
    main = VMFunction(
        "main",
        (X,),
        (Y,),
        constants=(),
        storages=(nbytes_of((N,), "float32"),) * 2,
        tensors=tuple(PlannedTensor(storage, 0, "float32", (N,)) for storage in range(2)),
        dynamics=(),
        code=(
            Call(CallKind.EXTERN, 0, (0,), (2,)),
            Call(CallKind.EXTERN, 0, (2,), (3,)),
            Call(CallKind.EXTERN, 0, (3,), (1,)),
            Ret((1,)),
        ),
    )
    return Executable(Program((main,), ("advance",)), [CSourceModule(SOURCE, {"advance": Signature((X,), (Y,))})])


def run_threads(work: Callable[[int], None]) -> None:
    """Run work(0), work(1) and so on at once; raise the error of the first failure."""
    start = threading.Barrier(NUM_THREADS)
    failures: list[BaseException] = []

    def run_one(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run_one, args=(number,)) for number in range(NUM_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def values(thread: int, call: int, size: int) -> NDArray:
    return np.full(size, 1_000 * thread + call, np.float32)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("sizes", [SIZES[:1], SIZES], ids=["one size", "sizes in turn"])
def test_each_thread_gets_its_own_results(executable: Executable, native: bool, sizes: tuple[int, ...]) -> None:
    machine = VirtualMachine(executable, native=native)
    main = machine["main"]

    def work(thread: int) -> None:
        for call in range(NUM_CALLS):
            x = values(thread, call, sizes[(thread + call) % len(sizes)])
            out = np.empty_like(x)
            np.testing.assert_array_equal(main(x), x + 3)
            assert machine.run("main", {"x": x}, out={"y": out}) is out
            np.testing.assert_array_equal(out, x + 3)

    run_threads(work)


@pytest.mark.parametrize("native", [True, False])
def test_each_thread_binds_buffers_of_its_own(executable: Executable, native: bool) -> None:
    machine = VirtualMachine(executable, native=native)

    def work(thread: int) -> None:
        x = np.empty(SIZES[thread % len(SIZES)], np.float32)
        bound = machine.bind("main", {"x": x})
        for call in range(NUM_CALLS):
            x[...] = values(thread, call, x.size)
            np.testing.assert_array_equal(bound(), x + 3)

    run_threads(work)


@pytest.mark.parametrize("native", [True, False])
def test_threads_share_one_bound_function(executable: Executable, native: bool) -> None:
    x = values(1, 2, SIZES[0])
    out = np.empty_like(x)
    bound = VirtualMachine(executable, native=native).bind("main", {"x": x}, out={"y": out})

    def work(thread: int) -> None:
        for _ in range(NUM_CALLS):
            assert bound() is out

    run_threads(work)
    np.testing.assert_array_equal(out, x + 3)


@pytest.mark.parametrize("native", [True, False])
def test_failures_arrive_in_the_thread_that_they_happened_in(executable: Executable, native: bool) -> None:
    main = VirtualMachine(executable, native=native)["main"]

    def work(thread: int) -> None:
        for call in range(NUM_CALLS):
            if (thread + call) % 2:
                x = values(thread, call, SIZES[0])
                np.testing.assert_array_equal(main(x), x + 3)
                continue
            with pytest.raises(ExecutionError) as caught:
                main(values(thread, call, NO_SIZE))
            assert str(caught.value) == (
                "function `main`, instruction 0 (call_dps_packed `advance` of runtime `csource`): failed with "
                f"ExecutionError: function `advance`: refuses {1_000 * thread + call}"
            )

    run_threads(work)
