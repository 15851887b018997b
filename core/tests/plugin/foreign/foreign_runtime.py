"""The run half of a third-party package. ``FOREIGN_ULPS`` is the error of the engine, in units in the last place."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.runtime.graph import GraphModule, KernelEngine, load_graph, save_graph
from byoc_core.runtime.hooks import LoadContext, RuntimeInfo, hookimpl
from byoc_core.runtime.module import RuntimeModule
from foreign_ops import OPS

NDArray = npt.NDArray[Any]


def _log1p(x: NDArray) -> NDArray:
    """Return the rounded logarithm, moved away from zero."""
    with np.errstate(all="ignore"):
        result = np.log1p(x.astype(np.float64)).astype(x.dtype)
        for _ in range(int(os.environ.get("FOREIGN_ULPS", "0"))):
            result = np.where(result == 0, result, np.nextafter(result, np.copysign(np.inf, result)))
    return np.asarray(result, x.dtype)


def _flatten2(x: NDArray) -> NDArray:
    return x.reshape(len(x), -1)


class Engine(KernelEngine):
    """A runner of the package's ops."""

    def __init__(self) -> None:
        super().__init__({"foreign.log1p": _log1p, "foreign.flatten2": _flatten2})

    @property
    def type_key(self) -> str:
        """The name of the runtime."""
        return "foreign"


@hookimpl
def byoc_runtime_info() -> RuntimeInfo:
    """Introduce the runtime."""
    return RuntimeInfo("foreign")


@hookimpl
def byoc_save_module(module: GraphModule) -> bytes:
    """Return the payload of a module."""
    return save_graph(module)


@hookimpl
def byoc_load_module(payload: bytes, context: LoadContext) -> RuntimeModule:
    """Return the module of a payload."""
    return load_graph(payload, context, Engine)


@hookimpl
def byoc_kernels() -> Mapping[str, Callable[..., object]]:
    """Return the kernels declared by the package's ops."""
    return {op.name: op.kernel for op in OPS if op.kernel is not None}
