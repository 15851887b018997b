"""Constants in the layouts of primitives, shared by all programs of the process."""

from __future__ import annotations

import weakref
from functools import cache

import numpy as np
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.threads import ForkLock

from byoc_dnnl.arrays import address_of, aligned, aligned_in_large_pages, give_back_pages
from byoc_dnnl.capi import Argument, Query
from byoc_dnnl.derived import Derivation
from byoc_dnnl.handles import Engine, Memory, MemoryDesc, Primitive, Stream, argument_block
from byoc_dnnl.plan import Packing

__all__ = ["Packed", "SharedConstants", "shared_constants"]


class Packed:
    """A constant in the layout of a primitive; shared as long as somebody holds it.

    Attributes:
        array: its bytes.
    """

    __slots__ = ("__weakref__", "_family", "_forms", "_sources", "array")

    def __init__(self, family: _Family, packing: Packing, array: NDArray) -> None:
        self._family = family  # which is known as long as one of its members is held
        self._forms = _forms_of(packing)
        self._sources: list[weakref.ref[NDArray]] = []
        self.array = array
        family.members.add(self)

    def add_source(self, source: NDArray) -> None:
        """Says that an array holds what this was made of."""
        self._sources = [*(known for known in self._sources if known() is not None), weakref.ref(source)]

    def is_made_of(self, packing: Packing, source: NDArray) -> bool:
        """Whether it is what a packing makes of an array. Cost: a pass over its bytes where it is another array.

        That two constants have one digest is not enough: of large ones in a file nobody has checked it.
        """
        if self._forms != _forms_of(packing):
            return False
        known = [array for reference in self._sources if (array := reference()) is not None]
        if any(array is source for array in known):
            return True
        if known and np.array_equal(_bytes_of(known[0]), _bytes_of(source)):
            self.add_source(source)
            return True
        return False


class _Family:
    """What was made of the constants of one digest."""

    __slots__ = ("__weakref__", "members")

    def __init__(self) -> None:
        self.members: weakref.WeakSet[Packed] = weakref.WeakSet()


class SharedConstants:
    """What is packed in this process: found by digest and layouts as long as a program holds it."""

    def __init__(self) -> None:
        self._families: weakref.WeakValueDictionary[str, _Family] = weakref.WeakValueDictionary()
        self._fork_lock = ForkLock()

    def __len__(self) -> int:
        """How many constants are packed, each layout by itself."""
        return sum(len(family.members) for family in list(self._families.values()))

    def pack(self, engine: Engine, packing: Packing, source: NDArray) -> Packed:
        """Gives a constant as a packing makes it; made where no program has it.

        The pages of an array in a mapped file are given back: what is packed is not read any more.
        """
        digest = packing.source.buffer.digest
        with self._fork_lock.lock:
            family = self._families.setdefault(digest, _Family())
            found = next((known for known in list(family.members) if known.is_made_of(packing, source)), None)
            if found is None:
                found = Packed(family, packing, _execute(engine, packing, source))
                found.add_source(source)
        give_back_pages(source)
        return found


@cache
def shared_constants() -> SharedConstants:
    """Gives the packed constants of this process."""
    return SharedConstants()


def _execute(engine: Engine, packing: Packing, source: NDArray) -> NDArray:
    given, array = packing.source.buffer.read(source), aligned_in_large_pages(packing.target.desc.nbytes)
    scratch = aligned(packing.desc.scratch_nbytes)
    memories = [
        (Argument.SRC, Memory(engine, packing.source.desc, address_of(given))),
        (Argument.DST, Memory(engine, packing.target.desc, address_of(array))),
        (Argument.SCRATCHPAD, Memory(engine, packing.desc.memory_desc(Query.SCRATCHPAD_MD), address_of(scratch))),
    ]
    block, stream, primitive = argument_block(memories), Stream(engine), Primitive(packing.desc)
    engine.api.call("dnnl_primitive_execute", primitive, stream, len(block), block)
    engine.api.call("dnnl_stream_wait", stream)
    return array


def _forms_of(packing: Packing) -> tuple[MemoryDesc, MemoryDesc, Derivation | None]:
    """Gives how a constant is read, and how it lies then."""
    return packing.source.desc, packing.target.desc, packing.source.buffer.derivation


def _bytes_of(array: NDArray) -> NDArray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
