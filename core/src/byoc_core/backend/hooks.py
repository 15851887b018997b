# mypy: disable-error-code=empty-body
# (a specification is never called: it consists of its signature and its text)
"""The hooks of the compile side, implemented by plugins of the group ``byoc.backends``.

A backend is a module (or object) with functions marked by :data:`hookimpl`; the entry point's name is the backend's
name. A function may leave out unneeded arguments.

"Not supported" is an answer, given as a :class:`Rejection`. Every hook may raise an error of :mod:`byoc_core.errors`.
The error reaches the caller unchanged, with a note naming the plugin and the hook. Any other exception becomes a
``HookError`` with plugin, distribution, version and hook. Results of hooks are checked; a wrong type is a ``HookError``
too.

``build`` and ``explain`` treat an error of a hook as a refusal: other backends and the host take over, a warning is
given, and the report keeps the traceback. The caller gets the error with ``strict=True`` or ``fallback="error"``, and
from direct calls of ``partition`` or ``RunCodegen``.

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

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from byoc_core.backend.axis_orders import AxisOrders
from byoc_core.backend.info import BackendInfo, CodegenResult, CompileContext, Estimate, Rejection, Status, Support
from byoc_core.backend.kernel_report import KernelReport, SharedLoop
from byoc_core.backend.lowering import CValue, LoweringBuilder
from byoc_core.plugin.markers import hookimpl, hookspec

if TYPE_CHECKING:
    from byoc_core.ir.module import Binding, Function, IRModule
    from byoc_core.opset.opdef import OpDef
    from byoc_core.pattern import CompositePattern

__all__ = [
    "AxisOrders",
    "BackendInfo",
    "CValue",
    "CodegenResult",
    "CompileContext",
    "Estimate",
    "KernelReport",
    "LoweringBuilder",
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
    "byoc_layouts",
    "byoc_lower",
    "byoc_ops",
    "byoc_partition",
    "byoc_patterns",
    "byoc_prepare",
    "byoc_schedules",
    "byoc_supports",
    "hookimpl",
]


@hookspec(since="0.1", required=True)
def byoc_backend_info() -> BackendInfo:
    """Return the backend's name and capabilities. Required.

    Called by: the registry of backends.
    When: the backend is first asked for, by name or as a plugin object.
    How often: once per process for an installed backend; for an object, with each use as a backend.
    Result: kept. The info decides about the other hooks to call, the form of constants, and the options.
    If it raises: an installed backend is quarantined with the reason, also after a wrong type or a name other than the
        entry point's. For a plugin object the caller gets the error.

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
    """Return whether the backend can compile on this machine. Optional; the default is yes.

    Called by: ``build``, ``explain`` and ``debug_model``; ``RunCodegen``; the lint; ``byoc backends`` and
        ``byoc doctor``; the command line, to choose backends if the user names none.
    When: before the backend is asked to prepare, to claim or to compile.
    How often: a few times per compilation. The hook should be quick and must have no effect.
    Result: a no is shown with reason and remedy. ``build`` warns, and the backend takes nothing; ``RunCodegen`` raises
        a ``CodegenError`` for a function annotated for the backend.
    If it raises: the backend cannot compile, with the failure as the reason, also shown by ``byoc backends`` and
        ``byoc doctor``.

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
    """Rewrite the module for this backend before partition. Optional.

    Called by: ``build``, ``explain`` and ``debug_model``, for each listed backend able to compile.
    When: after the core's own passes and before partition, in backend order.
    How often: once per compilation.
    Result: replaces the module for all backends, so the meaning must not change; the verifier runs afterwards.
    If it raises: the module stays unchanged, and the backend takes nothing. The same holds if the verifier refuses the
        result.

    Example::

        from byoc_core.backend.hooks import hookimpl
        from byoc_core.transform import FoldConstants


        @hookimpl
        def byoc_prepare(module):
            return FoldConstants()(module)
    """


@hookspec(since="0.1")
def byoc_patterns() -> Sequence[CompositePattern]:
    """Return the groups of ops computed by the backend as a unit. Optional.

    Called by: policies of partition; the report's explanation of near misses; the lint.
    When: ops are claimed, before the backend is asked about single ops.
    How often: a few times per partition; patterns are best built once and kept.
    Result: each match becomes one ``composite`` binding with the pattern's name.
        :attr:`byoc_core.partitioning.claiming.selection.Candidate.rank` decides between overlapping matches. A pattern
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
    """Return whether the backend can compile a single op. Optional; by default, the backend takes only patterns.

    Called by: policies of partition; ``build``, for the ops of a region refused by another backend's codegen;
        ``RunCodegen``, to name the op to blame for a refused function; the lint.
    When: ops are claimed, for ops not taken by a pattern or an earlier backend; by the policy ``ByCost`` for all ops.
    How often: once per op and partition; again if regions turn out too small for the user's limits. ``ByCost`` asks
        once about all ops differing in the names of values only. The answer must depend on the arguments only, and not
        on these names or other ops of the module.
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
    """Claim ops by the backend's own algorithm, in place of patterns and single-op rules. Optional.

    Called by: policies of partition, instead of ``byoc_patterns`` and ``byoc_supports``.
    When: the backend's turn to claim; the module carries the claims of earlier backends.
    How often: once per partition; several times by the policy ``ByCost``, and if regions turn out too small for the
        user's limits.
    Result: the hook sets ``codegen`` to the backend's name on bindings, or puts several ops into one claimed
        ``composite`` named ``<backend>.<what>``. Nothing else changes: names and order of ops and existing claims stay;
        calls, control flow and impure ops are not claimed (but ops in bodies may be). The core verifies this. Claims on
        ops turned away by the core or the user's constraints are dropped afterwards, a composite with any such op as a
        whole. Regions are built from the claims later, so convexity does not matter here. ``byoc_supports``, if
        implemented too, is asked for the ops of a region refused by another backend's codegen.
    If it raises: the backend takes nothing. The same holds if the hook does anything but claim.

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
    """Return the cost of running a function on this backend. Optional; without it, and for ``None``, the core guesses.

    Called by: the policy ``ByCost``, for functions of a single op or a single composite acceptable to the backend.
    When: places are weighed. Symbolic sizes have been replaced by the user's expected sizes. The
        attributes of the function name the neighbours of the op or composite in the model, each if the value between
        both has a single reader: ``maker`` is the op with the first operand as result, and ``reader`` is the op reading
        the first result. A backend computes an activation behind a convolution for free, say.
    How often: once per partition for ops differing only in names and in the elements of constants, and with equal
        neighbours. The answer must not depend on other facts. Never for a backend with figures by the user.
    Result: the seconds are compared with the estimates of other backends and the host, and should be measured, if
        roughly. ``byoc_core.authoring.CostTable`` estimates from a table of measurements. A negative or non-finite
        figure is a ``HookError``.
    If it raises: the backend does not take the ops of the function.

    Example::

        from byoc_core.backend.hooks import Estimate, hookimpl


        @hookimpl
        def byoc_estimate(function):
            flops = sum(binding.op.flops(binding.context()) for binding in function.walk())
            return Estimate(seconds=flops / 8e12, call_seconds=20e-6, bytes_per_second=8e9)
    """


@hookspec(since="0.2")
def byoc_layouts(function: Function, context: CompileContext) -> Sequence[AxisOrders] | None:
    """Return the orders of axes in which an op reads and writes without a conversion. Optional.

    Called by: the pass ``PlanLayouts``, as part of ``build``, ``explain`` and ``debug_model``; the policy ``ByCost``.
    When: places are weighed, and after partition, for functions of a single op claimed by the backend. Composites are
        asked op by op. Symbolic sizes may occur.
    How often: once per pass for ops differing only in names and in the elements of constants.
    Result: alternatives, best first. A single alternative states the only fast order, such as channels last for a
        convolution. Several alternatives state that the op computes in any of these orders, with equal orders of
        operands and results. For ``None``, an op independent of the order of axes, such as an addition or ``concat``,
        is expected to compute in any order; any other op reads and writes row-major values. Without the hook all values
        of the backend's regions are row-major. A value crossing the border of a region in another order is made by a
        ``permute_dims`` at the end of the region, and read by the inverse at the beginning of another region; the
        backend should compile both to nothing. A wrong number of orders, or an order other than a permutation of the
        axes, is a ``HookError``.
    If it raises: the op counts as an op without a statement.

    Example::

        from byoc_core.backend.hooks import AxisOrders, hookimpl


        @hookimpl
        def byoc_layouts(function):
            (binding,) = function.bindings
            if binding.op.name != "nn.conv2d" or binding.attrs["data_layout"] != "NCHW":
                return None
            channels_last = (0, 2, 3, 1)
            return [AxisOrders((channels_last, None), (channels_last,))]
    """


@hookspec(since="0.2")
def byoc_schedules(function: Function, context: CompileContext) -> Mapping[str, Sequence[str]]:
    """Return the names of other schedules of ops, beside the backend's own choice. Optional; the default is none.

    Called by: ``tune``, for the backend's regions in the best placement.
    When: the best placement is known. Symbolic sizes stay symbolic.
    How often: once per search and region.
    Result: by the name of a result of an op in the function, short, stable texts such as ``tile rows=6 columns=2``, the
        most promising first. Ops with equal names, attributes and types share a choice. A kernel of several ops is
        named by any of these ops. A chosen name arrives in ``byoc_codegen`` as ``Binding.schedule`` of the op, and may
        come from a lock written elsewhere: the backend ignores unknown and unfit names, with a line in the log
        ``byoc_core``. A schedule changes speed only; results stay within the declared tolerance.
    If it raises: the ops of the region keep the backend's own choice.

    Example::

        from byoc_core.backend.hooks import hookimpl


        @hookimpl
        def byoc_schedules(function):
            products = [binding for binding in function.walk() if binding.op.name == "matmul"]
            return {binding.result.name: ["tile=8", "tile=16"] for binding in products}
    """


@hookspec(since="0.2")
def byoc_after_partition(module: IRModule, context: CompileContext) -> IRModule:
    """Rewrite the backend's own regions between partition and codegen. Optional.

    Called by: ``build``, ``explain`` and ``debug_model``, for each listed backend able to compile.
    When: after partition and before codegen, in backend order; before the user's own passes for this point. Each region
        claimed by a backend is a function annotated with ``Codegen`` and ``global_symbol``. Unclaimed ops stand in no
        region yet. Symbolic sizes may occur, for a backend of static shapes too.
    How often: once per compilation. Never in a direct call of ``RunCodegen``, nor for a region refused by another
        backend's codegen, so ``byoc_codegen`` must not rely on this hook.
    Result: replaces the module. Functions annotated for this backend may get other bodies of equal meaning. Parameters,
        results and annotations of these functions stay, and so does everything else. Unchanged functions are returned
        as the same objects. This and the verifier's laws are checked. The report counts the new ops.
    If it raises: the module stays unchanged, and the backend gets no more regions. The same holds if the result breaks
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


@hookspec(since="0.1", required=True, alternative="byoc_lower")
def byoc_codegen(functions: Sequence[Function], context: CompileContext) -> CodegenResult:
    """Compile every function annotated for this backend. Required. A backend with ``byoc_lower`` may do without.

    Called by: ``RunCodegen``, as part of ``build``, ``explain`` and ``debug_model``; the lint with ``--compile``.
    When: after partition, with all functions annotated with the backend's name as ``Codegen``, in module order, but for
        functions lowered or rejected by ``byoc_lower``. Each function has a ``global_symbol`` and consists of single
        ops and ``composite`` bindings.
    How often: once per module; once more for regions refused by another backend's codegen; more often after an
        exception.
    Result: for every function, the resulting module holds a function of its symbol, or the result holds a
        ``Rejection``. After a rejection ``build`` offers the region to the next backend; ``RunCodegen`` by itself
        raises. Equal functions should give equal modules.
    If it raises: the core calls again with fewer functions to find the guilty functions, and treats each as refused by
        a ``Rejection``.

    Example::

        from byoc_core.authoring import GraphCodegen
        from byoc_core.backend.hooks import hookimpl


        @hookimpl
        def byoc_codegen(functions, context):
            return GraphCodegen().compile(functions, context)
    """


@hookspec(since="0.2")
def byoc_lower(function: Function, builder: LoweringBuilder, context: CompileContext) -> Rejection | None:
    """Turn a function annotated for this backend into extern calls over buffers planned by the core. Optional.

    The alternative to ``byoc_codegen``: no module and no runtime of the backend, but C functions of a library, called
    in order. The core plans all intermediate buffers together with the other memory of the program, prints the calls as
    C, and links the library. Artifacts, shared libraries and exported C hold the calls like any generated C.

    Called by: ``RunCodegen``, as part of ``build``, ``explain`` and ``debug_model``; the lint with ``--compile``.
    When: after partition, before ``byoc_codegen``.
    How often: once for each function annotated with the backend's name as ``Codegen``; once more for regions refused by
        another backend's codegen. For a backend without ``dynamic_shapes``, once for each set of sizes.
    Result: the statements added to ``builder``, with ``None``; or a ``Rejection``, treated like a rejection by
        ``byoc_codegen``. ``None`` without any statement leaves the function to ``byoc_codegen``; statements need an
        answer of ``None``. The core checks that every part lies inside its buffer, every element is written before a
        read, outputs are written completely, and changed parts overlap no other argument. The C is compiled and linked
        at once, so a missing symbol is an error of the build.
    If it raises: the function is treated as refused by a ``Rejection``. The same holds for statements against the laws,
        for undefined symbols and for C refused by the compiler.

    Example::

        from byoc_core.backend.hooks import hookimpl


        SOURCE = (
            "static void mynpu_add(const float *x, const float *y, float *out, int64_t size) {"
            " for (int64_t i = 0; i < size; ++i) out[i] = x[i] + y[i]; }"
        )


        @hookimpl
        def byoc_lower(function, builder):
            builder.add_source(SOURCE)  # or `builder.link(libraries=["mynpu"])`
            for binding in function.bindings:
                inputs = [builder.buffer(operand) for operand in binding.operands]
                output = builder.buffer(binding.result)
                builder.call_extern(f"mynpu_{binding.op.name}", *inputs, output.written(), output.size)
    """


@hookspec(since="0.2")
def byoc_after_codegen(module: IRModule, context: CompileContext) -> IRModule:
    """Replace the backend's compiled modules after codegen. Optional.

    Called by: ``build`` and ``explain``, for each listed backend able to compile.
    When: after the codegen of all backends and before lowering, in backend order; before the user's own passes for this
        point. Regions are calls of external functions; the module attribute ``external_mods`` holds the compiled
        modules.
    How often: once per compilation; never in a direct call of ``RunCodegen``.
    Result: replaces the module. Each entry of ``external_mods`` with functions of this backend only may be replaced by
        another module with functions of the same names and meaning. Everything else must stay unchanged. The core
        checks this.
    If it raises: the module stays unchanged. The same holds if the result breaks the law.

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
    """Return ops of the backend's own domain. Optional.

    Called by: ``byoc_core.backends.ops(names)``, for building or parsing modules with these ops; ``build`` and
        ``partition``, for passes to find these ops by name; the lint.
    When: the ops of chosen backends are asked for: ``default_ops().extended(byoc_core.backends.ops(["mynpu"]))``.
    How often: once, at the first request.
    Result: ops in addition to the core's. Names must be new and should begin with the backend's name. The host runs an
        op with a kernel. A model with the op on the host can be saved if a runtime of the package brings the kernel by
        ``byoc_kernels``. Passes, judges and the conformance kit ask the op for its facts: rounding, cases, FLOPs,
        views. An unstated fact has a safe default, and the lint lists the fact. Both halves of a package may read one
        file of definitions: ``byoc_core.opset`` belongs to the run side.
    If it raises: the backend takes nothing. The caller of ``byoc_core.backends.ops`` gets the error.

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
    """Return the kernels generated by the backend for functions, for people to read. Optional.

    Called by: ``explain`` with ``kernels=True``, as ``byoc explain --kernels`` runs it.
    When: after codegen, with all functions compiled by the backend, in the form passed to ``byoc_codegen``. The backend
        generates the kernels again and need not compile them: neither a build nor an artifact pays for reports.
    How often: once per explanation; never if the backend compiled nothing.
    Result: shown to the user, in the returned order. Every kernel run by the modules occurs once. A backend without
        generated kernels leaves the hook out.
    If it raises: the report shows the error in place of the kernels.

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
