"""Codegen: annotated functions become runtime modules, and calls of these functions become external calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from byoc_core.backend import BackendHandle
from byoc_core.backend.registry import Backends, find_registry
from byoc_core.errors import CodegenError
from byoc_core.ir import (
    CALL,
    CALL_DPS_PACKED,
    CALL_PACKED,
    COMPOSITE,
    Binding,
    Constant,
    Function,
    IRModule,
    Var,
    binding_window,
)
from byoc_core.ir.printer import EXTERNAL_MODULES
from byoc_core.ir.sizes import result_symbols
from byoc_core.ir.verifier import check_global_symbols
from byoc_core.opset.device_numbers import MAX_DEVICE_NUMBER
from byoc_core.partitioning.claiming.claim_filters import core_refusal
from byoc_core.partitioning.compiled_regions import record_compiled
from byoc_core.partitioning.weight_forms import WeightForms
from byoc_core.pattern import Rejection
from byoc_core.transform.dead_code import RemoveUnusedFunctions
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewrite import map_functions, map_regions, with_bindings

__all__ = ["Handover", "RunCodegen"]

Handover = Callable[[Function, str, Rejection], Function]
"""The handling of a function refused by its backend: returns the function annotated for another backend, or raises."""


@dataclass(frozen=True)
class RunCodegen(Pass):
    """A pass compiling every function annotated with ``Codegen`` and ``global_symbol``.

    The runtime modules are appended to the module attribute ``external_mods``. Calls of the functions become
    ``call_dps_packed`` of the symbols (a pure ``call_packed`` for results with sizes known only at run time). The
    functions are removed. The module attribute ``external_functions`` keeps the functions by symbol: the report of a
    later :func:`byoc_core.build` counts the functions' work.

    Attributes:
        options: each backend's options, by backend name.
        entry_functions: removes functions reached by none of these; ``None`` keeps all others.
        backends: plugin objects, or handles, to use under their names instead of installed plugins.
        handover: the handling of refused functions; by default a refusal is an error.
        registry: the backends available by name; by default the backends installed for this process.
        weights: the swappable weights, and receives the forms of weights that compiled functions ask for.
    """

    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    entry_functions: tuple[str, ...] | None = None
    backends: Sequence[object] = ()
    handover: Handover | None = None
    registry: Backends | None = None
    weights: WeightForms = field(default_factory=WeightForms)

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module with external calls.

        Raises:
            CodegenError: an annotation is incomplete, or a backend refuses an op of a function annotated for this
                backend; names op, function and backend, and shows the line.
            BackendNotFoundError: a function is annotated for a backend not installed.
            HookError: a backend's hook failed.
            VerifyError: two functions have one global symbol.
        """
        check_global_symbols(module)
        while True:
            pending = self._annotated(module)
            if not pending:
                break
            backend = next(iter(pending))
            module = self._compile(module, backend, pending[backend])
        if self.entry_functions is not None:
            module = RemoveUnusedFunctions(self.entry_functions)(module)
        return module

    def _annotated(self, module: IRModule) -> dict[str, list[Function]]:
        """Return the annotated functions by backend, in module order."""
        found: dict[str, list[Function]] = {}
        external_symbols = {s for m in module.attrs.get(EXTERNAL_MODULES, ()) for s in m.function_names}
        for function in module.functions.values():
            backend = function.attrs.get("Codegen")
            if backend is None:
                continue
            symbol = function.attrs.get("global_symbol")
            where = f"function `{function.name}`"
            if not isinstance(symbol, str) or not symbol.isidentifier() or not symbol.isascii():
                problem = "is annotated with `Codegen` but has no usable `global_symbol`"
                raise CodegenError(where, problem, got=repr(symbol), expected="a C identifier")
            if symbol in external_symbols:
                raise CodegenError(where, f"has the global symbol of an external function, `{symbol}`")
            device = function.attrs.get("device", 0)
            if type(device) is not int or not 0 <= device <= MAX_DEVICE_NUMBER:
                raise CodegenError(
                    where,
                    "names no device",
                    got=repr(device),
                    expected=f"`device`: a number of 0 to {MAX_DEVICE_NUMBER}",
                )
            if self.entry_functions and function.name in self.entry_functions:
                raise CodegenError(
                    where, "is an annotated entry function; call the annotated function from another entry function"
                )
            found.setdefault(str(backend), []).append(function)
        return found

    def _handle(self, name: str) -> BackendHandle:
        return find_registry(self.registry).lookup(self.backends)(name)

    def _compile(self, module: IRModule, backend: str, functions: list[Function]) -> IRModule:
        handle = self._handle(backend)
        context = handle.context(module, self.options.get(backend, {}))
        status = handle.compile_status(context)
        if not status.ok:
            problem = f"cannot compile here: {status.reason}"
            raise CodegenError(f"backend `{backend}`", problem, hint=status.remedy or None)
        lifted = {f.name: _lift_constants(f) for f in functions} if handle.info().constants == "lifted" else {}
        ready = [lifted[f.name].function if f.name in lifted else f for f in functions]
        refusals = {f.name: refusal for f in ready if (refusal := _static_refusal(f, handle)) is not None}
        accepted = [f for f in ready if f.name not in refusals]
        context = replace(context, weights=self.weights.find_params(module, accepted))
        for group in handle.codegen_groups(accepted):
            result = handle.codegen(group, context)
            self.weights.record(result, accepted, context)
            refusals.update(result.rejections)
            for digest, array in result.constants.items():
                if module.constants.add(array).digest != digest:
                    problem = "returned a constant with a wrong digest"
                    raise CodegenError(f"backend `{backend}`", problem, got=digest)
            if result.modules:
                externals = (*module.attrs.get(EXTERNAL_MODULES, ()), *result.modules)
                _check_symbols([external.function_names for external in externals], backend)
                module = module.with_attrs(**{EXTERNAL_MODULES: externals})
        originals = {f.name: f for f in functions}
        for name, refusal in refusals.items():
            if self.handover is not None:
                module = module.with_function(self.handover(originals[name], backend, refusal))
            else:
                self.refuse(module, originals[name], backend, refusal)
        compiled = {f.name: f for f in ready if f.name not in refusals}
        module = record_compiled(module, compiled.values())
        return _replace_calls(module, compiled, {name: lifted[name].constants for name in compiled if name in lifted})

    def refuse(self, module: IRModule, function: Function, backend: str, refusal: Rejection) -> NoReturn:
        """Raise the error for a function refused by the backend: names the guilty op and shows the op's line.

        Raises:
            CodegenError: always.
        """
        handle = self._handle(backend)
        context = handle.context(module, self.options.get(backend, {}))
        guilty, reason = None, refusal
        for binding in function.bindings:
            asks = binding.op is not COMPOSITE and handle.implements("byoc_supports")
            answer = core_refusal(binding, handle) or (handle.supports(binding, context) if asks else None)
            if isinstance(answer, Rejection):
                guilty, reason = binding, answer
                break
        op = f"op `{guilty.op.name}` in function `{function.name}`" if guilty else f"function `{function.name}`"
        raise CodegenError(
            op,
            f"backend `{backend}` refuses the compilation ({reason.code}): {reason.text}",
            detail=binding_window(function, guilty, module.constants),
        )


def _check_symbols(functions: Sequence[Sequence[str]], backend: str) -> None:
    """Check that no two modules have a function of the same name; steps of lowered functions count too.

    Args:
        functions: the names of the functions of each module.
        backend: the backend of the last module.

    Raises:
        CodegenError: names the function and the backend compiled last.
    """
    symbols: set[str] = set()
    for names in functions:
        if common := sorted(symbols.intersection(names)):
            raise CodegenError(
                f"backend `{backend}`",
                f"compiled a function with the symbol `{common[0]}` of another external function",
                hint="Give the function another `global_symbol`.",
            )
        symbols.update(names)


def _static_refusal(function: Function, handle: BackendHandle) -> Rejection | None:
    return next((r for b in function.bindings if (r := core_refusal(b, handle)) is not None), None)


@dataclass(frozen=True, slots=True)
class _Lifted:
    """A function with constants turned into parameters, and the constants to pass after the arguments."""

    function: Function
    constants: tuple[Constant, ...]


def _lift_constants(function: Function) -> _Lifted:
    params: dict[Constant, Var] = {}

    def lift(value: object) -> object:
        if not isinstance(value, Constant):
            return value
        return params.setdefault(value, Var(f"c{len(params)}", value.type))

    bindings = [replace(b, operands=tuple(map(lift, b.operands))) for b in function.bindings]  # type: ignore[arg-type]
    results = tuple(map(lift, function.results))
    if not params:
        return _Lifted(function, ())
    lifted = replace(
        function,
        params=(*function.params, *params.values()),
        bindings=tuple(bindings),
        results=results,  # type: ignore[arg-type]
    )
    return _Lifted(lifted, tuple(params))


def _replace_calls(
    module: IRModule, compiled: Mapping[str, Function], extra: Mapping[str, tuple[Constant, ...]]
) -> IRModule:
    def change(function: Function) -> Function:
        return with_bindings(function, [external(b) for b in map_regions(function.bindings, change)])

    def external(binding: Binding) -> Binding:
        callee = compiled.get(str(binding.attrs["callee"])) if binding.op is CALL else None
        if callee is None:
            return binding
        operands = (*binding.operands, *extra.get(callee.name, ()))
        symbol = {"symbol": callee.attrs["global_symbol"]}
        if result_symbols(callee):
            # A result with a size known only at run time cannot be allocated by the caller.
            attrs = CALL_PACKED.normalise_attrs({**symbol, "pure": True})
            return replace(binding, op=CALL_PACKED, operands=operands, attrs=attrs)
        attrs = CALL_DPS_PACKED.normalise_attrs({**symbol, "device": callee.attrs.get("device", 0)})
        return replace(binding, op=CALL_DPS_PACKED, operands=operands, attrs=attrs)

    remaining = module.with_functions({name: f for name, f in module.functions.items() if name not in compiled})
    return map_functions(remaining, change)
