"""The calls of users: a compiler with default registries, and a request from keywords."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from byoc_core.artifact import Executable
from byoc_core.driver.compiler import Compiler
from byoc_core.driver.explanation import Explanation
from byoc_core.driver.observers import OnPass, Progress
from byoc_core.driver.request import CompileRequest, RequestFields, gather_request
from byoc_core.driver.signature import shows_request_fields
from byoc_core.ir import IRModule

__all__ = ["build", "carve_regions", "explain", "pass_names"]


@shows_request_fields
def build(
    module: IRModule,
    backends: Sequence[str | object] = (),
    *,
    request: CompileRequest | None = None,
    progress: Progress | None = None,
    on_pass: OnPass | None = None,
    **fields: Unpack[RequestFields],
) -> Executable:
    """Compile a module.

    Args:
        module: what to compile; parts of it may be annotated or compiled already.
        backends: names or plugin objects, from the first to be asked to the last. What none of them takes runs on the
            host.
        request: what is asked; ``backends`` and ``fields`` stand in the place of its values.
        progress: called with the name of each stage as it begins.
        on_pass: called after each pass (see :func:`pass_names`) with its name, the seconds it took and the module it
            gave.
        fields: those of :class:`byoc_core.CompileRequest`, which says what they mean.

    Raises:
        BackendNotFoundError: a backend is not installed.
        OptionsError: an option is unknown or has a bad value, a constraint names what is not there or contradicts
            another, a size is not of the model, or ``module`` is no module.
        PartitionError: ``fallback="error"`` and ops stay on the host that no constraint keeps there; lists them with
            the reasons. Or the backend that an op is forced to does not take it. Or a policy did anything but claim.
        PassError: a pass of ``passes`` raised, or broke a law of the IR.
        VerifyError: the module breaks an IR law.
        CodegenError: a function annotated by hand cannot be compiled.
        HookError: ``strict`` or ``fallback="error"``, and a hook of a backend raised.
    """
    return Compiler().build(module, gather_request(request, backends, fields), progress=progress, on_pass=on_pass)


@shows_request_fields
def explain(
    module: IRModule,
    backends: Sequence[str | object] = (),
    *,
    request: CompileRequest | None = None,
    progress: Progress | None = None,
    kernels: bool = False,
    **fields: Unpack[RequestFields],
) -> Explanation:
    """Tell what :func:`build` would do, and why: it does the same, codegen included, but for lowering.

    Args:
        module: what to explain.
        backends: names or plugin objects, from the first to be asked to the last.
        request: what is asked; ``backends`` and ``fields`` stand in the place of its values.
        progress: called with the name of each stage as it begins.
        kernels: have the backends tell the kernels that they generate; see :meth:`Explanation.report_kernels`.
        fields: those of :class:`byoc_core.CompileRequest`, which says what they mean. That ops stay on the host is no
            error here.

    Raises:
        BackendNotFoundError: a backend is not installed.
        OptionsError: an option is unknown or has a bad value, a constraint names what is not there or contradicts
            another, or ``module`` is no module.
        PartitionError: the backend that an op is forced to does not take it, or a policy did anything but claim.
        PassError: a pass of ``passes`` raised, or broke a law of the IR.
        VerifyError: the module breaks an IR law.
        CodegenError: a function annotated by hand cannot be compiled.
        HookError: ``strict``, and a hook of a backend raised.
    """
    return Compiler().explain(module, gather_request(request, backends, fields), progress=progress, kernels=kernels)


@shows_request_fields
def carve_regions(
    module: IRModule,
    backends: Sequence[str | object],
    *,
    request: CompileRequest | None = None,
    progress: Progress | None = None,
    **fields: Unpack[RequestFields],
) -> IRModule:
    """Return the module as :func:`build` has it just before it compiles for these backends; see `Compiler.carve`."""
    return Compiler().carve(module, gather_request(request, backends, fields), progress=progress)


def pass_names(backends: Sequence[str | object] = (), request: CompileRequest | None = None) -> tuple[str, ...]:
    """Return the names of the passes that :func:`build` runs for these backends, in order.

    Raises:
        BackendNotFoundError: a backend is not installed.
    """
    return Compiler().pass_names(gather_request(request, backends))
