"""Places of constants in the memory of a device: first in the pools without write access, in order, within the limits.

Constants without room there, and all constants of a domain without such pools, lie in memory chosen by the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from byoc_core.runtime.memory import MemoryDomain
from byoc_core.vm.program import ALIGNMENT, HOST, Program, nbytes_of

__all__ = ["ConstantPlaces", "constants_by_domain", "place_constants"]


@dataclass(frozen=True, slots=True)
class ConstantPlaces:
    """The places of the constants in a domain.

    Attributes:
        locations: for each constant the pool, ``None`` for memory chosen by the device, and the offset.
        nbytes: the bytes used of each pool.
    """

    locations: Mapping[int, tuple[str | None, int]]
    nbytes: Mapping[str | None, int]


def constants_by_domain(program: Program) -> dict[int, dict[int, int]]:
    """Return the bytes of the constants in each domain of a device, by number of domain and constant."""
    found: dict[int, dict[int, int]] = {}
    for function in program.functions:
        first = len(function.params) + len(function.results)
        for position, number in enumerate(function.constants):
            domain = function.domain_of(first + position)
            if domain != HOST:
                nbytes = nbytes_of(program.constants[number].shape, program.constants[number].dtype)
                assert isinstance(nbytes, int)
                found.setdefault(domain, {})[number] = nbytes
    return dict(sorted(found.items()))


def place_constants(domain: MemoryDomain, sizes: Mapping[int, int]) -> ConstantPlaces:
    """Return the places of constants, given by number and bytes; large constants come first.

    Cost: linear in constants and pools, besides sorting.
    """
    memories: list[tuple[str | None, int | None, int]] = [
        (pool.name, pool.nbytes, max(ALIGNMENT, pool.alignment)) for pool in domain.pools if not pool.is_writable
    ]
    memories.append((None, None, max(ALIGNMENT, domain.alignment)))
    locations: dict[int, tuple[str | None, int]] = {}
    used: dict[str | None, int] = {}
    for number in sorted(sizes, key=lambda number: (-sizes[number], number)) if domain.pools else sizes:
        for pool, limit, alignment in memories:
            offset = -(-used.get(pool, 0) // alignment) * alignment
            if limit is None or offset + sizes[number] <= limit:
                locations[number] = pool, offset
                used[pool] = offset + sizes[number]
                break
    return ConstantPlaces(locations, used)
