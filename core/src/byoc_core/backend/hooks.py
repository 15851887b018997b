# mypy: disable-error-code=empty-body
# (a specification is never called: its signature and its text are all there is)
"""The hooks of the compile side: what a plugin of the group ``byoc.backends`` implements.

A backend is a module (or object) whose functions are marked with :data:`hookimpl`; the entry point's name is the
backend's name. A function may leave out arguments that it does not need.

"Not supported" is an answer, given as a :class:`Rejection`. Every hook may raise an error of :mod:`byoc_core.errors`,
which reaches the caller as it is with a note that says whose hook raised it; any other exception becomes a
``HookError`` that names plugin, distribution, version and hook. What a hook returns is checked; a wrong type is a
``HookError`` too.

To ``build`` and ``explain`` an error of a hook is a refusal: other backends and the host take what the hook was asked
about, a warning says so, and the report keeps the traceback. With ``strict=True`` or ``fallback="error"``, and where
``partition`` or ``RunCodegen`` is called by itself, the caller gets the error.

The smallest backend::

    from byoc_core.backend.hooks import BackendInfo, CodegenResult, Rejection, Support, hookimpl

    @hookimpl
    def byoc_backend_info():
        return BackendInfo(name="mynpu")

    @hookimpl
    def byoc_supports(binding):
        return Support() if binding.op.name == "add" else Rejection("op", f"no {binding.op.name} on this NPU")

    @hookimpl
    def byoc_codegen(functions, context):
        return CodegenResult(MyModule([translate(function, context) for function in functions]))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from byoc_core.backend.info import BackendInfo, CodegenResult, CompileContext, Estimate, Rejection, Status, Support
from byoc_core.backend.kernel_report import KernelReport, SharedLoop
from byoc_core.plugin.markers import hookimpl, hookspec

if TYPE_CHECKING:
    from byoc_core.ir.module import Binding, Function, IRModule
    from byoc_core.opset.opdef import OpDef
    from byoc_core.pattern import CompositePattern

__all__ = [
    "BackendInfo",
    "CodegenResult",
    "CompileContext",
    "Estimate",
    "KernelReport",
    "Rejection",
    "SharedLoop",
    "Status",
    "Support",
    "byoc_after_codegen",
    "byoc_after_partition",
    "byoc_backend_info",
    "byoc_codegen",
    "byoc_compile_status",
    "byoc_estimate",
    "byoc_generated_kernels",
    "byoc_ops",
    "byoc_partition",
    "byoc_patterns",
    "byoc_prepare",
    "byoc_supports",
    "hookimpl",
]


@hookspec(since="0.1", required=True)
def byoc_backend_info() -> BackendInfo:
    """Says who the backend is and what it can do. Required.

    Called by: the registry of backends.
    When: the backend is first asked for, by name or as a plugin object.
    How often: once per process for an installed backend; for an object, whenever it is named as a backend.
    Result: kept. It decides what else the backend is asked, how constants reach it, and which options it has.
    If it raises: an installed backend is quarantined with the reason, as it is if it gives something else or another
        name than its entry point's. For a plugin object the caller gets the error.

    Example::

        import pydantic
        from byoc_core.backend.hooks import BackendInfo, hookimpl


        class Options(pydantic.BaseModel):
            opt_level: int = pydantic.Field(2, ge=0, le=3, description="how hard to optimise")


        @hookimpl
        def byoc_backend_info():
            return BackendInfo(name="mynpu", options=Options, constants="lifted")
    """


@hookspec(since="0.1")
def byoc_compile_status(context: CompileContext) -> Status:
    """Says whether the backend can compile on this machine. Optional: without it, it can.

    Called by: ``build``, ``explain`` and ``debug_model``; ``RunCodegen``; the lint; ``byoc backends`` and
        ``byoc doctor``; the command line where it looks for backends to use because the user names none.
    When: before the backend is asked to prepare, to claim or to compile.
    How often: a few times per compilation, so it should be quick; it must have no effect.
    Result: a no with its reason and remedy is shown. ``build`` warns, and the backend takes nothing; ``RunCodegen``
        raises a ``CodegenError`` for a function that is annotated for the backend.
    If it raises: the backend cannot compile, with the failure as the reason. ``byoc backends`` and ``byoc doctor`` show
        it too.

    Example::

        import shutil

        from byoc_core.backend.hooks import Status, hookimpl


        @hookimpl
        def byoc_compile_status():
            if shutil.which("npucc") is None:
                return Status(False, "npucc is not on PATH", "Install the NPU SDK: https://npu.example/sdk.")
            return Status(True)
    """


@hookspec(since="0.1")
def byoc_prepare(module: IRModule, context: CompileContext) -> IRModule:
    """Rewrites the module as this backend likes it, before partition. Optional.

    Called by: ``build``, ``explain`` and ``debug_model``, for each backend that the user lists and that can compile.
    When: after the core's own passes and before partition, in backend order.
    How often: once per compilation.
    Result: it replaces the module for all backends, so it must mean the same; the verifier runs after it.
    If it raises: the module stays as it is, and the backend takes nothing. So it is if the verifier refuses the result.

    Example::

        from byoc_core.backend.hooks import hookimpl
        from byoc_core.transform import FoldConstants


        @hookimpl
        def byoc_prepare(module):
            return FoldConstants()(module)
    """


@hookspec(since="0.1")
def byoc_patterns() -> Sequence[CompositePattern]:
    """Gives the groups of ops that the backend computes in one go. Optional.

    Called by: policies of partition; the part of the report that explains near misses; the lint.
    When: ops are claimed, before the backend is asked about single ops.
    How often: a few times per partition, so patterns are best made once and kept.
    Result: each match becomes one ``composite`` binding that bears the pattern's name; which of several overlapping
        matches wins is decided by :attr:`byoc_core.partitioning.claiming.selection.Candidate.rank`. A pattern that is
        not named ``<backend>.<what>`` is a ``HookError``.
    If it raises: the backend takes nothing. If a condition or a check of a pattern raises, the pattern does not match
        at this op.

    Example::

        from byoc_core.backend.hooks import hookimpl
        from byoc_core.pattern import CompositePattern, is_op, wildcard


        @hookimpl
        def byoc_patterns():
            conv = is_op("nn.conv2d")(wildcard(), wildcard())
            return [CompositePattern("mynpu.conv2d_relu", is_op("nn.relu")(conv))]
    """


@hookspec(since="0.1")
def byoc_supports(binding: Binding, context: CompileContext) -> Support | Rejection:
    """Says whether the backend can compile one op by itself. Optional: without it, only patterns are taken.

    Called by: policies of partition; ``build``, for the ops of a region that another backend's codegen has refused;
        ``RunCodegen``, to name the op for which a function was refused; the lint.
    When: ops are claimed, for those that no pattern and no backend before this one has taken; by the policy ``ByCost``
        for all ops.
    How often: once per op and partition; by ``ByCost``, and where regions turn out too small for the user's limits,
        several times. The answer must depend on the arguments only.
    Result: ``Support`` claims the op; a ``Rejection`` is shown by ``explain``.
    If it raises: the backend does not take the op.

    Example::

        from byoc_core.backend.hooks import Rejection, Support, hookimpl


        @hookimpl
        def byoc_supports(binding):
            if binding.op.name not in {"add", "multiply"}:
                return Rejection("op", f"there is no kernel for {binding.op.name}")
            if any(value.type.dtype != "float32" for value in binding.operands):
                return Rejection("dtype", "only float32 is supported")
            return Support()
    """


@hookspec(since="0.1")
def byoc_partition(module: IRModule, context: CompileContext) -> IRModule:
    """Claims by an algorithm of the backend's own, in place of patterns and rules for single ops. Optional.

    Called by: policies of partition, instead of ``byoc_patterns`` and ``byoc_supports``.
    When: it is the backend's turn to claim; the module bears the claims of backends before it.
    How often: once per partition; by the policy ``ByCost``, and where regions turn out too small for the user's
        limits, several times.
    Result: it sets ``codegen`` to the backend's name on bindings, or puts several ops into one claimed ``composite``
        named ``<backend>.<what>``, and changes nothing else: ops keep their names and order, claims stay that were
        there, calls and control flow are not claimed (but ops in bodies may be), nor is anything impure. This is
        verified. Claims on ops that the core or the user's constraints turn away are dropped afterwards, a composite
        that holds one as a whole. Regions are made of the claims later, so it need not care for convexity.
        ``byoc_supports``, where the backend has it too, is asked for the ops of a region that another backend's codegen
        has refused.
    If it raises: the backend takes nothing. So it is if the hook does anything but claim.

    Example::

        from dataclasses import replace

        from byoc_core.backend.hooks import hookimpl


        @hookimpl
        def byoc_partition(module):
            def claim(binding):
                is_free = binding.codegen is None and binding.op.name in {"add", "multiply"}
                return replace(binding, codegen="mynpu") if is_free else binding

            def claim_in(function):
                return replace(function, bindings=tuple(map(claim, function.bindings)))

            return module.with_functions({name: claim_in(f) for name, f in module.functions.items()})
    """


@hookspec(since="0.1")
def byoc_estimate(function: Function, context: CompileContext) -> Estimate | None:
    """Says what running a function costs on this backend. Optional: without it, and for ``None``, the core guesses.

    Called by: the policy ``ByCost``, for what the backend would take: functions of one op, or of one composite.
    When: places are weighed. Symbolic sizes have been replaced by the sizes that the user expects.
    How often: once per partition for ops that differ in names and in the elements of constants only, so the answer must
        not depend on these.
    Result: the seconds are weighed against those of other backends and the host, so they should be measured, if
        roughly. A figure that is negative or not finite is a ``HookError``.
    If it raises: the backend does not take the ops of the function.

    Example::

        from byoc_core.backend.hooks import Estimate, hookimpl


        @hookimpl
        def byoc_estimate(function):
            flops = sum(binding.op.flops(binding.context()) for binding in function.walk())
            return Estimate(seconds=flops / 8e12, call_seconds=20e-6, bytes_per_second=8e9)
    """


@hookspec(since="0.2")
def byoc_after_partition(module: IRModule, context: CompileContext) -> IRModule:
    """Rewrites the backend's own regions, between partition and codegen. Optional.

    Called by: ``build``, ``explain`` and ``debug_model``, for each backend that the user lists and that can compile.
    When: after partition and before codegen, in backend order; before the user's own passes for this point. Each region
        that a backend claimed is a function annotated with ``Codegen`` and ``global_symbol``. What no backend claimed
        stands in no region yet. Symbolic sizes may occur, for a backend of static shapes too.
    How often: once per compilation. Not at all where ``RunCodegen`` is called by itself, and for a region that another
        backend's codegen has refused, so ``byoc_codegen`` must not count on it.
    Result: it replaces the module. The bodies of functions annotated for this backend may be other ones that mean the
        same; their parameters, results and annotations stay, and so does everything else. Functions that did not change
        are given back as they are. This and the verifier's laws are checked. The report counts the new ops.
    If it raises: the module stays as it is, and the backend is handed no more regions. So it is if the result breaks
        the law.

    Example::

        from dataclasses import replace

        from byoc_core.backend.hooks import hookimpl
        from byoc_core.transform import EliminateCommonSubexpressions


        @hookimpl
        def byoc_after_partition(module):
            own = {name: f for name, f in module.functions.items() if f.attrs.get("Codegen") == "mynpu"}
            bare = module.with_functions({name: replace(f, attrs={}) for name, f in own.items()})
            simpler = EliminateCommonSubexpressions()(bare)  # passes of the core leave annotated functions alone
            changed = {name: replace(f, attrs=own[name].attrs) for name, f in simpler.functions.items()}
            return module.with_functions({**module.functions, **changed})
    """


@hookspec(since="0.1", required=True)
def byoc_codegen(functions: Sequence[Function], context: CompileContext) -> CodegenResult:
    """Compiles every function that is annotated for this backend. Required.

    Called by: ``RunCodegen``, which ``build``, ``explain`` and ``debug_model`` run; the lint with ``--compile``.
    When: after partition, with all functions whose ``Codegen`` attribute names the backend, in module order. Each has a
        ``global_symbol``, and its bindings are single ops and ``composite`` bindings.
    How often: once per module; once more where regions are handed to it that another backend's codegen refused; and
        more often where it raises.
    Result: for every function there must be a function of its symbol in the resulting module, or a ``Rejection``:
        ``build`` then offers the region to the next backend, and ``RunCodegen`` by itself raises. Equal functions
        should give equal modules.
    If it raises: it is called again with fewer functions, to find those for which it raises; these are refused, as by a
        ``Rejection``.

    Example::

        from byoc_core.authoring import GraphCodegen
        from byoc_core.backend.hooks import hookimpl


        @hookimpl
        def byoc_codegen(functions, context):
            return GraphCodegen().compile(functions, context)
    """


@hookspec(since="0.2")
def byoc_after_codegen(module: IRModule, context: CompileContext) -> IRModule:
    """Replaces modules that the backend compiled, after codegen. Optional.

    Called by: ``build`` and ``explain``, for each backend that the user lists and that can compile.
    When: after the codegen of all backends and before lowering, in backend order; before the user's own passes for this
        point. Regions are calls of external functions; the module attribute ``external_mods`` has their modules.
    How often: once per compilation; not where ``RunCodegen`` is called by itself.
    Result: it replaces the module. Each entry of ``external_mods`` that holds nothing but functions of this backend may
        be another module with functions of the same names that compute the same. Everything else stays, which is
        checked.
    If it raises: the module stays as it is. So it is if the result breaks the law.

    Example::

        from byoc_core.backend.hooks import hookimpl


        @hookimpl
        def byoc_after_codegen(module):
            def link(external):
                return external.optimised() if external.type_key == "mynpu" else external

            return module.with_attrs(external_mods=tuple(map(link, module.attrs.get("external_mods", ()))))
    """


@hookspec(since="0.1")
def byoc_ops() -> Sequence[OpDef]:
    """Gives ops of the backend's own domain. Optional.

    Called by: ``byoc_core.backends.ops(names)``, for those who build or parse modules with these ops; ``build`` and
        ``partition``, whose passes find these ops by name; the lint.
    When: the ops of chosen backends are asked for: ``default_ops().extended(byoc_core.backends.ops(["mynpu"]))``.
    How often: once, when they are first asked for.
    Result: ops beside the core's. Their names must be new and should begin with the backend's name. The host runs an op
        with a kernel. A model with the op on the host can be saved if a runtime of the package brings the kernel by
        ``byoc_kernels``. Passes, judges and the conformance kit ask the op for its facts: rounding, cases, FLOPs,
        views. A fact that the op does not state has a safe default, and the lint lists the fact. Both halves of a
        package may read one file of definitions: ``byoc_core.opset`` belongs to the run side.
    If it raises: the backend takes nothing. Who asks ``byoc_core.backends.ops`` gets the error.

    Example::

        import numpy as np

        from byoc_core.backend.hooks import hookimpl
        from byoc_core.opset import Rounding, Rule, unary_op

        SWISH = unary_op(
            "mynpu.swish",
            "x * sigmoid(x)",
            lambda x: x / (1 + np.exp(-x)),
            flops=lambda context: 4 * context.elements(),
            rounding=Rounding(Rule.ULP, 10.0),
        )


        @hookimpl
        def byoc_ops():
            return [SWISH]
    """


@hookspec(since="0.2")
def byoc_generated_kernels(functions: Sequence[Function], context: CompileContext) -> Sequence[KernelReport]:
    """Tells the kernels that the backend generates for functions, for people to read. Optional.

    Called by: ``explain`` with ``kernels=True``, as ``byoc explain --kernels`` runs it.
    When: after codegen, with all functions that the backend compiled, as ``byoc_codegen`` got them. The backend makes
        the kernels again and need not compile them: neither a build nor an artifact pays for reports.
    How often: once per explanation; not where the backend compiled nothing.
    Result: shown to the user, in the order given. Every kernel that the modules run is there once. A backend that
        generates no kernels leaves the hook out.
    If it raises: the report shows the error in the place of the kernels.

    Example::

        from byoc_core.backend.hooks import KernelReport, hookimpl


        @hookimpl
        def byoc_generated_kernels(functions):
            return [
                KernelReport(
                    name=f"kernel_{number}",
                    function=function.attrs["global_symbol"],
                    source="; ".join(binding.op.name for binding in function.walk()),
                    ops=tuple(binding.op.name for binding in function.walk()),
                )
                for number, function in enumerate(functions)
            ]
    """
