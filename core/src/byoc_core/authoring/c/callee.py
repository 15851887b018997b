"""C functions that generated code calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from byoc_core.dims import Dim

if TYPE_CHECKING:
    from byoc_core.authoring.c.statements import Function

__all__ = ["Callee"]


@dataclass(frozen=True, slots=True)
class Callee:
    """A C function that generated code calls, with what a test and an estimate must know of it.

    Attributes:
        name: the name in C.
        evaluate: returns the result for numpy scalars and, in the place of addresses, views of arrays, which it may
            change where ``writes`` says so; ``None`` where ``function`` says it.
        writes: numbers of the arguments whose memory the function writes.
        header: the header that declares the function; empty for one that every source includes.
        definition: C text that defines the function; ``{name}`` in it is the name. Empty for a function of a header.
        flops: floating-point operations of a call.
        ps: returns the picoseconds of a call for the values of its arguments, ``None`` for those that are not known;
            without it they follow from the operations.
        function: the function itself, where it is data too.
    """

    name: str
    evaluate: Callable[..., Any] | None = None
    writes: tuple[int, ...] = ()
    header: str = ""
    definition: str = ""
    flops: int = 0
    ps: Callable[..., Dim] | None = None
    function: Function | None = field(default=None, hash=False)
