"""Runs a plan: primitives created once, and for each call at a time a frame with its own memory and argument blocks."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from byoc_core.runtime.module import NDArray

from byoc_dnnl.capi import Argument, ExecArg, Query, failure
from byoc_dnnl.handles import Engine, Memory, MemoryDesc, Primitive, Stream
from byoc_dnnl.plan import Buffer, Kind, Place, Plan

__all__ = ["PackedConstants", "Program"]

_ALIGNMENT = 64


class PackedConstants:
    """Constants in the layouts of primitives, each made once for all programs of a module."""

    def __init__(self) -> None:
        self._arrays: dict[str, list[tuple[MemoryDesc, MemoryDesc, NDArray]]] = {}

    def find(self, digest: str, source: MemoryDesc, target: MemoryDesc) -> NDArray | None:
        """Gives what was made of a constant, seen as ``source``, in the layout ``target``."""
        for known_source, known_target, array in self._arrays.get(digest, ()):
            if known_source == source and known_target == target:
                return array
        return None

    def add(self, digest: str, source: MemoryDesc, target: MemoryDesc, array: NDArray) -> None:
        """Keeps what was made of a constant."""
        self._arrays.setdefault(digest, []).append((source, target, array))


class Program:
    """A plan with its primitives and constants; any number of threads may call it at once.

    Args:
        engine: where the plan was made.
        plan: what to run.
        constants: arrays by digest, at least those of the plan.
        packed: where packed constants are found, and kept.
    """

    def __init__(self, engine: Engine, plan: Plan, constants: Mapping[str, NDArray], packed: PackedConstants) -> None:
        self.engine = engine
        self.plan = plan
        self.primitives = [Primitive(step.desc) for step in plan.steps]
        self.arrays: dict[Buffer, NDArray] = {}
        for step in plan.steps:
            for place in step.arguments.values():
                if place.buffer.kind is Kind.CONSTANT:
                    self.arrays[place.buffer] = np.ascontiguousarray(constants[place.buffer.digest])
        self._pack(constants, packed)
        self.numbers, self.storage = plan.lay_out()
        self.scratch_nbytes = plan.scratch_nbytes
        self._frames: list[_Frame] = []

    def __call__(self, *arrays: NDArray) -> None:
        """Runs it on inputs and outputs."""
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = _Frame(self)
        frame.run(arrays)
        self._frames.append(frame)

    def _pack(self, constants: Mapping[str, NDArray], packed: PackedConstants) -> None:
        api = self.engine.api
        for packing in self.plan.packings:
            digest, source, target = packing.source.buffer.digest, packing.source.desc, packing.target.desc
            array = packed.find(digest, source, target)
            if array is None:
                given, array = np.ascontiguousarray(constants[digest]), _aligned(target.nbytes)
                scratch = _aligned(packing.desc.scratch_nbytes)
                stream = Stream(self.engine)
                memories = {
                    Argument.SRC: Memory(self.engine, source, _address(given)),
                    Argument.DST: Memory(self.engine, target, _address(array)),
                    Argument.SCRATCHPAD: Memory(
                        self.engine, packing.desc.memory_desc(Query.SCRATCHPAD_MD), _address(scratch)
                    ),
                }
                block = _block(list(memories.items()))
                primitive = Primitive(packing.desc)
                api.call("dnnl_primitive_execute", primitive, stream, len(block), block)
                api.call("dnnl_stream_wait", stream)
                packed.add(digest, source, target, array)
            self.arrays[packing.target.buffer] = array


class _Frame:
    """What one call at a time needs: an arena with scratch memory at its end, a stream, argument blocks."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._stream = Stream(program.engine)
        total = -(-program.storage.total // _ALIGNMENT) * _ALIGNMENT
        self._arena = _aligned(total + program.scratch_nbytes)
        self._memories: dict[Place, Memory] = {}
        self._bound: list[tuple[int, ctypes.c_void_p]] = []
        self._scratch: list[Memory] = []
        self._calls: list[tuple[str, ctypes.c_void_p, int, Any]] = []
        for step, primitive in zip(program.plan.steps, program.primitives, strict=True):
            block = [(argument, self._memory(place)) for argument, place in step.arguments.items()]
            if step.desc.scratch_nbytes:
                desc = step.desc.memory_desc(Query.SCRATCHPAD_MD)
                self._scratch.append(Memory(program.engine, desc, _address(self._arena) + total))
                block.append((Argument.SCRATCHPAD, self._scratch[-1]))
            self._calls.append((step.title, primitive.pointer, len(block), _block(block)))
        self._execute = program.engine.api.function("dnnl_primitive_execute")
        self._set_address = program.engine.api.function("dnnl_memory_set_data_handle")

    def _memory(self, place: Place) -> Memory:
        if place in self._memories:
            return self._memories[place]
        program, buffer = self._program, place.buffer
        address = 0
        if buffer.kind is Kind.ARENA:
            address = _address(self._arena) + program.storage.offsets[program.numbers[buffer]]
        elif buffer.kind is not Kind.ARGUMENT:
            address = _address(program.arrays[buffer])
        memory = self._memories[place] = Memory(program.engine, place.desc, address)
        if buffer.kind is Kind.ARGUMENT:
            self._bound.append((buffer.index, memory.pointer))
        return memory

    def run(self, arrays: Sequence[NDArray]) -> None:
        """Runs all steps on inputs and outputs.

        Raises:
            ExecutionError: oneDNN failed.
        """
        for index, memory in self._bound:
            status = self._set_address(memory, _address(arrays[index]))
            if status:
                raise failure("dnnl_memory_set_data_handle", status)
        stream = self._stream.pointer
        for title, primitive, count, block in self._calls:
            status = self._execute(primitive, stream, count, block)
            if status:
                raise failure(f"dnnl_primitive_execute` of `{title}", status)
        self._program.engine.api.call("dnnl_stream_wait", stream)


def _block(arguments: Sequence[tuple[int, Memory]]) -> Any:
    """Gives arguments as a primitive takes them; the memories are held by the caller."""
    return (ExecArg * len(arguments))(*(ExecArg(argument, memory.pointer) for argument, memory in arguments))


def _address(array: NDArray) -> int:
    return int(array.__array_interface__["data"][0])


def _aligned(nbytes: int) -> NDArray:
    whole = np.empty(nbytes + _ALIGNMENT, np.uint8)
    start = -_address(whole) % _ALIGNMENT
    return whole[start : start + nbytes]
