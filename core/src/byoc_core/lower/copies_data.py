"""The copies between memory domains in the report of a compilation."""

from __future__ import annotations

from typing import Any

from byoc_core.vm.border_copies import border_copies
from byoc_core.vm.program import Program

__all__ = ["copies_data"]


def copies_data(program: Program) -> dict[str, Any]:
    """Return the part ``copies`` of a report; empty for a program of the host's memory alone.

    A copy has ``function, value, nbytes`` (a number or an expression), ``source, target`` (names of domains), and
    ``readers``: the callees and results of the function making the copy necessary.
    """
    copies = [
        {
            "function": function.name,
            "value": copy.value,
            "nbytes": copy.nbytes if isinstance(copy.nbytes, int) else str(copy.nbytes),
            "source": copy.source,
            "target": copy.target,
            "readers": list(copy.readers),
        }
        for function in program.functions
        if function.domains
        for copy in border_copies(program, function)
    ]
    return {"copies": copies} if copies else {}
