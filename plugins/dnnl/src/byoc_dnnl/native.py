"""Regions in one native call: plans as tables of the C extension, if the extension is available.

The extension reads locations and steps as tuples, by position (``csrc/python/program.c``).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from math import prod
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from byoc_core.dtypes import to_numpy
from byoc_core.errors import ExecutionError
from byoc_core.runtime.module import NativeEntry, NDArray, Signature
from byoc_core.runtime.threads import team_runner, use_openmp
from byoc_core.runtime.vector_functions import vector_function

from byoc_dnnl.arrays import address_of
from byoc_dnnl.capi import Argument, Query, failure
from byoc_dnnl.extension import extension, extension_status
from byoc_dnnl.handles import Engine, MemoryDesc, Primitive
from byoc_dnnl.plan import Buffer, CoreStep, Kernel, Kind, Location, Step
from byoc_dnnl.static_form import Shapes
from byoc_dnnl.step_numbers import core_step

if TYPE_CHECKING:
    from byoc_dnnl._native import Program as NativeProgram
    from byoc_dnnl._native import Region as NativeRegion
    from byoc_dnnl.program import Program

__all__ = [
    "Caller",
    "extension",
    "extension_status",
    "make_caller",
    "make_program",
    "make_single",
]

_FUNCTIONS = (
    "dnnl_primitive_execute",
    "dnnl_memory_create",
    "dnnl_memory_destroy",
    "dnnl_memory_set_data_handle",
    "dnnl_stream_create",
    "dnnl_stream_destroy",
    "dnnl_stream_wait",
)
"""In the order of ``Api`` in ``csrc/program.h``."""

_FAILURES = (
    "dnnl_primitive_execute",
    "dnnl_memory_create",
    "dnnl_stream_create",
    "dnnl_memory_set_data_handle",
    "dnnl_stream_wait",
)
"""Operations with possible failures, by the numbers of ``csrc/program.h``; larger numbers mean lack of memory."""

_REASONS = {-2: "the tensors do not match the signature", -3: "out of memory"}


_Numbers = tuple[float | tuple[int, ...], ...]


def make_program(program: Program) -> NativeProgram | None:
    """Build the native form of a program; ``None`` without the extension, or if the core lacks a function."""
    native = extension()
    lacks = any(isinstance(step, Kernel) and not vector_function(step.function) for step in program.plan.steps)
    return None if native is None or lacks else _Tables(native, program).make()


def make_single(program: Program, step: CoreStep) -> Callable[..., bool] | None:
    """Return a callable for a step, with the addresses of all locations as arguments; returns whether a check holds.

    ``None`` without the extension, or if the core lacks the function.
    """
    native = extension()
    if native is None or (isinstance(step, Kernel) and not vector_function(step.function)):
        return None
    engine = program.engine
    numbers = range(len(step.locations))
    program_of_step: NativeProgram = native.Program(
        _functions(engine, is_serial=program.is_serial, run_team=0),
        engine.pointer.value,
        len(numbers),
        0,
        tuple((0, native.ARGUMENT, number) for number in numbers),
        (_core_step(native, step, numbers),),
        engine,
        lambda operation, _, status: _error([step.title], operation, 0, status),
    )
    return program_of_step.run


def _core_step(native: ModuleType, step: CoreStep, numbers: Sequence[int]) -> _Numbers:
    """Return a step other than a primitive as numbers, given the numbers of all locations."""
    word, fields = core_step(step, numbers)
    addresses = (vector_function(field) if isinstance(field, str) else field for field in fields)
    return getattr(native, word.upper()), *addresses


class _Tables:
    """The locations and steps of a program as numbers."""

    def __init__(self, native: ModuleType, program: Program) -> None:
        self._native = native
        self._program = program
        self._locations: list[tuple[int, int, int]] = []
        self._numbers: dict[Location, int] = {}
        self._scratch: list[MemoryDesc] = []

    def make(self) -> NativeProgram:
        program, native = self._program, self._native
        primitives = iter(program.primitives)
        steps = tuple(
            self._execute(step, next(primitives)) if isinstance(step, Step) else self._core(step)
            for step in program.plan.steps
        )
        titles = [step.title for step in program.plan.steps]
        result: NativeProgram = native.Program(
            _functions(program.engine, is_serial=program.is_serial, run_team=team_runner()),
            program.engine.pointer.value,
            1 + max((location.buffer.index for location in self._numbers), default=-1),
            program.frame_nbytes,
            tuple(self._locations),
            steps,
            (program.engine, program.plan, program.primitives, program.arrays, self._scratch),
            lambda operation, step, status: _error(titles, operation, step, status),
        )
        return result

    def _execute(self, step: Step, primitive: Primitive) -> tuple[int, int, tuple[tuple[int, int], ...]]:
        arguments = [(int(argument), self._number(location)) for argument, location in step.arguments.items()]
        if step.scratch_nbytes:
            self._scratch.append(step.desc.memory_desc(Query.SCRATCHPAD_MD))
            number = self._add(self._scratch[-1], self._native.ARENA, self._program.scratch_offset)
            arguments.append((int(Argument.SCRATCHPAD), number))
        return self._native.EXECUTE, primitive.pointer.value or 0, tuple(arguments)

    def _core(self, step: CoreStep) -> _Numbers:
        numbers = [self._number(location) for location in step.locations]
        return _core_step(self._native, step, numbers)

    def _number(self, location: Location) -> int:
        found = self._numbers.get(location)
        if found is None:
            found = self._numbers[location] = self._add(location.desc, *self._location(location.buffer))
        return found

    def _location(self, buffer: Buffer) -> tuple[int, int]:
        program = self._program
        if buffer.kind is Kind.ARGUMENT:
            return self._native.ARGUMENT, buffer.index
        if buffer.kind is Kind.ARENA:
            return self._native.ARENA, program.storage.offsets[program.numbers[buffer]]
        return self._native.CONSTANT, address_of(program.arrays[buffer])

    def _add(self, desc: MemoryDesc, kind: int, value: int) -> int:
        self._locations.append((desc.pointer.value or 0, kind, value))
        return len(self._locations) - 1


class Caller:
    """The entry of machine code into a function.

    The extension itself finds the programs of earlier calls, by the number of threads and the shapes of arguments.

    Args:
        native: the extension.
        max_threads: the address of OpenMP's ``omp_get_max_threads``.
        signature: the signature of the function.
        max_programs: the number of programs to keep.
        find: returns the program for a number of threads and the shapes of all arguments; ``None`` if ``compute`` does
            all the work.
        compute: computes the function on inputs and outputs, also after a failed check.
    """

    def __init__(
        self,
        native: ModuleType,
        max_threads: int,
        signature: Signature,
        max_programs: int,
        find: Callable[[int, Shapes], NativeProgram | None],
        compute: Callable[..., object],
    ) -> None:
        self._last_errors = _Errors()
        ranks = tuple(len(spec.shape) for spec in (*signature.inputs, *signature.outputs))

        def compute_at(addresses: Sequence[int], shapes: Shapes) -> None:
            compute(*_arrays_at(signature, addresses, shapes))

        self._region: NativeRegion = native.Region(
            max_threads, ranks, max_programs, find, compute_at, self._last_errors.record
        )

    def tick(self) -> int:
        """Return a time later than the time of each earlier use."""
        return self._region.tick()

    def last_use(self, program: NativeProgram) -> int:
        """Return the time of the last use of a program by machine code; 0 without a use."""
        return self._region.last_use(program)

    def drop(self, program: NativeProgram) -> None:
        """Hide a program from later calls of machine code."""
        self._region.drop(program)

    def entry(self, owner: object) -> NativeEntry:
        """Return the entry of the core's native call list; ``owner`` is held as long as the entry may be called."""
        region = self._region
        return NativeEntry(region.function, region.context, self._last_errors.explain, (region, owner))


def make_caller(
    signature: Signature,
    max_programs: int,
    find: Callable[[int, Shapes], NativeProgram | None],
    compute: Callable[..., object],
) -> Caller | None:
    """Build the entry of machine code into a function: see :class:`Caller`.

    ``None`` without the extension, or without the process's OpenMP, the source of the number of threads of a call.
    """
    native, openmp = extension(), use_openmp()
    if native is None or openmp is None:
        return None
    return Caller(native, openmp.addresses[0], signature, max_programs, find, compute)


class _Errors(threading.local):
    """The error of the last failed call of a thread, kept until the caller asks."""

    _last_error: BaseException | None = None

    def record(self, error: BaseException) -> None:
        self._last_error = error

    def explain(self, status: int) -> str:
        """Return the text of a failure; re-raise anything other than an ``Exception`` (the program is being ended)."""
        error, self._last_error = self._last_error, None
        if error is not None and not isinstance(error, Exception):
            raise error
        return str(error) if error else _REASONS.get(status, f"status {status}")


def _error(titles: list[str], operation: int, step: int, status: int) -> ExecutionError:
    if operation >= len(_FAILURES):
        return ExecutionError("a region", "has no memory for intermediates")
    name = _FAILURES[operation]
    return failure(f"{name}` of `{titles[step]}" if operation == 0 else name, status)


def _functions(engine: Engine, *, is_serial: bool, run_team: int) -> tuple[int, ...]:
    """Return the addresses of ``Api``.

    ``run_team`` becomes 0 in a serial program, or if oneDNN uses other threads than the core.
    """
    api, openmp = engine.api, engine.openmp
    set_num_threads = "omp_set_num_threads" if is_serial else ""
    names = ("omp_get_max_threads", "GOMP_parallel", "omp_get_thread_num", set_num_threads)
    functions: list[Any] = [api.function(name) for name in _FUNCTIONS]
    functions += [getattr(openmp, name, None) for name in names]
    addresses = [ctypes.cast(function, ctypes.c_void_p).value or 0 if function else 0 for function in functions]
    process_openmp, max_threads = use_openmp(), addresses[len(_FUNCTIONS)]
    is_known = process_openmp is not None and max_threads == process_openmp.addresses[0]
    return *addresses, run_team if is_known and not is_serial else 0


def _arrays_at(signature: Signature, addresses: Sequence[int], shapes: Shapes) -> list[NDArray]:
    """Return arrays at addresses; inputs are read-only."""
    arrays = []
    for spec, address, shape in zip((*signature.inputs, *signature.outputs), addresses, shapes, strict=True):
        dtype = to_numpy(spec.dtype)
        memory: Any = (ctypes.c_char * (dtype.itemsize * prod(shape))).from_address(address)
        arrays.append(np.ndarray(shape, dtype, memory))
        arrays[-1].flags.writeable = len(arrays) > len(signature.inputs)
    return arrays
