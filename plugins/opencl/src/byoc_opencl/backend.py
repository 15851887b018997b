"""The compile half: the supported ops, and the translation of regions into kernels and launches."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.backend.hooks import BackendInfo, CodegenResult, Estimate, Rejection, Status, Support, hookimpl
from byoc_core.dims import evaluate
from byoc_core.ir import Binding, Function

from byoc_opencl.codegen import generate
from byoc_opencl.drivers import status
from byoc_opencl.module import OpenClModule
from byoc_opencl.support import function_rejections, reject_op

__all__ = ["byoc_backend_info", "byoc_codegen", "byoc_compile_status", "byoc_estimate", "byoc_supports"]

_FLOPS_PER_SECOND, _BYTES_PER_SECOND = 2e9, 4e9
_LAUNCH_SECONDS, _CALL_SECONDS, _COPIED_BYTES_PER_SECOND = 20e-6, 200e-6, 2e9
"""The processor by PoCL, to the order of magnitude; a GPU is faster, but its memory is farther away."""


@hookimpl
def byoc_backend_info() -> BackendInfo:
    """Return the capabilities of the backend: constants come as parameters, so each is copied once to a device."""
    return BackendInfo(name="opencl", dynamic_shapes=True, native=True, constants="lifted")


@hookimpl
def byoc_compile_status() -> Status:
    """Return whether there is a device: compiled regions would not run elsewhere on this machine."""
    return status()


@hookimpl
def byoc_supports(binding: Binding) -> Support | Rejection:
    """Return whether there is a kernel for an op, its dtypes and sizes."""
    return reject_op(binding) or Support()


@hookimpl
def byoc_estimate(function: Function) -> Estimate:
    """Return the time of an op by a thread for each element, and of the copies to the device and back."""
    seconds = 0.0
    for binding in function.walk():
        flops, nbytes = (evaluate(count(binding.context()), {}) for count in (binding.op.flops, binding.op.nbytes))
        seconds += _LAUNCH_SECONDS + flops / _FLOPS_PER_SECOND + nbytes / _BYTES_PER_SECOND
    return Estimate(seconds, _CALL_SECONDS, _COPIED_BYTES_PER_SECOND, peer_bytes_per_second=_COPIED_BYTES_PER_SECOND)


@hookimpl
def byoc_codegen(functions: Sequence[Function]) -> CodegenResult:
    """Return a module of the supported functions, and a rejection for each of the other functions."""
    accepted, rejections = [], {}
    for function in functions:
        rejection = next(function_rejections(function), None)
        if rejection is None:
            accepted.append(function)
        else:
            rejections[function.name] = rejection
    return CodegenResult(OpenClModule(generate(accepted)) if accepted else None, rejections=rejections)
