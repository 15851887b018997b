"""The pass from a compiled module to a program."""

from __future__ import annotations

from byoc_core.ir.module import IRModule
from byoc_core.lower.lower_function import lower_function
from byoc_core.lower.tables import ProgramTables
from byoc_core.vm.program import Program

__all__ = ["lower"]


def lower(module: IRModule) -> Program:
    """Return the program of a module with only calls, control flow and rearranging ops.

    Every function of the module becomes a function of the program, in order. Intermediates get planned places, results
    are written straight into the caller's buffers, and ``if`` and ``loop`` become jumps. Rearranging ops (``reshape``,
    ``squeeze``, ``expand_dims``, ``permute_dims``, ``concat``, ``split``, ``strided_slice`` forwards along axes of
    known size, ``broadcast_to``) become views if the producers and readers of the values permit views (see
    :class:`~byoc_core.runtime.module.CallTraits`), else copies. A result takes the place of an input if the producing
    function permits this.

    Args:
        module: the result of ``RunCodegen``. Remaining ops only rearrange tensors with sizes determined by the inputs.
            The external modules state the permissions of their functions; other symbols permit nothing.

    Raises:
        CodegenError: another op is left, a value is no tensor of known rank, or a size is not known when needed; names
            function and op.

    Cost: near-linear in the number of ops.
    """
    tables = ProgramTables(module)
    functions = tuple(lower_function(function, tables) for function in module.functions.values())
    return Program(
        functions, tables.externs, tables.constants, tables.domains, tables.extern_domains, tables.device_numbers
    )
