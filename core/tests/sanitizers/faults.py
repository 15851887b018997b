"""Deliberate faults, by name: evidence for the sanitizer's view of the extension and the code called by it.

    python -m core.tests.sanitizers.faults NAME

Each passes to the extension frames never made by byoc: over shared memory, or over too little memory.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import numpy as np
from byoc_core._native import (
    CALL,
    CONSTANT,
    COPY,
    GOTO,
    IF,
    INCREMENT,
    LOOP_TEST,
    RET,
    SIZE_CONSTANT,
    ZERO,
    Code,
    Frame,
)
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import NDArray, Signature, TensorSpec

__all__ = ["FAULTS"]

NUM_STEPS = 200_000
COUNTER = """\
#include "byoc_ffi.h"

BYOC_EXPORT int32_t __tvm_ffi_count(void *handle, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
  const DLTensor *counter = byoc_tensor("count", "counter", &args[0]);
  ++*(int64_t *)byoc_data(counter);
  return 0;
}
"""


_Instruction = tuple[int, tuple[int, ...], int, int, int, None]
END: _Instruction = (RET, (), 0, 0, 0, None)


def _fail(index: int, reason: int | Exception) -> None:
    raise RuntimeError(f"instruction {index} failed with {reason}")


def _frame(instructions: list[_Instruction], arrays: list[NDArray]) -> Frame:
    codes = {"int64": (0, 64), "bool": (6, 8)}
    sizes = [0, *dict.fromkeys(size for array in arrays for size in array.shape)]
    registers = tuple(
        (
            CONSTANT,
            0,
            *codes[array.dtype.name],
            array.itemsize,
            array.dtype,
            tuple(map(sizes.index, array.shape)),
            None,
            0,
            array,
        )
        for array in arrays
    )
    operations = tuple((SIZE_CONSTANT, 0, 0, size) for size in sizes)
    frame = Frame(Code(tuple(instructions), registers, (0, operations, ()), _fail))
    assert frame.lay_out(())
    return frame


def _race(step: _Instruction) -> None:
    """Two threads with separate frames run a loop with one register in the same memory."""
    shared = np.zeros((), np.int64)
    loop: list[_Instruction] = [
        step,
        (INCREMENT, (1,), 0, 0, 0, None),
        (LOOP_TEST, (1, 2, 3, 4), 0, 0, 0, None),
        (IF, (4,), 5, 0, 0, None),
        (GOTO, (), 0, 0, 0, None),
    ]

    def run() -> None:
        own: list[NDArray] = [np.zeros((), np.int64), np.array(NUM_STEPS), np.array(True), np.array(True)]
        _frame([*loop, END], [shared, *own]).run(0)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def race_in_the_extension() -> None:
    """Both threads increment the same number."""
    _race((INCREMENT, (0,), 0, 0, 0, None))


def race_in_called_code() -> None:
    """The function called by both threads increments the same number."""
    module = CSourceModule(COUNTER, {"count": Signature((), (TensorSpec("counter", "int64", ()),))})
    native = module.get_function("count").native
    assert native is not None
    _race((CALL, (0,), 0, native.function, native.context, None))


def write_past_the_end() -> None:
    """Sixteen numbers are copied into room for eight."""
    source, target = np.zeros(16, np.int64), np.zeros(8, np.int64)
    frame = _frame([(COPY, (0, 1), 0, 0, 0, None), END], [source, np.lib.stride_tricks.as_strided(target, (16,))])
    frame.run(0)


def misaligned_write() -> None:
    """A number is cleared at an odd address."""
    memory = np.zeros(16, np.uint8)
    odd: NDArray = np.ndarray((), np.int64, memory, 1 - memory.ctypes.data % 2)
    _frame([(ZERO, (0,), 0, 0, 0, None), END], [odd]).run(0)


FAULTS: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (race_in_the_extension, race_in_called_code, write_past_the_end, misaligned_write)
}

if __name__ == "__main__":
    FAULTS[sys.argv[1]]()
