"""Faults that tests of level 1 catch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from byoc_core.backend.hooks import CodegenResult, CompileContext, Rejection, hookimpl
from byoc_core.ir import Function

from fakenpu.faults.fault import Fault


def _refuses_what_it_claims(names: dict[str, Any]) -> None:
    codegen = names["byoc_codegen"]

    @hookimpl
    def byoc_codegen(functions: Sequence[Function], context: CompileContext) -> CodegenResult:
        exps = [f for f in functions if any(binding.op.name == "exp" for binding in f.bindings)]
        result: CodegenResult = codegen([f for f in functions if f not in exps], context)
        return replace(result, rejections={f.name: Rejection("late", "no room for a table") for f in exps})

    names["byoc_codegen"] = byoc_codegen


FAULTS: Mapping[str, Fault] = {
    "refuses-what-it-claims": Fault(frozenset({"L1-op-compiles"}), compile_half=_refuses_what_it_claims),
}
