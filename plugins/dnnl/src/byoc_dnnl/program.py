"""Execution of a plan: primitives created once, and a frame with memory and argument blocks per concurrent call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.parts import is_recording, mark_part, part_marker

from byoc_dnnl.arrays import address_of, aligned, round_up
from byoc_dnnl.capi import FORK_GATE, Argument, Query, failure
from byoc_dnnl.handles import Engine, Memory, Stream, argument_block
from byoc_dnnl.native import make_program, make_single
from byoc_dnnl.plan import Buffer, Check, CoreStep, Kernel, Kind, Location, Plan, Step
from byoc_dnnl.primitive_cache import primitive_of
from byoc_dnnl.weights import Packed, shared_constants

if TYPE_CHECKING:
    from byoc_dnnl.creation import Creation

__all__ = ["Frame", "Program"]

_Native = Callable[..., bool]


class Program:
    """A plan with primitives and constants; any number of threads may call a program at once.

    A program must be created with the same number of OpenMP threads as the plan. Convolution descriptors from the cache
    of primitives in oneDNN 3.2 point to freed attributes. oneDNN reads these attributes if the cache, keyed by the
    number of threads, lacks the primitive.

    Args:
        engine: the engine of the plan.
        plan: the plan to run.
        constants: arrays by digest, at least the constants of the plan.
        is_serial: whether the program runs in the calling thread alone, as planned, for any number of threads of a
            call.
        creation: the creation of the primitives, if begun during planning.

    Attributes:
        parts: the parts of calls, if reported; see :attr:`~byoc_dnnl.plan.Plan.parts`.
    """

    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        constants: Mapping[str, NDArray],
        *,
        is_serial: bool = False,
        creation: Creation | None = None,
    ) -> None:
        self.engine = engine
        self.plan = plan
        self.is_serial = is_serial
        self.arrays: dict[Buffer, NDArray] = {}
        self._packed: list[Packed] = []
        for buffer in dict.fromkeys(location.buffer for step in plan.steps for location in step.locations):
            if buffer.kind is Kind.CONSTANT:
                self.arrays[buffer] = self._constant(buffer, constants[buffer.digest])
        for packing in plan.packings:
            packed = shared_constants().pack(engine, packing, constants[packing.source.buffer.digest])
            self._packed.append(packed)
            self.arrays[packing.target.buffer] = packed.array
        self.numbers, self.storage = plan.lay_out()
        self.scratch_nbytes = plan.scratch_nbytes
        self.scratch_offset = round_up(self.storage.total)
        created = [] if creation is None else creation.finish()
        self.primitives = [primitive_of(step.desc) for step in plan.steps if isinstance(step, Step)]
        created.clear()  # held by the program from here on
        self.native = make_program(self)
        self._frames: list[Frame] = []
        self.parts: tuple[tuple[str, str], ...] = ()
        if is_recording():
            self.report_parts()

    def _constant(self, buffer: Buffer, array: NDArray) -> NDArray:
        """Return the form of a constant read by steps; a derived constant is shared by all programs."""
        if buffer.derivation is None:
            return buffer.read(array)
        self._packed.append(shared_constants().derive(buffer, array))
        return self._packed[-1].array

    def __call__(self, *arrays: NDArray) -> bool:
        """Run the plan on inputs and outputs; return whether all checks held. If not, the outputs hold anything."""
        if self.native is not None:
            return self.native.run(*map(address_of, arrays))
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = Frame(self)
        passed = frame.run(arrays)
        self._frames.append(frame)
        return passed

    def report_parts(self) -> None:
        """Report the steps of later calls to :mod:`byoc_core.runtime.parts`."""
        self.parts = self.parts or self.plan.parts
        marker = part_marker()
        if self.native is not None and marker:
            self.native.report_parts(marker, self.parts)

    @property
    def frame_nbytes(self) -> int:
        """The memory of a frame: the arena and scratch memory."""
        return self.scratch_offset + self.scratch_nbytes

    @property
    def idle_nbytes(self) -> int:
        """The memory held between calls: a frame; with the extension 0, because all programs share memory."""
        return self.frame_nbytes if self.native is None else 0

    def __str__(self) -> str:
        """Return the primitives, one a line."""
        return str(self.plan)

    @property
    def num_frames(self) -> int:
        """The number of frames waiting for reuse."""
        return len(self._frames) if self.native is None else self.native.num_frames


class Frame:
    """The resources of a single call: an arena with scratch memory at the end, a stream, argument blocks."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._stream = Stream(program.engine)
        self._arena = aligned(program.frame_nbytes)
        self._memories: dict[Location, Memory] = {}
        self._bound: list[tuple[int, ctypes.c_void_p]] = []
        self._scratch: list[Memory] = []
        self._calls: list[tuple[str, ctypes.c_void_p, int, Any] | tuple[CoreStep, _Native | None]] = []
        primitives = iter(program.primitives)
        for step in program.plan.steps:
            if not isinstance(step, Step):
                self._calls.append((step, make_single(program, step)))
                continue
            primitive = next(primitives)
            block = [(argument, self._memory(location)) for argument, location in step.arguments.items()]
            if step.desc.scratch_nbytes:
                desc = step.desc.memory_desc(Query.SCRATCHPAD_MD)
                self._scratch.append(Memory(program.engine, desc, address_of(self._arena) + program.scratch_offset))
                block.append((Argument.SCRATCHPAD, self._scratch[-1]))
            self._calls.append((step.title, primitive.pointer, len(block), argument_block(block)))
        self._execute = program.engine.api.function("dnnl_primitive_execute")
        self._set_address = program.engine.api.function("dnnl_memory_set_data_handle")

    def _memory(self, location: Location) -> Memory:
        if location in self._memories:
            return self._memories[location]
        program, buffer = self._program, location.buffer
        address = 0
        if buffer.kind is Kind.ARENA:
            address = address_of(self._arena) + program.storage.offsets[program.numbers[buffer]]
        elif buffer.kind is not Kind.ARGUMENT:
            address = address_of(program.arrays[buffer])
        memory = self._memories[location] = Memory(program.engine, location.desc, address)
        if buffer.kind is Kind.ARGUMENT:
            self._bound.append((buffer.index, memory.pointer))
        return memory

    def _array(self, location: Location, arrays: Sequence[NDArray]) -> NDArray:
        """Return the memory of a location, as an array of any shape and dtype."""
        program, buffer = self._program, location.buffer
        if buffer.kind is Kind.ARENA:
            start = program.storage.offsets[program.numbers[buffer]]
            return self._arena[start : start + location.desc.nbytes]
        return arrays[buffer.index] if buffer.kind is Kind.ARGUMENT else program.arrays[buffer]

    def _run_core_step(self, step: CoreStep, native: _Native | None, arrays: Sequence[NDArray]) -> bool:
        """Run a check or kernel; return whether the run goes on."""
        memories = [self._array(location, arrays) for location in step.locations]
        if native is not None:
            return native(*map(address_of, memories))
        if isinstance(step, Check):
            bits = memories[0].view(f"u{step.element_nbytes}")
            return bool((bits & np.iinfo(bits.dtype).max // 2).max() <= step.limit_bits)
        assert isinstance(step, Kernel)  # functions of bytes are planned with the extension only
        source, target = (array.reshape(-1).view(np.float32) for array in memories)
        with np.errstate(all="ignore"):
            target[...] = step.compute(source)
        return True

    def run(self, arrays: Sequence[NDArray], times: list[float] | None = None) -> bool:
        """Run all steps on inputs and outputs, up to the first failed check; return whether all checks held.

        Args:
            arrays: inputs, then outputs.
            times: receives the time at the beginning, and after each step, by ``time.perf_counter``.

        Raises:
            ExecutionError: oneDNN failed.
        """
        for index, memory in self._bound:
            status = self._set_address(memory, address_of(arrays[index]))
            if status:
                raise failure("dnnl_memory_set_data_handle", status)
        with self._program.engine.threads(1) if self._program.is_serial else nullcontext():
            return self._run_steps(arrays, times)

    def _run_steps(self, arrays: Sequence[NDArray], times: list[float] | None) -> bool:
        stream = self._stream.pointer
        api = self._program.engine.api
        parts = self._program.parts
        for number, call in enumerate(self._calls):
            if times is not None:
                api.call("dnnl_stream_wait", stream)
                times.append(perf_counter())
            goes_on = True
            if len(call) == 2:
                api.call("dnnl_stream_wait", stream)
                goes_on = self._run_core_step(*call, arrays)
            else:
                title, primitive, count, block = call
                with FORK_GATE:
                    status = self._execute(primitive, stream, count, block)
                if status:
                    raise failure(f"dnnl_primitive_execute` of `{title}", status)
            if parts:
                api.call("dnnl_stream_wait", stream)
                mark_part(*parts[number])
            if not goes_on:
                return False
        api.call("dnnl_stream_wait", stream)
        if times is not None:
            times.append(perf_counter())
        return True
