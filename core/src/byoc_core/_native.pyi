# Types of the C extension (sources and texts: core/csrc). byoc_core.runtime.extension returns the extension if present.

from collections.abc import Callable
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

_NDArray: TypeAlias = npt.NDArray[Any]
# Operation, registers, target, address of the function and of the context, step in Python.
_Instruction: TypeAlias = tuple[int, tuple[int, ...], int, int, int, Callable[..., object] | None]
# Kind of memory, storage or base register, dtype code and bits (DLPack), bytes of an element, dtype, shape, strides in
# elements (or None), offset in bytes in the storage or base, array of a constant. Shape, strides and offset are indexes
# into the table of sizes.
_Register: TypeAlias = tuple[
    int, int, int, int, int, np.dtype[Any], tuple[int, ...], tuple[int, ...] | None, int, _NDArray | None
]
# Operation, the sizes of the operands, the value of a constant.
_Operation: TypeAlias = tuple[int, int, int, int]
# Symbol, input and axis with the size, factor and constant.
_Source: TypeAlias = tuple[int, int, int, int, int]

PYTHON: int
RET: int
CALL: int
COPY: int
ZERO: int
INCREMENT: int
LOOP_TEST: int
IF: int
GOTO: int

# Kinds of memory of registers.
ARGUMENT: int
CONSTANT: int
TENSOR: int
VIEW: int

# Operations on sizes.
SIZE_CONSTANT: int
SIZE_UNKNOWN: int
SIZE_ADD: int
SIZE_MULTIPLY: int
SIZE_FLOORDIV: int
SIZE_MOD: int
SIZE_MAX: int
SIZE_MIN: int
SIZE_BROADCAST: int

# The accounts of byoc_core.runtime.threads.worker_accounts; the addresses: omp_get_max_threads, omp_set_num_threads,
# omp_pause_resource_all or 0, GOMP_parallel, omp_get_num_threads and omp_get_thread_num.
def threads_enter(requested: int, /) -> tuple[int, int, int]: ...
def threads_leave(token: tuple[int, int, int], /) -> None: ...
def threads_number() -> int: ...
def threads_set_limit(max_threads: int, /) -> None: ...
def threads_set_openmp(addresses: tuple[int, int, int, int, int, int], /) -> None: ...
def threads_reset_after_fork(without_workers: bool, /) -> None: ...

# The kernel of byoc_core.runtime.graph.native_kernels: rows of image, class and box, int64.
def choose_boxes(
    boxes: _NDArray,
    scores: _NDArray,
    is_double: bool,
    num_images: int,
    num_classes: int,
    num_boxes: int,
    max_boxes: int,
    overlap: float,
    least_score: float,
    is_centre: bool,
    /,
) -> bytearray: ...

# The kernels of byoc_core.runtime.strings and byoc_core.runtime.graph.native_strings; None for operands left to the
# reference kernels.
def pack_strings(items: list[Any], lengths: _NDArray, /) -> bytearray | None: ...
def unpack_strings(data: _NDArray, lengths: _NDArray, /) -> list[str] | None: ...
def change_case(data: _NDArray, lengths: _NDArray, is_upper: bool, new_lengths: _NDArray, /) -> bytearray | None: ...
def find_runs(
    data: _NDArray,
    lengths: _NDArray,
    is_member: bytes,
    min_length: int,
    splits_runs: bool,
    has_marks: bool,
    pad_nbytes: int,
    /,
) -> tuple[int, bytearray, bytearray] | None: ...
def take_spans(data: _NDArray, starts: _NDArray, lengths: _NDArray, /) -> bytearray | None: ...
def take_ragged(data: _NDArray, lengths: _NDArray, indices: _NDArray, itemsize: int, /) -> bytearray | None: ...

class KeyTable:
    def __new__(cls, data: _NDArray, lengths: _NDArray, /) -> Self: ...
    def find(self, data: _NDArray, lengths: _NDArray, indices: _NDArray, /) -> bool: ...

class GramTree:
    def __new__(cls, items: _NDArray, sizes: _NDArray, columns: _NDArray, num_columns: int, /) -> Self: ...
    def count(
        self,
        rows: _NDArray,
        num_rows: int,
        min_length: int,
        max_length: int,
        max_skip: int,
        counts: _NDArray,
        /,
    ) -> None: ...

# Letters: 0 to keep the case, 1 for lower case, 2 for upper case. False for strings left to the reference kernel.
def count_tokens(
    keys: KeyTable,
    tree: GramTree,
    data: _NDArray,
    lengths: _NDArray,
    letters: int,
    is_member: bytes,
    min_characters: int,
    splits_runs: bool,
    has_marks: bool,
    padding: bytes,
    min_length: int,
    max_length: int,
    max_skip: int,
    counts: _NDArray,
    /,
) -> bool: ...

# The address returned by byoc_core.runtime.threads.team_runner.
TEAM_RUNNER: int

# The address returned by byoc_core.runtime.parts.part_marker, and the functions of that module.
PART_MARKER: int

def record_call(index: int, function: Callable[..., Any], arguments: tuple[Any, ...], /) -> tuple[Any, object]: ...
def events_of(record: object, /) -> list[tuple[int, str | None, str | None, int, int]]: ...
def mark_part(part: str, ops: str, /) -> None: ...

# Addresses of functions of float32 (core/csrc/vector_functions.h) by name, for each instruction set of the
# processor, the fastest last.
VECTOR_FUNCTIONS: dict[str, tuple[int, ...]]

class Code:
    # Sizes: the number of symbols, operations, and the sizes of storages.
    def __new__(
        cls,
        instructions: tuple[_Instruction, ...],
        registers: tuple[_Register | None, ...],
        sizes: tuple[int, tuple[_Operation, ...], tuple[int, ...]],
        fail: Callable[[int, int | Exception], object],
        num_threads: int = -1,
        record: Callable[[object], object] | None = None,
    ) -> Self: ...

class Frame:
    @property
    def arena(self) -> _NDArray: ...
    def __new__(cls, code: Code) -> Self: ...
    def lay_out(self, sizes: tuple[int, ...]) -> bool: ...
    def point(self, first: int, arrays: list[_NDArray | None]) -> None: ...
    def run(self, index: int) -> int: ...

class Plan:
    def __new__(
        cls,
        code: Code,
        num_inputs: int,
        num_outputs: int,
        sources: tuple[_Source, ...],
        new_frame: Callable[[], Frame],
        states: tuple[tuple[int, int], ...] = (),
    ) -> Self: ...
    def run(self, inputs: list[Any], outputs: list[Any]) -> _NDArray | tuple[_NDArray, ...] | None: ...
    def prepare(self) -> bool: ...

class Entry:
    def __new__(cls, plan: Plan, fallback: Callable[..., Any]) -> Self: ...
    def __call__(self, *arguments: object) -> Any: ...

class Bound:
    def __new__(cls, frame: Frame, arrays: tuple[_NDArray, ...], results: object) -> Self: ...
    def __call__(self) -> Any: ...

# A function of an artifact run by the native machine at an address (csrc/native_machine.h).
class NativeProgram:
    def __new__(cls, machine: int, data: memoryview, runtimes: tuple[bytes, ...]) -> Self: ...

class NativeFunction:
    # Arguments: dtype code, bits, rank, dtype.
    def __new__(
        cls,
        program: NativeProgram,
        name: str,
        inputs: tuple[tuple[int, int, int, np.dtype[Any]], ...],
        outputs: tuple[tuple[int, int, int, np.dtype[Any]], ...],
        num_threads: int,
        unfit: Callable[..., Any] | None,
        refused: Callable[[str, tuple[Any, ...]], Any] | None,
    ) -> Self: ...
    def __call__(self, *arguments: object) -> Any: ...
    def run(self, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> tuple[_NDArray, ...] | str | None: ...

class NativeState:
    # Values: dtype code, bits, rank, dtype.
    def __new__(
        cls,
        function: NativeFunction,
        values: tuple[tuple[int, int, int, np.dtype[Any]], ...],
        overwrites: bytes,
        capacity: int,
        limit: int,
    ) -> Self: ...
    def run(self, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> tuple[_NDArray, ...] | str | None: ...
    def size(self) -> tuple[int, int, int]: ...
    def take(self) -> tuple[bool, tuple[_NDArray, ...] | None, tuple[int, ...], int]: ...
    def give(self, buffers: tuple[Any, ...] | None, rows: tuple[int, ...]) -> None: ...
