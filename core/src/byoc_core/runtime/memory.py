"""Descriptions of memory: domains, and the pools of a domain.

A domain is the memory of the host, or of the devices of a runtime. A pool is a part of a domain with limits of its own,
such as a small fast memory beside a large slow memory. A domain without stated pools is a single pool without limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from byoc_core.errors import OptionsError

__all__ = ["ACCESSES", "MemoryDomain", "Pool", "check_accesses", "check_alignment"]

ACCESSES = frozenset({"read", "write"})
"""The accesses of a pool and of a buffer."""


@dataclass(frozen=True, slots=True, repr=False)
class Pool:
    """A memory for buffers.

    Attributes:
        name: the name, unique among the pools of a plan.
        nbytes: the limit in bytes of the planned buffers; ``None`` without a limit.
        alignment: a power of two: the alignment of the pool's first byte, and of each offset in the pool.
        accesses: the accesses of a running program to the pool: ``read``, ``write``, or both. A memory without
            ``write`` holds constants only.

    Raises:
        OptionsError: a field has no meaning.
    """

    name: str
    nbytes: int | None = None
    alignment: int = 64
    accesses: frozenset[str] = ACCESSES

    def __post_init__(self) -> None:
        """Check the fields."""
        if not self.name:
            raise OptionsError("pool", "has an empty name")
        where = f"pool `{self.name}`"
        if self.nbytes is not None and self.nbytes < 0:
            raise OptionsError(where, "has a negative limit", got=self.nbytes)
        object.__setattr__(self, "accesses", check_accesses(where, self.accesses))
        check_alignment(where, self.alignment)

    def __repr__(self) -> str:
        limit = "" if self.nbytes is None else f", {self.nbytes}"
        accesses = "" if self.accesses == ACCESSES else f", accesses={{{', '.join(map(repr, sorted(self.accesses)))}}}"
        return f"Pool({self.name!r}{limit}, alignment={self.alignment}{accesses})"

    @property
    def is_writable(self) -> bool:
        """Whether a running program writes the pool."""
        return "write" in self.accesses

    def covers(self, other: Pool) -> bool:
        """Return whether each plan for another pool is a plan for this pool."""
        return (
            self.name == other.name
            and (self.nbytes is None or (other.nbytes is not None and other.nbytes <= self.nbytes))
            and self.alignment >= other.alignment
            and self.accesses >= other.accesses
        )


@dataclass(frozen=True, slots=True)
class MemoryDomain:
    """Memory of devices, apart from the host's arrays (see :mod:`byoc_core.runtime.devices`).

    Attributes:
        name: the name, unique among all runtimes: the name of the runtime, perhaps with a suffix such as ``.npu2``.
        alignment: a power of two: the alignment in bytes of buffers, and of tensors in buffers.
        host_accessible: whether the host reads and writes the memory in place: values are then not copied between
            functions of the device and functions of the host.
        pools: the memories of a device, in order of preference: a program places each intermediate in a pool, within
            the limits, and a machine places constants in the pools without ``write``. Each pool is aligned for the
            domain. Empty: a single memory without limit.
        peer_copies: whether devices of this memory copy directly to each other
            (:meth:`~byoc_core.runtime.devices.Device.copy_to_peer`), not by way of the host. Without an effect on
            host-accessible memory, where one copy suffices already.
    """

    name: str
    alignment: int = 64
    host_accessible: bool = False
    pools: tuple[Pool, ...] = ()
    peer_copies: bool = False

    def covers(self, other: MemoryDomain) -> bool:
        """Return whether programs for another domain run in this domain: pools may be larger here, copies direct."""
        return (
            (self.name, self.alignment, self.host_accessible) == (other.name, other.alignment, other.host_accessible)
            and self.peer_copies >= other.peer_copies
            and bool(self.pools) == bool(other.pools)
            and all(any(own.covers(pool) for own in self.pools) for pool in other.pools)
        )


def check_accesses(where: str, accesses: Iterable[str]) -> frozenset[str]:
    """Return the accesses as a set.

    Raises:
        OptionsError: an access is unknown, or there is none.
    """
    found = frozenset(accesses)
    if not found or not found <= ACCESSES:
        raise OptionsError(
            where,
            "has unknown accesses" if found else "has no access",
            got=", ".join(sorted(found - ACCESSES)) or None,
            expected="read, write, or both",
        )
    return found


def check_alignment(where: str, alignment: int) -> None:
    """Check an alignment.

    Raises:
        OptionsError: the alignment is no power of two.
    """
    if alignment < 1 or alignment & (alignment - 1):
        raise OptionsError(where, "has an impossible alignment", got=alignment, expected="a power of two")
