"""Permission checks: requirements of a program on modules' functions beyond the plain contract."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from byoc_core.errors import LinkError
from byoc_core.runtime.module import CallTraits, RuntimeModule
from byoc_core.vm.footprints import Footprints
from byoc_core.vm.instructions import Call, CallKind
from byoc_core.vm.program import Program, VMFunction
from byoc_core.vm.state_laws import StateAliases
from byoc_core.vm.view_laws import aliased_operands, is_strided

__all__ = ["check_permissions"]


def check_permissions(program: Program, modules: Sequence[RuntimeModule], externs: Collection[str]) -> None:
    """Check every call of a verified program against the traits of the called function.

    Args:
        program: a program with all symbols defined.
        modules: the first module defining a symbol supplies its traits.
        externs: symbols defined otherwise; these permit nothing.

    Raises:
        LinkError: a register with strides is an argument or result of a function accepting C-contiguous arrays only, or
            a result aliases an argument without permission of the function.
    """
    owners: dict[str, RuntimeModule] = {}
    for function in program.functions:
        if function.is_plain:
            continue
        if not owners:
            for module in modules:
                for name in module.function_names:
                    owners.setdefault(name, module)
        footprints = Footprints(program, function)
        states = StateAliases(program, function, footprints)
        for index, call in enumerate(function.code):
            if isinstance(call, Call) and call.kind is CallKind.EXTERN:
                symbol = program.externs[call.callee]
                owner = owners.get(symbol) if symbol not in externs else None
                traits = CallTraits() if owner is None else owner.call_traits(symbol)
                aliases = (*aliased_operands(footprints, call), *states.aliased_operands(call))
                _check_call(program, function, aliases, index, call, traits)


def _check_call(
    program: Program,
    function: VMFunction,
    aliases: Iterable[tuple[int, int]],
    index: int,
    call: Call,
    traits: CallTraits,
) -> None:
    where = f"function `{function.name}`, instruction {index}"
    symbol = program.externs[call.callee]
    for number in () if traits.strided else (*call.args, *call.results):
        if is_strided(function, number):
            raise LinkError(
                where,
                f"`{symbol}` takes C-contiguous arrays only",
                got=f"register {program.registers(function)[number]} with strides",
            )
    for position, number in aliases:
        if (position, number) not in traits.in_place:
            raise LinkError(
                where,
                f"`{symbol}` does not permit output {position} in the memory of input {number}",
                got=" and ".join(
                    str(program.registers(function)[n]) for n in (call.results[position], call.args[number])
                ),
            )
