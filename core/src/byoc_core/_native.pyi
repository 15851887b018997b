# Types of the C extension (its sources and texts: core/csrc), which may be missing: ask byoc_core.vm.extension.

from collections.abc import Callable
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

_NDArray: TypeAlias = npt.NDArray[Any]
_Instruction: TypeAlias = tuple[int, tuple[int, ...], int, int, int]
_Register: TypeAlias = tuple[int, int, int, int, tuple[int, ...], tuple[int, ...] | None]
_Spec: TypeAlias = tuple[np.dtype[Any], tuple[int, ...]]

PYTHON: int
RET: int
CALL: int
COPY: int
ZERO: int
INCREMENT: int
LOOP_TEST: int
IF: int
GOTO: int

# The accounts of byoc_core.runtime.worker_accounts; the addresses: omp_get_max_threads, omp_set_num_threads and
# omp_pause_resource_all, or 0.
def threads_enter(wanted: int, /) -> tuple[int, int, int]: ...
def threads_leave(token: tuple[int, int, int], /) -> None: ...
def threads_number() -> int: ...
def threads_set_limit(number: int, /) -> None: ...
def threads_set_openmp(addresses: tuple[int, int, int], /) -> None: ...
def threads_start_anew(alone: bool, /) -> None: ...

class Code:
    # An instruction: operation, registers, target, address of the function and of its context.

    def __new__(
        cls,
        instructions: tuple[_Instruction, ...],
        num_registers: int,
        fail: Callable[[int, int], object],
        num_threads: int = -1,
    ) -> Self: ...

class Frame:
    owners: object
    # A register: address, dtype code and bits (DLPack), bytes of an element, shape, strides in elements (or None).
    # A follower: register, the one in whose memory it lies, bytes behind its start.
    def __new__(
        cls,
        code: Code,
        registers: tuple[_Register | None, ...],
        followers: tuple[tuple[int, int, int], ...],
        owners: object,
    ) -> Self: ...
    def point(self, first: int, arrays: list[_NDArray | None]) -> None: ...
    def run(self, index: int) -> int: ...

class Plan:
    def __new__(cls, inputs: tuple[_Spec, ...], outputs: tuple[_Spec, ...], new_frame: Callable[[], Frame]) -> Self: ...
    def run_into(self, inputs: list[_NDArray], outputs: list[_NDArray]) -> _NDArray | tuple[_NDArray, ...] | None: ...
    def take_frame(self) -> Frame | None: ...

class Entry:
    plan: Plan | None
    def __new__(cls, fallback: Callable[..., Any]) -> Self: ...
    def __call__(self, *arguments: object) -> Any: ...

class Bound:
    def __new__(cls, frame: Frame, results: object, fallback: Callable[[], object]) -> Self: ...
    def __call__(self) -> Any: ...
