"""The ops brought by backends, in registries and modules."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from byoc_core.backend.handle import BackendHandle
from byoc_core.errors import IRError
from byoc_core.ir import IRModule, OpDef, OpRegistry
from byoc_core.ir.op_registry import default_ops

__all__ = ["ops_with", "with_own_ops"]


def ops_with(backends: Iterable[BackendHandle]) -> OpRegistry:
    """Return the registry of the core's ops and the backends' own ops, for parsing modules with these ops.

    Raises:
        HookError: ``byoc_ops`` of a backend raised, or returned anything but ops.
        IRError: an op has the name of another.
    """
    return default_ops().extended(op for backend in backends for op in backend.ops())


def with_own_ops(module: IRModule, backends: Iterable[BackendHandle]) -> IRModule:
    """Return the module with the core's ops and the backends' own ops added to the registry.

    Names in the module's registry keep the meaning: a backend's op of an equal name is left out. The same module is
    returned if nothing is new.

    Raises:
        HookError: ``byoc_ops`` of a backend raised, or returned anything but ops.
        IRError: the registry has another op under the name of a core op, or two backends bring different ops of one
            name unknown to the registry.
    """
    ops: dict[str, OpDef] = dict(module.ops)
    if module.ops is not default_ops():
        for name, op in default_ops().items():
            if ops.setdefault(name, op) is not op:
                hint = "Rename the op: rules for the core's op would rewrite the op of the module."
                raise IRError(f"op `{name}`", "is in the module's registry, but differs from the core's op", hint=hint)
    bringers: dict[str, str] = {}
    for backend in backends:
        for op in backend.ops():
            if ops.setdefault(op.name, op) is op:
                bringers.setdefault(op.name, backend.name)
            elif op.name in bringers:
                names = f"backends `{bringers[op.name]}` and `{backend.name}`"
                hint = "Build the module with a registry holding the intended op."
                raise IRError(f"op `{op.name}`", f"has different definitions in {names}", hint=hint)
    return module if len(ops) == len(module.ops) else replace(module, ops=OpRegistry(ops.values()))
