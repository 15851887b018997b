"""Primitives kept for good, each once, because oneDNN 3.2 does not free their code.

A convolution by ``brgconv`` ending in a function of each element leaks 24 to 67 kB when destroyed. Each load of a model
would leak more memory. A kept primitive is reused by the next program with the same recipe. The recipe therefore holds
all inputs of the descriptor, the engine and the number of threads.
"""

from __future__ import annotations

from collections.abc import Hashable

from byoc_core.runtime.threads import ForkLock

from byoc_dnnl.handles import Primitive, PrimitiveDesc

__all__ = ["primitive_of"]

_PRIMITIVES: dict[Hashable, tuple[Primitive, PrimitiveDesc]] = {}
"""Primitives by recipe, each with its descriptor."""

_FORK_LOCK = ForkLock()


def primitive_of(desc: PrimitiveDesc) -> Primitive:
    """Return a primitive, shared if it has a recipe. Any number of threads may execute the primitive."""
    if desc.recipe is None:
        return Primitive(desc)
    with _FORK_LOCK.lock:
        if desc.recipe not in _PRIMITIVES:
            _PRIMITIVES[desc.recipe] = Primitive(desc), desc
        return _PRIMITIVES[desc.recipe][0]
