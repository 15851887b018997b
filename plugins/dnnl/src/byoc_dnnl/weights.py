"""Constants in the layouts of primitives and in the forms of derivations, shared by all programs of the process.

A packed constant is known by the digest of the constant and the layouts, and is compared byte by byte with arrays
stored in artifacts: if another backend has stored the same packed form, the stored array is used.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import cache

from byoc_core.runtime.module import NDArray
from byoc_core.runtime.threads import ForkLock

from byoc_dnnl.arrays import address_of, aligned, aligned_in_large_pages, are_equal, bytes_of, give_back_pages
from byoc_dnnl.capi import FORK_GATE, Argument, Query
from byoc_dnnl.derived_constants import Derivation
from byoc_dnnl.handles import Engine, Memory, MemoryDesc, Primitive, Stream, argument_block
from byoc_dnnl.plan import Buffer, Packing
from byoc_dnnl.stored_arrays import StoredArrays

__all__ = ["Packed", "SharedConstants", "shared_constants"]


_Forms = tuple[MemoryDesc, MemoryDesc, Derivation | None] | Derivation
"""The layouts and the derivation of a packing, or a derivation alone."""


class Packed:
    """A constant in the layout of a primitive, or derived; shared while held.

    Attributes:
        array: the bytes.
    """

    __slots__ = ("__weakref__", "_family", "_forms", "_sources", "array")

    def __init__(self, family: _Family, forms: _Forms, array: NDArray) -> None:
        self._family = family  # known while a member is held
        self._forms = forms
        self._sources: list[weakref.ref[NDArray]] = []
        self.array = array
        family.add(self)

    def add_source(self, source: NDArray) -> None:
        """Record an array with the same contents as the source of the packed constant."""
        self._sources = [*(source_ref for source_ref in self._sources if source_ref() is not None), weakref.ref(source)]

    def is_packed_from(self, forms: _Forms, source: NDArray) -> bool:
        """Return whether these forms of an array give this constant. Cost: a pass over the bytes of an unknown array.

        Equal digests of two constants are not enough: for large constants in a file, nobody has checked the digest.
        """
        if self._forms != forms:
            return False
        live_sources = [array for reference in self._sources if (array := reference()) is not None]
        if any(array is source for array in live_sources):
            return True
        if not live_sources:
            return False
        is_equal = are_equal(bytes_of(live_sources[0]), bytes_of(source))
        give_back_pages(live_sources[0])
        if is_equal:
            self.add_source(source)
        return is_equal


class _Family:
    """The packed forms of constants with equal digests."""

    __slots__ = ("__weakref__", "_references")

    def __init__(self) -> None:
        self._references: list[weakref.ref[Packed]] = []

    @property
    def members(self) -> list[Packed]:
        """The forms held by programs."""
        return [packed for reference in self._references if (packed := reference()) is not None]

    def add(self, packed: Packed) -> None:
        """Add a form, and forget the forms held by no program any more."""
        self._references = [*(reference for reference in self._references if reference()), weakref.ref(packed)]


class SharedConstants:
    """The packed constants of this process, found by digest and layouts while held by a program."""

    def __init__(self) -> None:
        self._families: weakref.WeakValueDictionary[str, _Family] = weakref.WeakValueDictionary()
        self._stored: weakref.WeakSet[StoredArrays] = weakref.WeakSet()
        self._fork_lock = ForkLock()

    def offer(self, stored: StoredArrays) -> None:
        """Use arrays of an artifact in place of equal packed constants, as long as the object of these arrays lives."""
        with self._fork_lock.lock:
            self._stored.add(stored)

    def __len__(self) -> int:
        """Return the number of packed constants; each layout counts."""
        return sum(len(family.members) for family in list(self._families.values()))

    def pack(self, engine: Engine, packing: Packing, source: NDArray) -> Packed:
        """Return a packed constant; pack the constant if no program holds the result.

        The pages of an array in a memory-mapped file are given back, because the source is not read any more.
        """
        forms = packing.source.desc, packing.target.desc, packing.source.buffer.derivation
        return self._share(packing.source.buffer.digest, forms, source, lambda: _execute(engine, packing, source))

    def derive(self, buffer: Buffer, source: NDArray) -> Packed:
        """Return a derived constant; derive the constant if no program holds the result. Pages are given back too."""
        assert buffer.derivation is not None

        def derived() -> NDArray:
            array = aligned_in_large_pages(buffer.nbytes)
            array[...] = bytes_of(buffer.read(source))
            return array

        return self._share(buffer.digest, buffer.derivation, source, derived)

    def _share(self, digest: str, forms: _Forms, source: NDArray, make: Callable[[], NDArray]) -> Packed:
        with self._fork_lock.lock:
            family = self._families.setdefault(digest, _Family())
            found = next((packed for packed in family.members if packed.is_packed_from(forms, source)), None)
            if found is None:
                packed = make()
                twins = (stored.find(packed) for stored in list(self._stored))
                found = Packed(family, forms, next((twin for twin in twins if twin is not None), packed))
                found.add_source(source)
        give_back_pages(source)
        return found


@cache
def shared_constants() -> SharedConstants:
    """Return the packed constants of this process."""
    return SharedConstants()


def _execute(engine: Engine, packing: Packing, source: NDArray) -> NDArray:
    contents, array = packing.source.buffer.read(source), aligned_in_large_pages(packing.target.desc.nbytes)
    scratch = aligned(packing.desc.scratch_nbytes)
    memories = [
        (Argument.SRC, Memory(engine, packing.source.desc, address_of(contents))),
        (Argument.DST, Memory(engine, packing.target.desc, address_of(array))),
        (Argument.SCRATCHPAD, Memory(engine, packing.desc.memory_desc(Query.SCRATCHPAD_MD), address_of(scratch))),
    ]
    block, stream, primitive = argument_block(memories), Stream(engine), Primitive(packing.desc)
    with FORK_GATE:
        engine.api.call("dnnl_primitive_execute", primitive, stream, len(block), block)
    engine.api.call("dnnl_stream_wait", stream)
    return array
