"""The compiler: backends, ops and a default request; all else is passed in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from byoc_core.artifact import Executable
from byoc_core.backend.registry import HOST_NAME, Backends, find_registry
from byoc_core.driver.carve import carve, carve_for_backends, peel_views, plan_layouts
from byoc_core.driver.compilation import Compilation, new_compilation
from byoc_core.driver.compile import compile_regions, explained_report, link
from byoc_core.driver.explanation import Explanation
from byoc_core.driver.fallback import judge_fallback
from byoc_core.driver.kernels import report_kernels
from byoc_core.driver.observers import Observers, OnPass, Progress
from byoc_core.driver.pipeline import pass_names
from byoc_core.driver.prepare import prepare
from byoc_core.driver.request import CompileRequest
from byoc_core.ir import IRModule
from byoc_core.ops import default_ops
from byoc_core.opset.registry import OpRegistry

__all__ = ["Compiler"]


@dataclass(frozen=True)
class Compiler:
    """A compiler of modules for the backends of a registry. :func:`byoc_core.build` is one line over ``Compiler()``.

    Not to be confused with :func:`byoc_core.compiler`, the compiler of a loaded artifact's regions for more sizes.

    Attributes:
        backends: resolves names to backends; by default the backends installed for this process.
        ops: the ops of every module; by default the core's.
        request: the request for methods called without a request.
    """

    backends: Backends = field(default_factory=find_registry, repr=False)
    ops: OpRegistry = field(default_factory=default_ops, repr=False)
    request: CompileRequest = field(default_factory=CompileRequest)

    def build(
        self,
        module: IRModule,
        request: CompileRequest | None = None,
        *,
        progress: Progress | None = None,
        on_pass: OnPass | None = None,
    ) -> Executable:
        """Compile a module; see :func:`byoc_core.build`."""
        compilation = self._open(module, request, progress, on_pass)
        prepared = prepare(compilation)
        compiled = compile_regions(carve(prepared))
        if compilation.offload_backends and HOST_NAME not in compilation.request.backends:
            judge_fallback(compilation.request.fallback, compiled.report_data, prepared.constraints.keeps_on_host)
        return link(compiled)

    def explain(
        self,
        module: IRModule,
        request: CompileRequest | None = None,
        *,
        progress: Progress | None = None,
        kernels: bool = False,
    ) -> Explanation:
        """Explain the outcome of :meth:`build`, with reasons; see :func:`byoc_core.explain`."""
        compiled = compile_regions(carve(prepare(self._open(module, request, progress))))
        generated = {"kernels": report_kernels(compiled)} if kernels else {}
        return Explanation(compiled.partitioned, {**explained_report(compiled), **generated})

    def carve(
        self, module: IRModule, request: CompileRequest | None = None, *, progress: Progress | None = None
    ) -> IRModule:
        """Return the module in the state of :meth:`build` just before codegen for the backends of a request.

        Claimed ops stand in functions annotated for the backends, except views at the borders (see :class:`PeelViews`).
        Values between these functions may have permuted axes (see :class:`PlanLayouts`).
        The remaining ops are given to the host by :meth:`build`. An exception in a hook of a backend is an error.

        Raises:
            ByocError: any error raised by :meth:`build` before codegen.
        """
        strict_request = (request or self.request).updated(strict=True)
        prepared = prepare(self._open(module, strict_request, progress))
        return peel_views(prepared, plan_layouts(prepared, carve_for_backends(prepared)))

    def pass_names(self, request: CompileRequest | None = None) -> tuple[str, ...]:
        """Return the names of the passes run by :meth:`build` for a request, in order.

        Raises:
            BackendNotFoundError: a backend is not installed.
        """
        unspecialised = (request or self.request).updated(specialize=False)
        return pass_names(self._open(IRModule(), unspecialised))

    def ops_for(self, backends: Sequence[str | object]) -> OpRegistry:
        """Return the ops allowed in modules for these backends: :attr:`ops`, and the ops brought by the backends."""
        return self.ops.extended(self.backends.ops(backends))

    def _open(
        self,
        module: IRModule,
        request: CompileRequest | None,
        progress: Progress | None = None,
        on_pass: OnPass | None = None,
    ) -> Compilation:
        return new_compilation(module, request or self.request, self.backends, Observers(progress, on_pass))
