"""The user's functions for compilation: a compiler with default registries, and a request from keywords."""

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
    backends: Sequence[str | object] | None = None,
    *,
    request: CompileRequest | None = None,
    progress: Progress | None = None,
    on_pass: OnPass | None = None,
    **fields: Unpack[RequestFields],
) -> Executable:
    """Compile a module.

    Args:
        module: the module to compile; parts may be annotated or compiled already.
        backends: names or plugin objects; the first is asked first. Ops taken by none of the backends run on the host,
            all ops for an empty list. By default ``"auto"``: all installed backends able to compile here, placed by
            expected time.
        request: the choices for the compilation; ``backends`` and ``fields`` override its values.
        progress: called with the name of each stage at the beginning of the stage.
        on_pass: called after each pass (see :func:`pass_names`) with its name, the elapsed seconds and the resulting
            module.
        fields: the fields of :class:`byoc_core.CompileRequest`, explained there.

    Raises:
        BackendNotFoundError: a backend is not installed.
        OptionsError: an option is unknown or has a bad value, a constraint names something missing or contradicts
            another, a size is not of the model, or ``module`` is no module.
        PartitionError: ``fallback="error"`` and ops stay on the host without a constraint; lists these ops with the
            reasons. Or a backend refuses an op forced to it. Or a policy did anything but claim.
        PassError: a pass of ``passes`` raised, or broke a law of the IR.
        VerifyError: the module breaks an IR law.
        CodegenError: a function annotated by hand cannot be compiled.
        HookError: ``strict`` or ``fallback="error"``, and a hook of a backend raised.
    """
    return Compiler().build(module, gather_request(request, backends, fields), progress=progress, on_pass=on_pass)


@shows_request_fields
def explain(
    module: IRModule,
    backends: Sequence[str | object] | None = None,
    *,
    request: CompileRequest | None = None,
    progress: Progress | None = None,
    kernels: bool = False,
    **fields: Unpack[RequestFields],
) -> Explanation:
    """Explain the outcome of :func:`build`, with reasons; run the same steps, codegen included.

    The program is made only if a device computes parts of the module: its copies between memory domains are explained.

    Args:
        module: the module to explain.
        backends: names or plugin objects; the first is asked first. By default ``"auto"``, as for :func:`build`.
        request: the choices for the compilation; ``backends`` and ``fields`` override its values.
        progress: called with the name of each stage at the beginning of the stage.
        kernels: whether the backends report their generated kernels; see :meth:`Explanation.report_kernels`.
        fields: the fields of :class:`byoc_core.CompileRequest`, explained there. Ops staying on the host are no error
            here.

    Raises:
        BackendNotFoundError: a backend is not installed.
        OptionsError: an option is unknown or has a bad value, a constraint names something missing or contradicts
            another, or ``module`` is no module.
        PartitionError: a backend refuses an op forced to it, or a policy did anything but claim.
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
    """Return the module in the state of :func:`build` just before codegen for these backends; see `Compiler.carve`."""
    return Compiler().carve(module, gather_request(request, backends, fields), progress=progress)


def pass_names(
    backends: Sequence[str | object] | None = None, request: CompileRequest | None = None
) -> tuple[str, ...]:
    """Return the names of the passes run by :func:`build` for these backends, in order.

    Raises:
        BackendNotFoundError: a backend is not installed.
    """
    return Compiler().pass_names(gather_request(request, backends))
