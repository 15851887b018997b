"""Primitives that are kept for good, each once: those whose code oneDNN 3.2 does not give back.

A convolution by ``brgconv`` that ends in a function of each element leaves 24 to 67 kB behind when it is destroyed, so
that each load of a model would take more memory. Kept, it is there for the next program that needs the same.
"""

from __future__ import annotations

from collections.abc import Hashable

from byoc_core.runtime.threads import ForkLock

from byoc_dnnl.handles import Primitive, PrimitiveDesc

__all__ = ["primitive_of"]

_KEPT: dict[Hashable, tuple[Primitive, PrimitiveDesc]] = {}
"""By recipe; with the descriptors that they were made of."""

_FORK_LOCK = ForkLock()


def primitive_of(desc: PrimitiveDesc) -> Primitive:
    """Gives a primitive; one that others have too, where it is one to be kept. Any number of threads may execute it."""
    if desc.recipe is None:
        return Primitive(desc)
    with _FORK_LOCK.lock:
        if desc.recipe not in _KEPT:
            _KEPT[desc.recipe] = Primitive(desc), desc
        return _KEPT[desc.recipe][0]
