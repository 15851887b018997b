"""The kernels that backends generate for their regions, as data for the report of an explanation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from byoc_core.backend import BackendHandle
from byoc_core.driver.compile import Compiled
from byoc_core.driver.job import Job
from byoc_core.errors import ByocError
from byoc_core.ir import Function, IRModule
from byoc_core.ir.printer import EXTERNAL_FUNCTIONS

__all__ = ["report_kernels"]


def report_kernels(compiled: Compiled) -> list[dict[str, Any]]:
    """Return an item for each backend that compiled something: its ``kernels``, or a ``text`` why there are none.

    Raises:
        HookError: a hook raised, and the job is strict.
    """
    by_backend: dict[str, list[Function]] = {}
    for function in compiled.module.attrs.get(EXTERNAL_FUNCTIONS, {}).values():
        by_backend.setdefault(str(function.attrs["Codegen"]), []).append(function)
    handles = [handle for handle in compiled.job.backends if handle.name in by_backend]
    return [_report(compiled.job, handle, by_backend[handle.name], compiled.module) for handle in handles]


def _report(job: Job, handle: BackendHandle, functions: Sequence[Function], module: IRModule) -> dict[str, Any]:
    item: dict[str, Any] = {"backend": handle.name, "kernels": []}
    if not handle.implements("byoc_generated_kernels"):
        return {**item, "text": "tells of no generated kernels"}
    try:
        kernels = handle.generated_kernels(functions, handle.context(module, job.options(handle)))
    except ByocError as error:
        if job.request.is_strict:
            raise
        return {**item, "text": str(error)}
    return {**item, "kernels": [kernel.to_data() for kernel in kernels]}
