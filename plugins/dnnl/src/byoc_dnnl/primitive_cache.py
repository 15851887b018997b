"""Primitives shared by equal steps, and some kept for good, because oneDNN 3.2 does not free their code.

Equal steps have one descriptor (:class:`~byoc_dnnl.primitives.PrimitiveFactory`), and so one primitive, which lives as
long as a program holds the primitive.

A convolution by ``brgconv`` ending in a function of each element leaks 24 to 67 kB when destroyed. Each load of a model
would leak more memory. A kept primitive is reused by the next program with the same recipe. The recipe therefore holds
all inputs of the descriptor, the engine and the number of threads.

Plans of several threads may need the same new primitive at the same time. The first plan claims the recipe and creates
the primitive, and the others wait. A plan waits only after releasing its own claims, so no two plans wait for each
other. A waiting plan creates the primitive itself if the owner takes too long. The owner's primitive is then kept as a
spare: destroying the spare would leak memory.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Hashable

from byoc_core.runtime.threads import ForkLock

from byoc_dnnl.handles import Primitive, PrimitiveDesc

__all__ = ["claim_primitive", "keep_primitive", "primitive_of", "release_claims"]

_LONGEST_CLAIM_S = 10.0
"""Limit of a claim: an interrupted plan may keep its claims, held by the traceback of the interrupt."""

_POLL_S = 0.001
"""The time between two looks at a claim; plans wait for one another hardly ever."""


class _Claim:
    """The creation of a primitive begun by a plan.

    Args:
        owner: the creation of the plan; a collected owner has lost the claim.
    """

    __slots__ = ("_deadline", "_is_released", "_owner", "_process")

    def __init__(self, owner: object) -> None:
        self._owner = weakref.ref(owner)
        self._process = os.getpid()  # a forked child has no thread that ends the claim
        self._deadline = time.monotonic() + _LONGEST_CLAIM_S
        self._is_released = False

    def is_of(self, owner: object) -> bool:
        return self._owner() is owner

    def is_pending(self) -> bool:
        is_alive = self._owner() is not None and self._process == os.getpid()
        return is_alive and not self._is_released and time.monotonic() < self._deadline

    def release(self) -> None:
        self._is_released = True

    def wait(self) -> None:
        while self.is_pending():
            time.sleep(_POLL_S)


_PRIMITIVES: dict[Hashable, tuple[Primitive, PrimitiveDesc]] = {}
"""Primitives by recipe, each with its descriptor."""

_SPARES: list[Primitive] = []
"""Primitives of recipes that have another primitive: never used, and never destroyed."""

_CLAIMS: dict[Hashable, _Claim] = {}
"""Claims of plans, by recipe."""

_FORK_LOCK = ForkLock()


def primitive_of(desc: PrimitiveDesc) -> Primitive:
    """Return the primitive of a descriptor or recipe. Any number of threads may execute the primitive.

    A primitive has no state: scratch memory is an argument, so the same primitive may run at the same time in several
    places. A recipe claimed by another plan is waited for. Two threads asking for a new primitive without a recipe at
    the same time may get one each.
    """
    if desc.recipe is None:
        primitive = None if desc.primitive_ref is None else desc.primitive_ref()
        if primitive is None:
            primitive = Primitive(desc)
            desc.primitive_ref = weakref.ref(primitive)
        return primitive
    while True:
        with _FORK_LOCK.lock:
            found, claim = _PRIMITIVES.get(desc.recipe), _CLAIMS.get(desc.recipe)
            if found is None and (claim is None or not claim.is_pending()):
                found = _PRIMITIVES[desc.recipe] = Primitive(desc), desc
        if found is not None:
            return found[0]
        assert claim is not None
        claim.wait()


def claim_primitive(desc: PrimitiveDesc, owner: object) -> bool:
    """Return whether the owner is to create the primitive of a descriptor or recipe; claim the recipe, if any.

    A primitive without recipe may vanish at once, and is claimed by nobody.
    """
    if desc.recipe is None:
        return desc.primitive_ref is None or desc.primitive_ref() is None
    with _FORK_LOCK.lock:
        other = _CLAIMS.get(desc.recipe)
        if desc.recipe in _PRIMITIVES or (other is not None and other.is_pending()):
            return False
        _CLAIMS[desc.recipe] = _Claim(owner)
        return True


def release_claims(owner: object) -> None:
    """Release the claims of an owner: the claimed primitives are kept, or left to others."""
    with _FORK_LOCK.lock:
        for recipe, claim in [*_CLAIMS.items()]:
            if claim.is_of(owner) or not claim.is_pending():
                del _CLAIMS[recipe]
                claim.release()


def keep_primitive(desc: PrimitiveDesc, primitive: Primitive) -> Primitive:
    """Make a new primitive the primitive of a descriptor or recipe; return it, or the primitive found there already.

    A new primitive with a recipe is never destroyed.
    """
    if desc.recipe is None:
        found = None if desc.primitive_ref is None else desc.primitive_ref()
        if found is None:
            desc.primitive_ref = weakref.ref(primitive)
        return found or primitive
    with _FORK_LOCK.lock:
        found, _ = _PRIMITIVES.setdefault(desc.recipe, (primitive, desc))
        if found is not primitive:
            _SPARES.append(primitive)
        return found
