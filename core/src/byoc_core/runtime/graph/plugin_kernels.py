"""Kernels from plugins: the runtime with the kernel of an op, and the kernels named in a graph document.

A runtime plugin returns the kernels of its package's ops from the hook ``byoc_kernels``. A graph document with such an
op names the runtime and the distribution. A process without the compile side can then load the document and find the
kernel again. The kernel of an op registered by a program (``byoc_core.register_op``) has the core's own runtime as
origin: every process loading the document registers the op first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from byoc_core.dims import shape_symbols
from byoc_core.dtypes import dtype_name
from byoc_core.errors import ArtifactError, CallError, ExecutionError, HookError, PluginError
from byoc_core.kernels.plugin_kernel import PluginKernel
from byoc_core.runtime.arguments import bind_symbols
from byoc_core.runtime.graph.document import GraphTensor, KernelOrigin
from byoc_core.runtime.module import NDArray, TensorSpec

__all__ = ["REGISTERED", "PluginKernel", "check_results", "core_kernel", "find_kernels", "find_origin", "kernel_of"]

REGISTERED = KernelOrigin("graph", "byoc-core")
"""The origin of kernels registered by the process: the core's own runtime."""


def core_kernel(op: str) -> Callable[..., Any] | None:
    """Return the kernel of the core's own op of this name, or ``None`` without such an op."""
    from byoc_core.opset.families import KERNELS  # imports the kernels, not needed by most processes

    return KERNELS.get(op)


def find_origin(op: str, kernel: Callable[..., Any] | None = None) -> KernelOrigin | None:
    """Return the runtime with the kernel of an op, or ``None`` if neither a runtime nor the process has the kernel.

    The runtime named by the text before the op's first dot comes first, then the other runtimes in order of name. A
    kernel registered by the process has the origin :data:`REGISTERED`, unless a runtime returns the same function: then
    an artifact needs no registration.

    Args:
        op: the name of the op.
        kernel: the kernel of the op in the module.

    Raises:
        HookError: the hook ``byoc_kernels`` of a runtime raised, or returned anything but kernels.

    Cost: opens runtimes until the kernel is found.
    """
    from byoc_core.runtime.registry import runtimes

    registry = runtimes()
    is_registered = kernel is not None and registry.registered_kernel(op) is kernel
    prefix = op.partition(".")[0]
    for type_key in sorted(registry.names(), key=lambda name: (name != prefix, name)):
        try:
            handle = registry.get(type_key)
        except HookError:
            raise
        except PluginError:
            continue  # quarantined; `byoc doctor` shows the reason
        if op in handle.kernels() and (not is_registered or handle.kernels()[op] is kernel):
            return KernelOrigin(type_key, handle.record.distribution)
    return REGISTERED if is_registered else None


def kernel_of(op: str, origin: KernelOrigin, where: str) -> PluginKernel:
    """Return the kernel of an op.

    Args:
        op: the name of the op.
        origin: the runtime of the kernel.
        where: the document in need of the kernel, for errors.

    Raises:
        RuntimeNotFoundError: the runtime is not installed; names the distribution to install.
        ArtifactError: the installed version of the runtime has no such kernel, or the process has not registered the
            kernel.
    """
    from byoc_core.runtime.registry import runtimes

    if origin.runtime == REGISTERED.runtime:
        registered = runtimes().registered_kernel(op)
        if registered is None:
            raise ArtifactError(
                where,
                f"needs a kernel of op `{op}`, registered by the program that saved the artifact",
                hint="Call `byoc_core.register_op(domain, op_type, op=...)` with the op before loading.",
            )
        return PluginKernel(op, registered)
    handle = runtimes().get(origin.runtime, source=where, distribution=origin.distribution)
    kernel = handle.kernels().get(op)
    if kernel is None:
        raise ArtifactError(
            where,
            f"needs a kernel of op `{op}` missing in runtime `{origin.runtime}`",
            got=f"{handle.record.distribution} {handle.record.version}",
            hint=f"pip install -U {handle.record.distribution}",
        )
    return PluginKernel(op, kernel)


def find_kernels(kernels: Mapping[str, KernelOrigin], where: str) -> dict[str, PluginKernel]:
    """Return the kernels named in a document, by op; see :func:`kernel_of`."""
    return {op: kernel_of(op, origin, where) for op, origin in kernels.items()}


def check_results(
    kernel: PluginKernel, op: str, operands: Iterable[GraphTensor], results: Sequence[GraphTensor]
) -> Callable[..., tuple[NDArray, ...]]:
    """Return the kernel with a check of results against the declared types in each call.

    Args:
        kernel: a plugin's kernel.
        op: the name of the op.
        operands: the declared types of the operands.
        results: the declared types of the results.
    """
    operand_specs = [
        TensorSpec(f"operand {index}", tensor.dtype, tensor.shape) for index, tensor in enumerate(operands)
    ]
    result_specs = [TensorSpec(f"result {index}", type_.dtype, type_.shape) for index, type_ in enumerate(results)]
    locations = [f"kernel of op `{op}`, {spec.name}" for spec in result_specs]
    is_symbolic = bool(shape_symbols(dim for spec in result_specs for dim in spec.shape))

    def call(*arrays: NDArray, **attrs: Any) -> tuple[NDArray, ...]:
        found = kernel(*arrays, **attrs)
        if len(found) != len(result_specs):
            where = f"kernel of op `{op}`"
            raise ExecutionError(
                where, "returned another number of results", got=len(found), expected=len(result_specs)
            )
        for location, spec, array in zip(locations, result_specs, found, strict=True):
            if array.dtype.kind == "O" or dtype_name(array.dtype) != spec.dtype or array.ndim != len(spec.shape):
                raise _misfit(location, spec, array)
        try:
            sizes = bind_symbols(operand_specs, arrays) if is_symbolic else {}
            bind_symbols(result_specs, found, locations, sizes=sizes)
        except CallError as error:
            raise ExecutionError(error.where, error.problem, got=error.got, expected=error.expected) from error
        return found

    return call


def _misfit(location: str, spec: TensorSpec, array: NDArray) -> ExecutionError:
    return ExecutionError(
        location,
        "is not of the declared type",
        got=f"{array.dtype}[{', '.join(map(str, array.shape))}]",
        expected=GraphTensor(spec.dtype, spec.shape),
    )
