"""The pass from a compiled module to a program."""

from __future__ import annotations

from byoc_core.ir.module import IRModule
from byoc_core.lower.lower_function import lower_function
from byoc_core.lower.tables import ProgramTables
from byoc_core.vm.program import Program

__all__ = ["lower"]


def lower(module: IRModule) -> Program:
    """Gives the program of a module in which every op is a call, control flow or only rearranges elements.

    Every function of the module becomes a function of the program, in order. Intermediates get planned places,
    results are written straight into the caller's buffers, and ``if`` and ``loop`` become jumps. The ops that only
    rearrange (``reshape``, ``squeeze``, ``expand_dims``, ``permute_dims``, ``concat``, ``split``, ``strided_slice``
    forwards along axes of known size, ``broadcast_to``) become views where those who make and read the values permit it
    (see :class:`~byoc_core.runtime.module.CallTraits`), else copies; a result takes the place of an input where the
    function that makes it permits that.

    Args:
        module: what ``RunCodegen`` gives, with ops left that only rearrange tensors whose sizes the inputs determine.
            Its external modules are asked what their functions permit; other symbols permit nothing.

    Raises:
        CodegenError: another op is left, a value is no tensor of known rank, or a size is not known when it is needed;
            names function and op.

    Cost: near-linear in the number of ops.
    """
    tables = ProgramTables(module)
    functions = tuple(lower_function(function, tables) for function in module.functions.values())
    return Program(functions, tables.externs, tables.constants)
