"""Compilation of a single region for a check, by the codegen of ``build``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy.typing as npt

from byoc_core.backend import BackendHandle
from byoc_core.errors import CodegenError
from byoc_core.ir import CALL, Binding, Constant, ConstantStore, Function, IRModule, Var
from byoc_core.ir.printer import EXTERNAL_MODULES
from byoc_core.ir.sizes import result_symbols
from byoc_core.partitioning import RunCodegen
from byoc_core.pattern import Rejection
from byoc_core.runtime.module import PackedFunction

__all__ = ["CompiledRegion", "RefusedError", "compile_region", "extract_region", "result_names"]

NDArray = npt.NDArray[Any]


class RefusedError(CodegenError):
    """A backend's codegen returned a ``Rejection`` for a region claimed by the backend."""


@dataclass(frozen=True, slots=True)
class CompiledRegion:
    """A callable region.

    Attributes:
        function: the compiled function.
        constants: the arguments after the inputs: constants requested by the backend as parameters.
        must_return: whether the function has to return the results, because only running determines the sizes.
        is_deterministic: whether the backend states equal outputs for equal inputs, bit for bit.
    """

    function: PackedFunction
    constants: tuple[NDArray, ...]
    must_return: bool
    is_deterministic: bool


def extract_region(module: IRModule, name: str) -> IRModule:
    """Return a module of a function, the called functions, and the cited constants."""
    functions = {name: module[name]}
    pending = [name]
    while pending:
        for binding in functions[pending.pop()].walk():
            callee = str(binding.attrs["callee"]) if binding.op is CALL else name
            if callee not in functions:
                functions[callee] = module[callee]
                pending.append(callee)
    store = ConstantStore()
    for function in functions.values():
        bodies = (region for binding in function.walk() for region in binding.regions)
        operands = (operand for binding in function.walk() for operand in binding.operands)
        for value in (*operands, *function.results, *(result for body in bodies for result in body.results)):
            if isinstance(value, Constant):
                store.adopt(value, module.constants[value.digest])
    return IRModule(functions, store, ops=module.ops)


def compile_region(module: IRModule, name: str, handle: BackendHandle, options: Mapping[str, object]) -> CompiledRegion:
    """Compile a function of a module that is annotated for a backend.

    Raises:
        RefusedError: the backend refuses the function.
        ByocError: the function cannot be compiled, or a hook failed.
    """
    region = module[name]
    entry = _call_of(region, f"call_{name}")
    codegen = RunCodegen(
        options={handle.name: options},
        backends=[handle],
        handover=_refuse,
    )
    compiled = codegen(module.with_function(entry))
    (call,) = compiled[entry.name].bindings
    constants = [value for value in call.operands if isinstance(value, Constant)]
    (external,) = compiled.attrs[EXTERNAL_MODULES]
    return CompiledRegion(
        external.get_function(str(region.attrs["global_symbol"])),
        tuple(compiled.constants[constant.digest] for constant in constants),
        bool(result_symbols(region)),
        handle.info().deterministic,
    )


def _call_of(region: Function, name: str) -> Function:
    """Return a function that only calls the region."""
    params = tuple(Var(param.name, param.type) for param in region.params)
    results = tuple(Var(f"r{index}", type_) for index, type_ in enumerate(region.result_types))
    call = Binding(results, CALL, params, CALL.normalise_attrs({"callee": region.name}))
    return Function(name, params, (call,), results)


def _refuse(function: Function, backend: str, rejection: Rejection) -> NoReturn:
    problem = f"backend `{backend}` refused the region ({rejection.code}): {rejection.text}"
    raise RefusedError(f"region `{function.name}`", problem)


def result_names(function: Function) -> Sequence[str]:
    """Return a name for each result of a region: the name of the value in the printed region."""
    return [value.name if isinstance(value, Var) else f"constant{i}" for i, value in enumerate(function.results)]
