"""Primitives of a plan created beside planning: oneDNN generates their code in other threads than Python's.

A planner hands each descriptor over as soon as the step is planned, and the program takes the primitives. The threads
belong to the extension, need no lock of Python, and end with the plan (``csrc/python/creation.h``).
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from byoc_dnnl.capi import failure
from byoc_dnnl.cost import SMALL_NS, estimate_ns
from byoc_dnnl.extension import extension
from byoc_dnnl.handles import Engine, Primitive, PrimitiveDesc
from byoc_dnnl.primitive_cache import claim_primitive, keep_primitive, release_claims

if TYPE_CHECKING:
    from byoc_dnnl._native import Queue
    from byoc_dnnl.plan import Step

__all__ = ["Creation", "begin_creation"]

_CREATE = "dnnl_primitive_create"


def begin_creation(engine: Engine, num_threads: int) -> Creation | None:
    """Return a creation by other threads beside the calling thread.

    ``None`` for a plan of a single thread, without the extension, or if oneDNN itself has a single thread.

    Args:
        engine: the engine of the primitives.
        num_threads: the number of threads of the plan.
    """
    native, openmp = extension(), engine.openmp
    if native is None or openmp is None or num_threads < 2:
        return None
    functions: list[Any] = [engine.api.function(name) for name in (_CREATE, "dnnl_primitive_destroy")]
    functions.append(openmp.omp_set_num_threads)
    addresses = [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions]
    return Creation(engine, native.Queue(*addresses, num_threads, num_threads - 1, engine))


class Creation:
    """The creation of the primitives of a plan.

    A plan for the calling thread alone replaces a small plan. Creation therefore begins only when the planned steps are
    no small plan any more.

    Args:
        engine: the engine of the primitives.
        queue: the queue of the extension.
    """

    def __init__(self, engine: Engine, queue: Queue) -> None:
        self._engine = engine
        self._queue = queue
        self._ns = 0.0
        self._seen: dict[object, PrimitiveDesc] = {}
        self._postponed: list[PrimitiveDesc] = []
        self._added: list[PrimitiveDesc] = []
        self._is_finished = False

    def add(self, step: Step) -> None:
        """Create the primitive of a step, unless an equal step or another plan has the primitive, or creates it."""
        desc = step.desc
        key = id(desc) if desc.recipe is None else desc.recipe
        if key not in self._seen:
            self._seen[key] = desc  # held, so the address stays unique
            self._postponed.append(desc)
        if self._ns < SMALL_NS:
            self._ns += estimate_ns(step)
        if self._ns >= SMALL_NS and self._postponed:
            for postponed in self._postponed:
                if claim_primitive(postponed, self):
                    self._added.append(postponed)  # first, in case the thread is interrupted in between
                    self._queue.add(postponed.pointer.value or 0, postponed)
            self._postponed.clear()

    def finish(self) -> list[Primitive]:
        """Wait for the primitives; ``primitive_of`` finds the primitives of all added steps while the result is held.

        Raises:
            ExecutionError: oneDNN failed to create a primitive.
        """
        primitives, statuses = self._end(is_canceled=False)
        for status in statuses:
            if status:
                raise failure(_CREATE, status)
        return primitives

    def close(self) -> None:
        """Cancel all creations not yet begun, unless finished.

        Primitives with a recipe are kept, since freeing them leaks memory.
        """
        if not self._is_finished:
            self._end(is_canceled=True)

    def _end(self, *, is_canceled: bool) -> tuple[list[Primitive], list[int]]:
        """End the queue; return the primitives, found by their descriptors from now on, and all statuses.

        All claims are released, also after an exception: an interrupted thread leaves no other plan waiting.
        """
        api, primitives, statuses = self._engine.api, list[Primitive](), list[int]()
        try:
            self._is_finished = True
            created = self._queue.finish(is_canceled)
            for desc, (address, status) in zip(self._added, created, strict=False):  # interrupted: without the last
                if address:
                    primitives.append(keep_primitive(desc, Primitive.owned(api, ctypes.c_void_p(address))))
                statuses.append(status)
        finally:
            release_claims(self)
        return primitives, statuses
