"""Places of a function's buffers in pools given by the user, in place of the places of the program.

Exported C takes these places, and ``byoc plan`` shows them. A program for devices with pools needs no such places: its
storages lie in pools already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from byoc_core.dims import Dim
from byoc_core.dtypes import dtype_info
from byoc_core.errors import MemoryLimitError, OptionsError
from byoc_core.runtime.pools import Pool, PoolBuffer, PoolPlan, plan_pools
from byoc_core.vm.instructions import Call, If
from byoc_core.vm.memory_map import MemoryBuffer, MemoryMap, memory_map
from byoc_core.vm.program import Program, VMFunction

__all__ = ["PoolPlacement", "count_accesses", "place_buffers", "pools_of_intermediates"]

_SCRATCH_ALIGNMENT = 8
"""Alignment in bytes of scratch memory: of the largest element."""


@dataclass(frozen=True, slots=True)
class PoolPlacement:
    """The buffers of a function in pools.

    Attributes:
        found: the buffers, with the places of the program.
        pools: the pools, in order of preference.
        plan: the places of the buffers, then of additional buffers.
    """

    found: MemoryMap
    pools: Sequence[Pool]
    plan: PoolPlan

    def maps(self) -> tuple[MemoryMap, ...]:
        """Return the map of each pool, without additional buffers; sizes are known."""
        rows = list(zip(self.found.buffers, self.plan.pools, self.plan.offsets, strict=False))
        return tuple(
            replace(
                self.found,
                buffers=tuple(replace(buffer, offset=offset) for buffer, home, offset in rows if home == index),
                arena_nbytes=nbytes,
                alignment=pool.alignment,
                pool=pool.name,
                limit_nbytes=pool.nbytes,
            )
            for index, (pool, nbytes) in enumerate(zip(self.pools, self.plan.nbytes, strict=True))
        )


def place_buffers(
    program: Program,
    function: VMFunction,
    pools: Sequence[Pool],
    bound: Callable[[Dim], int],
    additional: Sequence[PoolBuffer] = (),
    sizes: Mapping[str, int] | None = None,
) -> PoolPlacement:
    """Return the places of the host's buffers of a function in pools.

    Args:
        program: the program with the function.
        function: a function of the program.
        pools: the memories, in order of preference.
        bound: returns the largest bytes of a size.
        additional: further buffers, live at instructions of the function.
        sizes: the sizes of the inputs' symbols; ``None`` leaves symbolic sizes to ``bound``.

    Raises:
        MemoryLimitError: a buffer fits into no pool.
        CallError: a size is missing.

    Cost: the cost of a memory map and of the planner.
    """
    found = memory_map(program, function, sizes)
    counts, read = count_accesses(function), _read_registers(function)
    registers = program.registers(function)

    def buffer_of(buffer: MemoryBuffer) -> PoolBuffer:
        # Memory never read by another call is scratch memory: bytes for elements of any dtype.
        alignments = (
            dtype_info(registers[n].dtype).itemsize if n in read else _SCRATCH_ALIGNMENT for n in buffer.registers
        )
        return PoolBuffer(
            bound(buffer.nbytes),
            buffer.first,
            buffer.last,
            alignment=max(alignments, default=1),
            weight=sum(counts.get(register, 0) for register in buffer.registers),
            name=f"{buffer.name} of {buffer.writer or 'the caller'}",
        )

    buffers = [buffer_of(buffer) for buffer in found.buffers]
    return PoolPlacement(found, pools, plan_pools([*buffers, *additional], pools))


def pools_of_intermediates(pools: Sequence[Pool], constants_nbytes: int) -> tuple[Pool, ...]:
    """Return the writable pools; the read-only pools are for the constants.

    Args:
        pools: all pools.
        constants_nbytes: the bytes of all constants.

    Raises:
        OptionsError: no pool is writable.
        MemoryLimitError: the constants exceed the read-only pools.
    """
    writable = tuple(pool for pool in pools if pool.is_writable)
    constant_pools = [pool for pool in pools if not pool.is_writable]
    if pools and not writable:
        raise OptionsError("option `pools`", "has no pool with access `write` for intermediates")
    limits = [pool.nbytes for pool in constant_pools]
    if limits and None not in limits and constants_nbytes > sum(limit or 0 for limit in limits):
        raise MemoryLimitError(
            f"pool {', '.join(f'`{pool.name}`' for pool in constant_pools)}",
            "too small for the constants of the model",
            got=f"{sum(limit or 0 for limit in limits):,} bytes",
            expected=f"{constants_nbytes:,} bytes",
        )
    return writable


def count_accesses(function: VMFunction) -> dict[int, int]:
    """Return the number of reads and writes of each register in the code."""
    counts: dict[int, int] = {}
    for instruction in function.code:
        if isinstance(instruction, Call):
            for register in (*instruction.args, *instruction.results):
                counts[register] = counts.get(register, 0) + 1
    return counts


def _read_registers(function: VMFunction) -> frozenset[int]:
    """Return the registers read by instructions, with the bases of read views."""
    read: set[int] = set()
    for instruction in function.code:
        if isinstance(instruction, Call):
            read.update(instruction.args)
        elif isinstance(instruction, If):
            read.add(instruction.condition)
    read |= {function.views[n - function.first_view].base for n in read if n >= function.first_view}
    return frozenset(read)
