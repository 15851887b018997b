"""Lowering of one function: the code with the most sharing of memory between values provable by the machine.

Views are tried from the most sharing to none; see :mod:`byoc_core.lower.emission` for the code itself.
"""

from __future__ import annotations

from itertools import chain

from byoc_core.errors import InternalError, ProgramError
from byoc_core.ir.module import Function
from byoc_core.lower.domains import ValueDomains, find_domains
from byoc_core.lower.emission import Emission, is_view, no_code_error
from byoc_core.lower.placement_hints import Sharing
from byoc_core.lower.states import StatePlacement, stale_states
from byoc_core.lower.tables import ProgramTables
from byoc_core.opset.layout import is_size, unproved_sizes
from byoc_core.vm.dataflow import check_dataflow
from byoc_core.vm.footprints import Footprints, defines_all
from byoc_core.vm.program import Program, VMFunction
from byoc_core.vm.view_laws import check_memory, check_views

__all__ = ["lower_function"]


def lower_function(function: Function, tables: ProgramTables, max_sharing: Sharing = Sharing.PARTS) -> VMFunction:
    """Return a function in the machine's form.

    Values share as much memory as ``max_sharing`` permits, unless sharing makes the arena larger than copies do, or the
    machine cannot prove the shared places.

    Args:
        function: the function to lower.
        tables: the tables of the whole program.
        max_sharing: the maximum memory sharing between values.

    A state's new value is written into the buffer of the old value, unless the old value is read afterwards: then no
    intermediate is placed in the buffer, or, if this is not enough, the new value is made elsewhere and copied at the
    end.

    Raises:
        CodegenError: see :func:`byoc_core.lower.lower`.

    Cost: a function is lowered at most twice more for each such state.
    """
    domains = find_domains(function, tables)
    placement = StatePlacement()
    while True:
        lowered = _lower_with_views(function, tables, domains, max_sharing, placement)
        stale = stale_states(lowered, tables)
        if not stale:
            return lowered
        if stale <= placement.copied:
            raise InternalError(f"function `{function.name}`", f"reads overwritten states {sorted(stale)}")
        placement = placement.refined(stale)


def _lower_with_views(
    function: Function,
    tables: ProgramTables,
    domains: ValueDomains,
    max_sharing: Sharing,
    placement: StatePlacement,
) -> VMFunction:
    plain = Emission(function, tables, domains, Sharing.NONE, placement).run()
    if not any(map(is_view, function.walk())):
        return plain
    shapes = chain((param.shape for param in plain.params), (tensor.shape for tensor in plain.tensors))
    sizes = unproved_sizes(dict.fromkeys(chain.from_iterable(shapes)))
    for sharing in range(max_sharing, Sharing.NONE, -1):
        candidate = Emission(function, tables, domains, Sharing(sharing), placement).run()
        if is_size(sum(plain.storages, 0) - sum(candidate.storages, 0), sizes) and _is_provable(candidate, tables):
            return candidate
    if not _is_provable(plain, tables):
        raise no_code_error(f"function `{function.name}`", next(filter(is_view, function.walk())))
    return plain


def _is_provable(function: VMFunction, tables: ProgramTables) -> bool:
    """Return whether the machine can prove the places of views, and complete writes of values written in parts."""
    program = Program((), tables.externs, tables.constants)
    try:
        check_views(program, function)
        footprints = Footprints(program, function)
        if not footprints.is_exact:  # counted reads may exceed the writes so far
            check_memory(program, function, footprints)
            check_dataflow(program, function, footprints)
    except ProgramError:
        return False
    return defines_all(function, footprints)
