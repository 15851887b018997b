"""Whether the functions of modules permit what a program asks of them beyond the plain contract."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from byoc_core.errors import LinkError
from byoc_core.runtime.module import CallTraits, RuntimeModule
from byoc_core.vm.footprints import Footprints
from byoc_core.vm.instructions import Call, CallKind
from byoc_core.vm.program import Program, VMFunction
from byoc_core.vm.view_laws import is_strided, shared_places

__all__ = ["check_permissions"]


def check_permissions(program: Program, modules: Sequence[RuntimeModule], externs: Collection[str]) -> None:
    """Checks every call of a verified program against the traits of the function that it calls.

    Args:
        program: its symbols are all defined.
        modules: the first that defines a symbol is asked for its traits.
        externs: symbols that are defined otherwise; they permit nothing.

    Raises:
        LinkError: a register with strides goes to, or comes from, a function that takes C-contiguous arrays only, or a
            result lies upon an argument and the function does not permit it.
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
        for index, call in enumerate(function.code):
            if isinstance(call, Call) and call.kind is CallKind.EXTERN:
                symbol = program.externs[call.callee]
                owner = owners.get(symbol) if symbol not in externs else None
                traits = CallTraits() if owner is None else owner.call_traits(symbol)
                _check_call(program, function, footprints, index, call, traits)


def _check_call(
    program: Program, function: VMFunction, footprints: Footprints, index: int, call: Call, traits: CallTraits
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
    for position, number in shared_places(footprints, call):
        if (position, number) not in traits.in_place:
            raise LinkError(
                where,
                f"`{symbol}` does not permit output {position} in the memory of input {number}",
                got=" and ".join(
                    str(program.registers(function)[n]) for n in (call.results[position], call.args[number])
                ),
            )
