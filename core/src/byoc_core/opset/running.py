"""Calls of the kernels of ops, of the core and of plugins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from byoc_core.errors import ExecutionError
from byoc_core.kernels.plugin_kernel import PluginKernel
from byoc_core.kernels.precision import NDArray
from byoc_core.opset.families import find_op
from byoc_core.opset.opdef import OpDef

__all__ = ["run_kernel"]


def run_kernel(op: OpDef, inputs: Sequence[NDArray], attrs: Mapping[str, Any]) -> tuple[NDArray, ...]:
    """Return the results of an op's reference kernel.

    Args:
        op: the op.
        inputs: an array per operand.
        attrs: normalised attributes; sizes are integers.

    Raises:
        ExecutionError: the op has no kernel, or the kernel of a plugin's op raised or returned objects other than
            arrays.
    """
    if op.kernel is None:
        raise ExecutionError(f"op `{op.name}`", "has no reference kernel")
    kernel = op.kernel if find_op(op.name) is op else PluginKernel(op.name, op.kernel)
    outputs = kernel(*inputs, **attrs)
    return outputs if isinstance(outputs, tuple) else (outputs,)
