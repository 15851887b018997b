"""A handle of a backend: calls the hooks and checks the results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, TypeVar

from byoc_core.backend.axis_orders import AxisOrders, find_fault
from byoc_core.backend.info import (
    BackendInfo,
    CodegenResult,
    CompileContext,
    Estimate,
    Rejection,
    Status,
    Support,
    coarsest_roundoff,
)
from byoc_core.backend.kernel_report import KernelReport
from byoc_core.backend.options import validate_options
from byoc_core.backend.rewriting import REWRITES
from byoc_core.errors import ByocError, ForeignNameError, HookError, VerifyError
from byoc_core.plugin import PluginRecord
from byoc_core.plugin.handle import PluginHandle
from byoc_core.runtime.module import NDArray, RuntimeModule
from byoc_core.runtime.registry import runtimes
from byoc_core.runtime.status import ask_status

if TYPE_CHECKING:
    from pydantic import BaseModel

    from byoc_core.backend.lowered_function import LoweredFunction
    from byoc_core.ir.module import Binding, Function, IRModule
    from byoc_core.opset.opdef import OpDef
    from byoc_core.pattern import CompositePattern

__all__ = ["BackendHandle"]

_T = TypeVar("_T")

_LOWER = "byoc_lower"


class BackendHandle:
    """A backend as used by the compiler. Every method calling a hook may raise ``HookError``.

    Args:
        plugin: the plugin implementing the backend.

    Raises:
        HookError: ``byoc_backend_info`` raised, or did not return a ``BackendInfo`` with the entry point's name.
    """

    def __init__(self, plugin: PluginHandle) -> None:
        self._plugin = plugin
        self._info = plugin.introduce("byoc_backend_info", BackendInfo, "name")
        self._ops: tuple[OpDef, ...] | None = None

    @property
    def name(self) -> str:
        """The backend's name."""
        return self._info.name

    @property
    def record(self) -> PluginRecord:
        """The backend's distribution and version; both empty for a plugin object given directly."""
        return self._plugin.record

    @property
    def uncontained(self) -> BackendHandle:
        """The backend with hooks raising their own exceptions."""
        return self

    @property
    def plugin(self) -> object:
        """The module or object implementing the hooks."""
        return self._plugin.plugin

    def info(self, options: Mapping[str, object] | None = None) -> BackendInfo:
        """Return the backend's info.

        Args:
            options: as given by the user; a unit roundoff stated by the options counts if coarser.

        Raises:
            OptionsError: an option is unknown or has a bad value.
        """
        roundoffs: Mapping[str, float] = getattr(self.options(options), "unit_roundoff", {}) if options else {}
        if not roundoffs:
            return self._info
        changed = replace(self._info, unit_roundoff=roundoffs)
        return replace(self._info, unit_roundoff=coarsest_roundoff([self._info, changed]))

    def options(self, given: Mapping[str, object] | None = None) -> BaseModel | None:
        """Return validated options with defaults filled in; ``None`` for a backend without options.

        Raises:
            OptionsError: an option is unknown or has a bad value.
        """
        return validate_options(self.name, self._info.options, given or {})

    def context(
        self, module: IRModule | None = None, options: Mapping[str, object] | BaseModel | None = None
    ) -> CompileContext:
        """Return the context for calling the other hooks.

        Args:
            module: the module being compiled.
            options: as given by the user, or already validated.

        Raises:
            OptionsError: an option is unknown or has a bad value.
        """
        validated = self.options(options) if options is None or isinstance(options, Mapping) else options
        if module is None:
            return CompileContext(self.name, validated)
        return CompileContext(self.name, validated, module.constants, module)

    def compile_status(self, context: CompileContext | None = None) -> Status:
        """Return whether the backend can compile on this machine."""
        hook = "byoc_compile_status"
        arguments = {"context": context or self.context()} if self._plugin.has(hook) else {}
        return ask_status(self._plugin, hook, **arguments)

    def implements(self, hook: str) -> bool:
        """Return whether the plugin has an optional hook."""
        return self._plugin.has(hook)

    def prepare(self, module: IRModule, context: CompileContext) -> IRModule:
        """Return the module rewritten by ``byoc_prepare``; the same module if the backend wants no change."""
        return self.rewrite("byoc_prepare", module, context)

    def rewrite(self, hook: str, module: IRModule, context: CompileContext) -> IRModule:
        """Return the module rewritten by a hook of :data:`byoc_core.backend.rewriting.REWRITES`.

        Raises:
            HookError: the hook raised, made a forbidden change, or produced an invalid module.
        """
        from byoc_core.ir import verify

        result = self._rewrite(hook, module, context)
        if result is not module:
            try:
                verify(result)
            except VerifyError as error:
                raise HookError(self.where(hook), f"made an invalid module: {error}") from error
        return result

    def _rewrite(self, hook: str, module: IRModule, context: CompileContext) -> IRModule:
        from byoc_core.ir.module import IRModule

        if not self._plugin.has(hook):
            return module
        result = self._plugin.check(hook, self._plugin.call(hook, module=module, context=context), IRModule)
        if result is not module and (fault := REWRITES[hook](module, result, self.name)):
            raise HookError(self.where(hook), fault)
        return result

    def patterns(self) -> tuple[CompositePattern, ...]:
        """Return the backend's patterns, groups of ops computed as a unit, in the backend's order."""
        from byoc_core.pattern import CompositePattern

        hook = "byoc_patterns"
        patterns = self._sequence(hook, CompositePattern)
        for pattern in patterns:
            if pattern.backend != self.name:
                raise ForeignNameError(
                    self._plugin.where(hook),
                    "returned a pattern without the backend's name as a prefix",
                    got=f"`{pattern.name}`",
                    expected=f"`{self.name}.<what>`",
                )
        return patterns

    def supports(self, binding: Binding, context: CompileContext) -> Support | Rejection:
        """Return whether the backend can compile an op by itself."""
        hook = "byoc_supports"
        if not self._plugin.has(hook):
            return Rejection("no-rule", f"backend `{self.name}` takes no single ops")
        answer = self._plugin.call(hook, binding=binding, context=context)
        if isinstance(answer, Support | Rejection):
            return answer
        raise HookError(
            self._plugin.where(hook),
            f"returned a value of the wrong type for op `{binding.op.name}`",
            got=type(answer).__qualname__,
            expected="Support or Rejection",
        )

    @property
    def claims_by_itself(self) -> bool:
        """Whether the backend claims by its own algorithm instead of patterns and single-op rules."""
        return self._plugin.has("byoc_partition")

    def partition(self, module: IRModule, context: CompileContext) -> IRModule:
        """Return the module with the backend's claims; other changes by the hook are not checked here."""
        from byoc_core.ir.module import IRModule

        hook = "byoc_partition"
        return self._plugin.check(hook, self._plugin.call(hook, module=module, context=context), IRModule)

    def where(self, hook: str) -> str:
        """Return the location text of a hook for messages."""
        return self._plugin.where(hook)

    def contain(self, hook: str, error: ByocError, op: str = "") -> Rejection:
        """Raise the error of a hook; :class:`byoc_core.backend.contained.ContainedBackend` returns a refusal instead.

        Args:
            hook: the hook's name.
            error: raised by the hook, or by an object returned by the hook.
            op: the op passed to the hook; empty if the hook concerns the whole backend.

        Raises:
            ByocError: ``error``.
        """
        raise error

    def estimate(self, function: Function, context: CompileContext) -> Estimate | None:
        """Return the cost of running a function on the backend; ``None`` without an estimate.

        Raises:
            HookError: the hook raised, or returned a wrong type or a negative or non-finite figure.
        """
        hook = "byoc_estimate"
        answer = self._plugin.call(hook, function=function, context=context) if self._plugin.has(hook) else None
        if answer is None:
            return None
        estimate = self._plugin.check(hook, answer, Estimate)
        for name, value in asdict(estimate).items():
            if not isinstance(value, int | float) or not 0 <= value < math.inf:
                problem = f"returned a bad `{name}` for function `{function.name}`"
                expected = "a finite int or float, 0 or more"
                raise HookError(self._plugin.where(hook), problem, got=repr(value), expected=expected)
        return estimate

    def layouts(self, function: Function, context: CompileContext) -> tuple[AxisOrders, ...] | None:
        """Return the orders of axes preferred by a function of a single op, best first; ``None`` without a statement.

        Raises:
            HookError: the hook raised, returned a wrong type, or orders unfit for the op.
        """
        hook = "byoc_layouts"
        answer = self._plugin.call(hook, function=function, context=context) if self._plugin.has(hook) else None
        if answer is None:
            return None
        alternatives = self._checked_items(hook, answer, AxisOrders)
        for orders in alternatives:
            if (fault := find_fault(orders, function.bindings[0])) is not None:
                raise HookError(self._plugin.where(hook), f"returned {fault}, for function `{function.name}`")
        return alternatives or None

    @property
    def names_schedules(self) -> bool:
        """Whether the backend has the hook ``byoc_schedules``."""
        return self._plugin.has("byoc_schedules")

    def schedules(self, function: Function, context: CompileContext) -> Mapping[str, tuple[str, ...]]:
        """Return the names of other schedules of a function's ops, each once, by the name of an op's result.

        Raises:
            HookError: the hook raised, returned a wrong type, or named no op of the function.
        """
        hook = "byoc_schedules"
        if not self._plugin.has(hook):
            return {}
        call = self._plugin.call(hook, function=function, context=context)
        answer: Mapping[object, object] = self._plugin.check(hook, call, Mapping)  # type: ignore[type-abstract]
        results = {result.name for binding in function.walk() for result in binding.results}
        found: dict[str, tuple[str, ...]] = {}
        for op, names in answer.items():
            if op not in results:
                problem = f"returned schedules of no op of function `{function.name}`"
                raise HookError(self._plugin.where(hook), problem, got=repr(op), expected="the name of a result")
            found[str(op)] = tuple(dict.fromkeys(self._checked_items(hook, names, str)))
        return found

    @property
    def reports_kernels(self) -> bool:
        """Whether :meth:`generated_kernels` has an answer: by a hook of the backend, or for lowered functions."""
        return self._plugin.has("byoc_generated_kernels") or self._plugin.has(_LOWER)

    def generated_kernels(self, functions: Sequence[Function], context: CompileContext) -> tuple[KernelReport, ...]:
        """Return the kernels generated by the backend for compiled functions, and the calls of lowered functions.

        Raises:
            HookError: a hook raised, or returned a wrong type.
            CodegenError: see :meth:`codegen`.
        """
        hook = "byoc_generated_kernels"
        lowered, _, constants = self._lower(functions, context)
        remaining = tuple(function for function in functions if function.name not in lowered)
        reports: list[KernelReport] = []
        if self._plugin.has(hook) and remaining:
            reports += self._sequence(hook, KernelReport, functions=remaining, context=context)
        if lowered:
            from byoc_core.authoring.lowered_source import lowered_kernels

            reports += lowered_kernels(list(lowered.values()), {**context.constants, **constants})
        return tuple(reports)

    @property
    def separates_sizes(self) -> bool:
        """Whether ops of known sizes and ops of symbolic sizes are kept in separate regions."""
        return False

    def codegen_groups(self, functions: Sequence[Function]) -> list[list[Function]]:
        """Return functions in the groups to pass to :meth:`codegen`."""
        return [list(functions)] if functions else []

    def codegen(self, functions: Sequence[Function], context: CompileContext) -> CodegenResult:
        """Compile functions annotated for this backend.

        Args:
            functions: each with a ``global_symbol``.
            context: the context of the functions' module.

        Returns:
            A result with every function either compiled, under its symbol, or rejected. Several threads may call the
            module: a module declared non-re-entrant by its runtime is guarded by a lock.

        Raises:
            HookError: a hook raised, returned a wrong type, or left a function unanswered.
            CodegenError: a function was lowered against the laws of :mod:`byoc_core.backend.lowered_checks`, or calls
                an undefined symbol.
            ToolchainError: no C compiler, or the C of a lowered function does not compile.
        """
        lowered, refusals, constants = self._lower(functions, context)
        modules = self._lowered_modules(lowered, {**context.constants, **constants}, refusals)
        remaining = [f for f in functions if f.name not in lowered and f.name not in refusals]
        is_needed = bool(remaining) or not (lowered or refusals)
        has_codegen = self._plugin.has("byoc_codegen")
        result = self._generate(remaining, context) if is_needed and has_codegen else CodegenResult(None)
        if not lowered and not refusals:
            return result
        return replace(
            result,
            constants={**result.constants, **constants},
            rejections={**result.rejections, **refusals},
            lowered=tuple(modules),
        )

    def _lower(
        self, functions: Sequence[Function], context: CompileContext
    ) -> tuple[dict[str, LoweredFunction], dict[str, Rejection], dict[str, NDArray]]:
        """Return the functions lowered by ``byoc_lower`` and the refusals, by function name; constants by digest."""
        lowered: dict[str, LoweredFunction] = {}
        refusals: dict[str, Rejection] = {}
        constants: dict[str, NDArray] = {}
        for function in functions if self._plugin.has(_LOWER) else ():
            try:
                answer = self._lower_function(function, context, constants)
            except ByocError as error:
                answer = self.contain(_LOWER, error, function.name)
            if isinstance(answer, Rejection):
                refusals[function.name] = answer
            elif answer is not None:
                lowered[function.name] = answer
        return lowered, refusals, constants

    def _lower_function(
        self, function: Function, context: CompileContext, constants: dict[str, NDArray]
    ) -> LoweredFunction | Rejection | None:
        """Return the answer of ``byoc_lower`` for a function; ``None`` if ``byoc_codegen`` compiles the function."""
        from byoc_core.backend.lowering import LoweringBuilder

        builder = LoweringBuilder(function)
        answer = self._plugin.call(_LOWER, function=function, builder=builder, context=context)
        if answer is not None:
            return self._plugin.check(_LOWER, answer, Rejection)
        if builder.is_unused:
            if self._plugin.has("byoc_codegen"):
                return None
            raise HookError(
                self._plugin.where(_LOWER),
                f"neither lowered nor rejected function `{function.name}`",
                expected="statements in `builder`, or a Rejection",
            )
        finished = builder.finish()
        constants.update(builder.constants)
        return finished

    def _lowered_modules(
        self, lowered: dict[str, LoweredFunction], constants: Mapping[str, NDArray], refusals: dict[str, Rejection]
    ) -> list[RuntimeModule]:
        """Return the modules of lowered functions; if the C of all fails, each function is compiled alone.

        Functions failing alone are moved from ``lowered`` to ``refusals``.
        """
        if not lowered:
            return []
        from byoc_core.authoring.lowered_source import lowered_modules

        try:
            return list(lowered_modules(list(lowered.values()), constants))
        except ByocError as error:
            if len(lowered) == 1:
                (name,) = lowered
                refusals[name] = self.contain(_LOWER, error, name)
                lowered.clear()
                return []
        modules: list[RuntimeModule] = []
        for name in list(lowered):
            try:
                modules += lowered_modules([lowered[name]], constants)
            except ByocError as error:
                refusals[name] = self.contain(_LOWER, error, name)
                del lowered[name]
        return modules

    def _generate(self, functions: Sequence[Function], context: CompileContext) -> CodegenResult:
        """Return the checked result of ``byoc_codegen``."""
        hook = "byoc_codegen"
        answer = self._plugin.call(hook, functions=tuple(functions), context=context)
        result = self._plugin.check(hook, answer, CodegenResult)
        if result.module is not None:
            self._plugin.check(hook, result.module, RuntimeModule, action="returned as `module`")  # type: ignore[type-abstract]
        if result.lowered:
            raise HookError(self._plugin.where(hook), "returned `lowered` modules", hint="Implement `byoc_lower`.")
        compiled = dict.fromkeys(() if result.module is None else result.module.function_names)
        for name, rejection in result.rejections.items():
            self._plugin.check(hook, rejection, Rejection, action=f"returned for function `{name}`")
        for function in functions:
            if function.name not in result.rejections and function.attrs["global_symbol"] not in compiled:
                raise HookError(
                    self._plugin.where(hook),
                    f"neither compiled nor rejected function `{function.name}`",
                    got=f"a module with {', '.join(compiled)}" if compiled else "no compiled function",
                    expected=f"a function named by the symbol `{function.attrs['global_symbol']}`",
                )
        return result if result.module is None else replace(result, module=runtimes().guard(result.module))

    def ops(self) -> tuple[OpDef, ...]:
        """Return the ops of the backend's own domain; always the same objects."""
        from byoc_core.opset.opdef import OpDef

        if self._ops is None:
            self._ops = self._sequence("byoc_ops", OpDef)
        return self._ops

    def _sequence(self, hook: str, item_type: type[_T], **arguments: object) -> tuple[_T, ...]:
        if not self._plugin.has(hook):
            return ()
        return self._checked_items(hook, self._plugin.call(hook, **arguments), item_type)

    def _checked_items(self, hook: str, answer: object, item_type: type[_T]) -> tuple[_T, ...]:
        items = self._plugin.check(hook, answer, Iterable)  # type: ignore[type-abstract]
        return tuple(self._plugin.check(hook, item, item_type, action="returned among other values") for item in items)

    def __repr__(self) -> str:
        return f"<backend {self.name}>"
