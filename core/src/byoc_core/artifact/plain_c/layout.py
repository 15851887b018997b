"""The workspace of exported C: offsets of the storages of each function, and bytes in all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from byoc_core.dims import Dim, dim_max, upper_bound
from byoc_core.vm.instructions import Call, CallKind
from byoc_core.vm.program import ALIGNMENT, Program, VMFunction

__all__ = ["WorkspaceLayout", "lay_out_workspaces"]


@dataclass(frozen=True, slots=True)
class WorkspaceLayout:
    """The workspace of a function.

    Attributes:
        starts: the offset of each storage in bytes.
        callees: the offset of the workspace of called functions.
        nbytes: bytes in all, called functions included.
    """

    starts: tuple[Dim, ...]
    callees: Dim
    nbytes: Dim


def lay_out_workspaces(program: Program, max_sizes: Mapping[str, int] | None) -> dict[str, WorkspaceLayout]:
    """Return the layout of the workspace of each function, by name.

    Args:
        program: the program; no function calls itself, directly or by others.
        max_sizes: the largest size of each symbol, for offsets independent of the sizes; ``None`` for offsets over the
            symbols.
    """
    functions = {function.name: function for function in program.functions}
    layouts: dict[str, WorkspaceLayout] = {}

    def visit(function: VMFunction) -> WorkspaceLayout:
        if function.name not in layouts:
            starts: list[Dim] = []
            total: Dim = 0
            for nbytes in function.storages:
                starts.append(total)
                size = nbytes if max_sizes is None else upper_bound(nbytes, max_sizes)
                total = total + (size + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT
            callees = [
                visit(functions[program.functions[call.callee].name]).nbytes
                for call in function.code
                if isinstance(call, Call) and call.kind is CallKind.FUNCTION
            ]
            largest: Dim = 0
            for nbytes in callees:
                largest = nbytes if largest == 0 else dim_max(largest, nbytes)
            layouts[function.name] = WorkspaceLayout(tuple(starts), total, total + largest)
        return layouts[function.name]

    for function in program.functions:
        visit(function)
    return layouts
