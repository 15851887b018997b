"""Named schedules: permitted, and with other numbers than without a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from byoc_core.backend.hooks import CodegenResult, CompileContext, hookimpl
from byoc_core.errors import CodegenError
from byoc_core.ir import Binding, Function
from byoc_core.ops import default_ops

from fakenpu.faults.fault import Change, Fault

SCHEDULES = frozenset({"L2-schedules"})
_NAMES = ("lanes=4", "lanes=8")


def _names_schedules(compile_op: Callable[[Binding], Binding] = lambda binding: binding) -> Change:
    """Return the change naming schedules of additions; each addition with a name is compiled as another op."""

    def byoc_schedules(function: Function) -> Mapping[str, Sequence[str]]:
        return {binding.result.name: _NAMES for binding in function.walk() if binding.op.name == "add"}

    def change(names: dict[str, Any]) -> None:
        codegen = names["byoc_codegen"]

        def with_schedules(function: Function) -> Function:
            bindings = (binding if binding.schedule is None else compile_op(binding) for binding in function.bindings)
            return replace(function, bindings=tuple(bindings))

        def byoc_codegen(functions: Sequence[Function], context: CompileContext) -> CodegenResult:
            result: CodegenResult = codegen([with_schedules(function) for function in functions], context)
            return result

        names["byoc_schedules"] = hookimpl(byoc_schedules)
        names["byoc_codegen"] = hookimpl(byoc_codegen)

    return change


def _subtract_eight_lanes(binding: Binding) -> Binding:
    return replace(binding, op=default_ops()["subtract"]) if binding.schedule == _NAMES[1] else binding


def _subtract_unknown(binding: Binding) -> Binding:
    return binding if binding.schedule in _NAMES else replace(binding, op=default_ops()["subtract"])


def _refuse_unknown(binding: Binding) -> Binding:
    if binding.schedule not in _NAMES:
        raise CodegenError("fakenpu", f"has no schedule `{binding.schedule}`")
    return binding


FAULTS = {
    "names-schedules": Fault(frozenset(), compile_half=_names_schedules()),
    "schedule-changes-numbers": Fault(SCHEDULES, compile_half=_names_schedules(_subtract_eight_lanes)),
    "unknown-schedule-changes-numbers": Fault(SCHEDULES, compile_half=_names_schedules(_subtract_unknown)),
    "unknown-schedule-is-refused": Fault(SCHEDULES, compile_half=_names_schedules(_refuse_unknown)),
}
