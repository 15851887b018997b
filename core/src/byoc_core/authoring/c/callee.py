"""C functions called by generated code."""

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
    """A C function called by generated code, with the facts needed by tests and estimates.

    The interpreter calls ``evaluate``, or runs ``function``, in the place of the C function. Both must compute the same
    values as the C, else the interpreter's expected results are wrong.

    Attributes:
        name: the name in C.
        evaluate: returns the result for numpy scalars and, in the place of addresses, views of arrays, changeable for
            arguments in ``writes``; ``None`` if ``function`` is given.
        writes: numbers of the arguments with memory written by the function.
        header: the header with the declaration of the function; empty for a header included by every source.
        definition: C text of the definition; ``{name}`` in it is the name. Empty for a function of a header.
        flops: floating-point operations of a call.
        ps: returns the picoseconds of a call for the values of its arguments, ``None`` for unknown values; by default
            the time follows from the operations.
        function: the function itself, if also known as data.
    """

    name: str
    evaluate: Callable[..., Any] | None = None
    writes: tuple[int, ...] = ()
    header: str = ""
    definition: str = ""
    flops: int = 0
    ps: Callable[..., Dim] | None = None
    function: Function | None = field(default=None, hash=False)
