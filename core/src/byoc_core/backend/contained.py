"""Backends with failing hooks contained: an exception becomes a refusal of the backend, kept with its traceback.

The driver contains every backend except the host. Exceptions of ``byoc_partition``, ``byoc_estimate`` and conditions of
patterns are caught by the callers in :mod:`byoc_core.partitioning`, and passed to :meth:`ContainedBackend.contain`.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from byoc_core.backend.handle import BackendHandle
from byoc_core.backend.info import CodegenResult, CompileContext, Rejection, Status, Support
from byoc_core.errors import ByocError, HookError, OptionsError

if TYPE_CHECKING:
    from byoc_core.ir.module import Binding, Function, IRModule
    from byoc_core.opset.opdef import OpDef
    from byoc_core.pattern import CompositePattern

__all__ = ["ContainedBackend", "HookFailure"]

_LOGGER = logging.getLogger("byoc_core")


@dataclass(slots=True)
class HookFailure:
    """An exception raised by a hook; equal exceptions for several ops share one failure.

    Attributes:
        backend: the name of the hook's backend.
        hook: the hook's name.
        text: the exception's type and text, as a clause.
        traceback: the frames from the first to the last, and the exception; module names in place of file paths,
            so the same build gives the same text on every machine.
        ops: the ops or functions passed to the hook; empty if the hook concerns the whole backend.
    """

    backend: str
    hook: str
    text: str
    traceback: str
    ops: list[str] = field(default_factory=list)

    def to_data(self) -> dict[str, Any]:
        """Return the failure as plain JSON values."""
        return {
            "backend": self.backend,
            "hook": self.hook,
            "text": self.text,
            "traceback": self.traceback,
            "ops": list(self.ops),
        }


class ContainedBackend(BackendHandle):
    """A backend with failures of hooks turned into refusals.

    A failing hook called with an op or a function refuses this op or function. A failing hook concerning the whole
    backend takes the backend out: no more claims. Ctrl-C, a lack of memory and wrong options of the user are no
    failures of the backend and pass through.

    Args:
        handle: the backend.
        failures: gets the exceptions.
    """

    def __init__(self, handle: BackendHandle, failures: list[HookFailure]) -> None:
        self._plugin = handle._plugin
        self._info = handle._info
        self._uncontained = handle
        self._failures = failures
        self._out: Rejection | None = None
        self._status: Status | None = None

    def contain(self, hook: str, error: ByocError, op: str = "") -> Rejection:
        """Record an exception of a hook.

        Args:
            hook: the hook's name.
            error: the exception, as raised by :meth:`BackendHandle`.
            op: the op or function passed to the hook; if empty, the backend is taken out.

        Returns:
            The refusal.

        Raises:
            OptionsError: the error is an ``OptionsError``.
        """
        if isinstance(error, OptionsError):
            raise error
        cause = error.__cause__ if isinstance(error, HookError) and error.__cause__ is not None else error
        text = error.problem if isinstance(error, HookError) else f"raised {type(error).__name__}: {error}"
        text = text.partition("\n")[0]
        failure = HookFailure(self.name, hook, text, _traceback_text(cause))
        recorded = next((f for f in self._failures if replace(f, ops=[]) == failure), None)
        if recorded is None:
            self._failures.append(recorded := failure)
            _LOGGER.debug("%s %s", self.where(hook), text, exc_info=error)
        if op and op not in recorded.ops:
            recorded.ops.append(op)
        rejection = Rejection("hook-failed", f"the hook `{hook}` {text}")
        if not op:
            self._out = self._out or rejection
        return rejection

    @property
    def uncontained(self) -> BackendHandle:
        """The backend with hooks raising their own exceptions."""
        return self._uncontained

    def compile_status(self, context: CompileContext | None = None) -> Status:
        """Return whether the backend can compile, asked once; an error counts as no."""
        if self._status is None:
            try:
                self._status = super().compile_status(context)
            except ByocError as error:
                self._status = Status(ok=False, reason=self.contain("byoc_compile_status", error).text)
        return self._status

    def rewrite(self, hook: str, module: IRModule, context: CompileContext) -> IRModule:
        """Return the module after a hook, verified; on failure, the unchanged module."""
        from byoc_core.ir import verify

        try:
            result = self._rewrite(hook, module, context)
            if result is not module:
                verify(result)
            return result
        except ByocError as error:
            self.contain(hook, error)
            return module

    def patterns(self) -> tuple[CompositePattern, ...]:
        """Return the patterns; none if the backend is out."""
        try:
            return () if self._out is not None else super().patterns()
        except ByocError as error:
            self.contain("byoc_patterns", error)
            return ()

    def ops(self) -> tuple[OpDef, ...]:
        """Return the backend's own ops; none if the backend is out."""
        try:
            return () if self._out is not None else self._uncontained.ops()
        except ByocError as error:
            self.contain("byoc_ops", error)
            return ()

    def supports(self, binding: Binding, context: CompileContext) -> Support | Rejection:
        """Return whether the backend can compile an op."""
        if self._out is not None:
            return self._out
        try:
            return super().supports(binding, context)
        except ByocError as error:
            return self.contain("byoc_supports", error, binding.results[0].name)

    @property
    def claims_by_itself(self) -> bool:
        """Whether the backend claims by its own algorithm; false if the backend is out."""
        return self._out is None and super().claims_by_itself

    def _generate(self, functions: Sequence[Function], context: CompileContext) -> CodegenResult:
        """Return the result of ``byoc_codegen``; if the hook fails for some functions, compile the others.

        Cost: one call of the hook; after an exception, about ``2 * log2(functions)`` more for each faulty function.
        """
        try:
            return super()._generate(functions, context)
        except ByocError as error:
            if len(functions) == 1:
                return self._refuse(functions, error)
        faulty = self._find_faulty(functions, context)
        rest = [function for function in functions if function.name not in faulty]
        if not rest:
            return CodegenResult(None, rejections=faulty)
        try:
            result = super()._generate(rest, context)
        except ByocError as error:  # each half compiles by itself, but not both together
            result = self._refuse(rest, error)
        return replace(result, rejections={**result.rejections, **faulty})

    def _find_faulty(self, functions: Sequence[Function], context: CompileContext) -> dict[str, Rejection]:
        """Return the refusals of functions failing even alone, found by halving."""
        faulty: dict[str, Rejection] = {}
        middle = len(functions) // 2
        for half in (functions[:middle], functions[middle:]):
            try:
                super()._generate(half, context)
            except ByocError as error:
                if len(half) == 1:
                    faulty[half[0].name] = self.contain("byoc_codegen", error, half[0].name)
                else:
                    faulty.update(self._find_faulty(half, context))
        return faulty

    def _refuse(self, functions: Sequence[Function], error: ByocError) -> CodegenResult:
        refusals: Mapping[str, Rejection] = {f.name: self.contain("byoc_codegen", error, f.name) for f in functions}
        return CodegenResult(None, rejections=refusals)


def _traceback_text(error: BaseException) -> str:
    """Return a traceback with module names in place of file paths, causes first."""
    parts = []
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        parts = [_traceback_text(cause), "", "then:"]
    for frame, line in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", "?"))
        parts.append(f"  {module}:{line} in {frame.f_code.co_qualname}")
    return "\n".join([*parts, f"{type(error).__name__}: {error}"])
