"""Primitives shared by equal steps, and some kept for good, because oneDNN 3.2 does not free their code.

Equal steps have one descriptor (:class:`~byoc_dnnl.primitives.PrimitiveFactory`), and so one primitive, which lives as
long as a program holds the primitive.

A convolution by ``brgconv`` ending in a function of each element leaks 24 to 67 kB when destroyed. Each load of a model
would leak more memory. A kept primitive is reused by the next program with the same recipe. The recipe therefore holds
all inputs of the descriptor, the engine and the number of threads.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable

from byoc_core.runtime.threads import ForkLock

from byoc_dnnl.handles import Primitive, PrimitiveDesc

__all__ = ["has_primitive", "keep_primitive", "primitive_of"]

_PRIMITIVES: dict[Hashable, tuple[Primitive, PrimitiveDesc]] = {}
"""Primitives by recipe, each with its descriptor."""

_FORK_LOCK = ForkLock()


def primitive_of(desc: PrimitiveDesc) -> Primitive:
    """Return the primitive of a descriptor or recipe. Any number of threads may execute the primitive.

    A primitive has no state: scratch memory is an argument, so the same primitive may run at the same time in several
    places. Two threads asking for a new primitive at the same time may get one each.
    """
    if desc.recipe is None:
        primitive = None if desc.primitive_ref is None else desc.primitive_ref()
        if primitive is None:
            primitive = Primitive(desc)
            desc.primitive_ref = weakref.ref(primitive)
        return primitive
    with _FORK_LOCK.lock:
        if desc.recipe not in _PRIMITIVES:
            _PRIMITIVES[desc.recipe] = Primitive(desc), desc
        return _PRIMITIVES[desc.recipe][0]


def has_primitive(desc: PrimitiveDesc) -> bool:
    """Return whether a descriptor or recipe has a primitive already; a primitive without recipe may vanish at once."""
    if desc.recipe is None:
        return desc.primitive_ref is not None and desc.primitive_ref() is not None
    return desc.recipe in _PRIMITIVES


def keep_primitive(desc: PrimitiveDesc, primitive: Primitive) -> Primitive:
    """Make a new primitive the primitive of a descriptor or recipe; return it, or the primitive found there already."""
    if desc.recipe is None:
        found = None if desc.primitive_ref is None else desc.primitive_ref()
        if found is None:
            desc.primitive_ref = weakref.ref(primitive)
        return found or primitive
    with _FORK_LOCK.lock:
        return _PRIMITIVES.setdefault(desc.recipe, (primitive, desc))[0]
