# mypy: disable-error-code=empty-body
# (a specification is never called: its signature and its text are all there is)
"""The hooks of the compile side: what a plugin of the group ``byoc.backends`` implements.

A backend is a module (or object) whose functions are marked with :data:`hookimpl`; the entry point's name is the
backend's name. A function may leave out arguments that it does not need.

"Not supported" is an answer, given as a :class:`Rejection`. Every hook may raise an error of :mod:`byoc_core.errors`,
which reaches the user as it is with a note that says whose hook raised it; any other exception becomes a ``HookError``
that names plugin, distribution, version and hook. What a hook returns is checked; a wrong type is a ``HookError`` too.

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
from byoc_core.plugin.markers import hookimpl, hookspec

if TYPE_CHECKING:
    from byoc_core.ir.module import Binding, Function, IRModule
    from byoc_core.ir.opdef import OpDef
    from byoc_core.pattern import CompositePattern

__all__ = [
    "BackendInfo",
    "CodegenResult",
    "CompileContext",
    "Estimate",
    "Rejection",
    "Status",
    "Support",
    "byoc_backend_info",
    "byoc_codegen",
    "byoc_compile_status",
    "byoc_estimate",
    "byoc_ops",
    "byoc_partition",
    "byoc_patterns",
    "byoc_prepare",
    "byoc_supports",
    "hookimpl",
]


@hookspec(firstresult=True)
def byoc_backend_info() -> BackendInfo:
    """Says who the backend is and what it can do. Required.

    Called by the registry once per process, when the backend is first asked for; the answer is kept.
    If it raises, or gives something else, the backend is quarantined.

    Example::

        class Options(pydantic.BaseModel):
            opt_level: int = pydantic.Field(2, ge=0, le=3, description="how hard to optimise")

        @hookimpl
        def byoc_backend_info():
            return BackendInfo(name="mynpu", options=Options, constants="lifted")
    """


@hookspec(firstresult=True)
def byoc_compile_status(context: CompileContext) -> Status:
    """Says whether the backend can compile on this machine. Optional: without it, it can.

    Called by ``byoc backends`` and ``byoc doctor``, by the command line to find the backends to use where the user
    names none, and by ``RunCodegen`` once per module before it hands functions over: there a no is an error with the
    reason and the remedy. It should be quick and must have no effect. If it raises, compilation stops.

    Example::

        @hookimpl
        def byoc_compile_status():
            if shutil.which("npucc") is None:
                return Status(False, "npucc is not on PATH", "Install the NPU SDK: https://npu.example/sdk.")
            return Status(True)
    """


@hookspec(firstresult=True)
def byoc_prepare(module: IRModule, context: CompileContext) -> IRModule:
    """Rewrites the module as this backend likes it, before partition. Optional.

    Called by ``build()`` once per backend, in backend order. The result replaces the module for all backends, so it
    must mean the same; the verifier runs after it. If it raises, ``build()`` stops.

    Example::

        @hookimpl
        def byoc_prepare(module):
            return FoldConstants()(module)
    """


@hookspec(firstresult=True)
def byoc_patterns() -> Sequence[CompositePattern]:
    """Gives the groups of ops that the backend computes in one go. Optional.

    Called once per partition, by the policy ``ByCost`` several times. Each match becomes one ``composite`` binding that
    bears the pattern's name; which of several overlapping matches wins is decided by
    :attr:`byoc_core.partitioning.claiming.selection.Candidate.rank`. If it raises, the partition stops.

    Example::

        @hookimpl
        def byoc_patterns():
            conv = is_op("nn.conv2d")(wildcard(), wildcard())
            return [CompositePattern("mynpu.conv2d_relu", is_op("nn.relu")(conv))]
    """


@hookspec(firstresult=True)
def byoc_supports(binding: Binding, context: CompileContext) -> Support | Rejection:
    """Says whether the backend can compile one op by itself. Optional: without it, only patterns are taken.

    Called once per op and partition, for ops that no pattern and no backend before this one has taken (by the policy
    ``ByCost`` several times, and for all ops); again where regions turn out too small for the user's limits, and for
    the ops of a region that another backend's codegen has refused. A ``Rejection`` is shown by ``explain``. The answer
    must depend on the arguments only. If it raises, the partition stops.

    Example::

        @hookimpl
        def byoc_supports(binding):
            if binding.op.name not in KERNELS:
                return Rejection("op", f"there is no kernel for {binding.op.name}")
            if any(value.type.dtype != "float32" for value in binding.operands):
                return Rejection("dtype", "only float32 is supported")
            return Support()
    """


@hookspec(firstresult=True)
def byoc_partition(module: IRModule, context: CompileContext) -> IRModule:
    """Claims by an algorithm of the backend's own, in place of patterns and rules for single ops. Optional.

    Called once per partition for a backend that has it, instead of ``byoc_patterns`` and ``byoc_supports``, with what
    backends before it have claimed; by the policy ``ByCost`` several times, and again where regions turn out too small
    for the user's limits. It sets ``codegen`` to the backend's name on bindings, or puts several ops into one claimed
    ``composite`` named ``<backend>.<what>``, and changes nothing else: ops keep their names and order, claims stay that
    were there, calls and control flow are not claimed (but ops in bodies may be), nor is anything impure. The result is
    verified. Claims on ops that the core or the user's constraints turn away are dropped afterwards, a composite that
    holds one as a whole. Regions are made of the claims later, so that it need not care for convexity.
    ``byoc_supports``, where the backend has it too, is asked for the ops of a region that another backend's codegen has
    refused. If it raises, or does anything but claim, the partition stops.

    Example::

        @hookimpl
        def byoc_partition(module):
            def claim(function):
                is_mine = [b.codegen is None and b.op.name in KERNELS for b in function.bindings]
                mine = [replace(b, codegen="mynpu") if own else b for b, own in zip(function.bindings, is_mine)]
                return replace(function, bindings=tuple(mine))

            return module.with_functions({name: claim(function) for name, function in module.functions.items()})
    """


@hookspec(firstresult=True)
def byoc_estimate(function: Function, context: CompileContext) -> Estimate | None:
    """Says what running a function costs on this backend. Optional: without it, and for ``None``, the core guesses.

    Called by the policy ``ByCost`` for what the backend would take: functions of one op, or of one composite of its
    own. Ops that differ in names and in the elements of constants only are asked about once per partition, so the
    answer must not depend on these. Symbolic sizes have been replaced by the sizes that the user expects. The seconds
    are weighed against those of other backends and the host, so they should be measured, if roughly. If it raises, or a
    figure is negative or not finite, the partition stops.

    Example::

        @hookimpl
        def byoc_estimate(function):
            macs = sum(binding.op.flops(binding.cost_context()) for binding in function.walk()) / 2
            return Estimate(seconds=macs / 4e12, call_seconds=20e-6, bytes_per_second=8e9)
    """


@hookspec(firstresult=True)
def byoc_codegen(functions: Sequence[Function], context: CompileContext) -> CodegenResult:
    """Compiles every function that is annotated for this backend. Required.

    Called once per module by ``RunCodegen``, with all the functions whose ``Codegen`` attribute names the backend, in
    module order. Each has a ``global_symbol``, and its bindings are single ops and ``composite`` bindings. For every
    one there must be a function of that name in the resulting module, or a ``Rejection``: ``build()`` then offers
    the region to the next backend, and ``RunCodegen`` by itself raises.
    Equal functions should give equal modules. If it raises, compilation stops.

    Example::

        @hookimpl
        def byoc_codegen(functions, context):
            graphs = {function.attrs["global_symbol"]: translate(function) for function in functions}
            return CodegenResult(MyModule(graphs))
    """


@hookspec(firstresult=True)
def byoc_ops() -> Sequence[OpDef]:
    """Gives ops of the backend's own domain. Optional.

    Called when the ops of chosen backends are asked for, to build or parse modules with them:
    ``default_ops().extended(byoc_core.backends.ops(["mynpu"]))``. Names must be new and should begin with the
    backend's name. If it raises, the caller gets the error.

    Example::

        @hookimpl
        def byoc_ops():
            return [OpDef("mynpu.lookup", (OperandSpec("x"), OperandSpec("table")), infer=infer_lookup)]
    """
