"""The pass from a compiled module to a program."""

from __future__ import annotations

from byoc_core.ir.module import IRModule
from byoc_core.lower.lower_function import ProgramTables, lower_function
from byoc_core.vm.program import Program

__all__ = ["lower"]


def lower(module: IRModule) -> Program:
    """Gives the program of a module in which every op is a call or control flow.

    Every function of the module becomes a function of the program, in order. Intermediates get planned places,
    results are written straight into the caller's buffers, and ``if`` and ``loop`` become jumps.

    Args:
        module: what ``RunCodegen`` gives: ``call``, ``call_dps_packed``, ``call_packed``, ``if`` and ``loop`` only.

    Raises:
        CodegenError: another op is left, a value is no tensor of known rank, or a size is not known when it is needed;
            names function and op.

    Cost: near-linear in the number of ops.
    """
    tables = ProgramTables(module)
    functions = tuple(lower_function(function, tables) for function in module.functions.values())
    return Program(functions, tables.externs, tables.constants)
