"""Places of planned tensors: storages of each memory domain, and of each pool of a domain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from byoc_core.dims import Dim
from byoc_core.lower.virtual_registers import VirtualRegister
from byoc_core.runtime.memory import ACCESSES, Pool
from byoc_core.runtime.plan_storage import Interval, plan
from byoc_core.runtime.pools import PoolBuffer, plan_pools
from byoc_core.runtime.symbolic_storage import SymbolicInterval, plan_symbolic
from byoc_core.vm.program import ALIGNMENT, RegisterKind, nbytes_of

__all__ = ["StoragePlaces", "plan_registers"]


@dataclass(slots=True)
class StoragePlaces:
    """The storages of a function.

    Attributes:
        storages: the size of each storage.
        pools: the index of each storage's pool among the pools of the domain.
        locations: storage and offset of each tensor with a separate place, by virtual number.
    """

    storages: list[Dim] = field(default_factory=list)
    pools: list[int] = field(default_factory=list)
    locations: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, nbytes: Dim, pool: int, offsets: Mapping[int, int]) -> None:
        """Add a storage with tensors at offsets."""
        self.locations |= {number: (len(self.storages), offset) for number, offset in offsets.items()}
        self.storages.append(nbytes)
        self.pools.append(pool)

    @property
    def nbytes(self) -> Dim:
        """The bytes of all storages."""
        return sum(self.storages, 0)


def plan_registers(
    registers: Sequence[VirtualRegister],
    spans: Mapping[int, tuple[int, int]],
    successors: Mapping[int, int],
    alignment: Callable[[int], int],
    pools: Callable[[int], Sequence[Pool]],
    weights: Mapping[int, int],
) -> StoragePlaces:
    """Return the storages, and the place of each tensor; each domain, and each pool of a domain, has its own.

    Tensors of known size share the first storage of their domain or pool; tensors of symbolic size have further
    storages. In a domain with pools, often used tensors come into the first pools; tensors of symbolic size into the
    last pool without limit, or else into the pool with the highest limit.

    Args:
        registers: the registers by virtual number.
        spans: the live range of each register.
        successors: for each register in the place of another, the other.
        alignment: returns the alignment of tensors in a domain.
        pools: returns the pools of a domain; none for a single memory without limit.
        weights: the number of reads and writes of each register owning a place.

    Raises:
        MemoryLimitError: the tensors of known size exceed the pools of a domain.
    """
    merged: dict[int, tuple[int, int]] = {}
    for number, (start, end) in spans.items():
        owner = successors.get(number, number)
        first, last = merged.get(owner, (start, end))
        merged[owner] = min(first, start), max(last, end)
    planned = [number for number in sorted(merged) if registers[number].kind is RegisterKind.TENSOR]
    found = StoragePlaces()
    for domain in sorted({registers[number].domain for number in planned}):
        static: dict[int, Interval] = {}
        symbolic: dict[int, SymbolicInterval] = {}
        for number in (number for number in planned if registers[number].domain == domain):
            nbytes = nbytes_of(registers[number].shape, registers[number].dtype)
            if isinstance(nbytes, int):
                static[number] = Interval(nbytes, *merged[number])
            else:
                symbolic[number] = SymbolicInterval(nbytes, *merged[number])
        memories = pools(domain)
        if static and memories:
            _plan_in_pools(found, registers, static, memories, weights)
        elif static:
            offsets, total = plan(tuple(static.values()), max(ALIGNMENT, alignment(domain)))
            found.add(total, 0, dict(zip(static, offsets, strict=True)))
        storage_numbers, sizes = plan_symbolic(tuple(symbolic.values()))
        for storage, nbytes in enumerate(sizes):
            members = [number for number, home in zip(symbolic, storage_numbers, strict=True) if home == storage]
            found.add(nbytes, _symbolic_pool(memories), dict.fromkeys(members, 0))
    return found


def _plan_in_pools(
    found: StoragePlaces,
    registers: Sequence[VirtualRegister],
    intervals: Mapping[int, Interval],
    pools: Sequence[Pool],
    weights: Mapping[int, int],
) -> None:
    """Add a storage for each used pool."""
    buffers = [
        PoolBuffer(
            interval.nbytes,
            interval.start,
            interval.end,
            weight=weights.get(number, 0),
            name=f"{registers[number].dtype}[{', '.join(map(str, registers[number].shape))}]",
        )
        for number, interval in intervals.items()
    ]
    planned = plan_pools(buffers, pools)
    rows = list(zip(intervals, planned.pools, planned.offsets, strict=True))
    for index, nbytes in enumerate(planned.nbytes):
        offsets = {number: offset for number, pool, offset in rows if pool == index}
        if offsets:
            found.add(nbytes, index, offsets)


def _symbolic_pool(pools: Sequence[Pool]) -> int:
    """Return the index of the pool for tensors of symbolic size; 0 without pools."""
    limits = [
        (1 << 63 if pool.nbytes is None else pool.nbytes, index)
        for index, pool in enumerate(pools)
        if pool.accesses >= ACCESSES
    ]
    return max(limits, default=(0, 0))[1]
