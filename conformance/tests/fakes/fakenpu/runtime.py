"""The run half: runs graph documents with own numpy kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from byoc_core.opset.families import KERNELS as REFERENCE
from byoc_core.runtime.graph import GraphModule, KernelEngine, load_graph, save_graph
from byoc_core.runtime.graph.document import GraphFunction
from byoc_core.runtime.hooks import LoadContext, RuntimeInfo, hookimpl
from byoc_core.runtime.module import CallTraits, NDArray, PackedFunction, RuntimeModule
from byoc_core.vm.program import nbytes_of

from fakenpu.faults import break_run_half
from fakenpu.native import native_entry


def _concat(*arrays: NDArray, axis: int) -> NDArray:
    return np.concatenate(arrays, axis)


def _split(x: NDArray, *, sections: Sequence[int], axis: int) -> tuple[NDArray, ...]:
    return tuple(np.split(x, np.cumsum(sections)[:-1], axis))


def _bias_add(x: NDArray, bias: NDArray, *, axis: int) -> NDArray:
    shape = [1] * x.ndim
    shape[axis] = -1
    return x + bias.reshape(shape)


def _dense(x: NDArray, w: NDArray) -> NDArray:
    result: NDArray = np.einsum("...i,oi->...o", x, w)  # `@` runs on the threads of numpy's BLAS, as many as it likes
    return result


def _take(x: NDArray, indices: NDArray, *, axis: int, mode: str) -> NDArray:
    return np.take(x, indices, axis, mode="clip" if mode == "clip" else "raise")


KERNELS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "exp": np.exp,
    "nn.relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "nn.dense": _dense,
    "nn.bias_add": _bias_add,
    "concat": _concat,
    "split": _split,
    "fakenpu.double": lambda x: x + x,
    "take": _take,
    **{op: REFERENCE[op] for op in ("nn.softmax", "nn.layer_norm", "nn.avg_pool2d", "strided_slice")},
}


class FakeEngine(KernelEngine):
    """An engine running nodes in sequence; results are complete before the first write, so they may overlap inputs."""

    def __init__(self) -> None:
        super().__init__(KERNELS)

    @property
    def type_key(self) -> str:
        """The name of the runtime loading this engine's modules."""
        return "fakenpu"

    @property
    def strided(self) -> bool:
        """Whether arrays may be strided: numpy reads and fills any."""
        return True

    def build(
        self, function: GraphFunction, constants: Mapping[str, NDArray], prepared: object = None
    ) -> Callable[..., object]:
        """Return a callable running the nodes, without warnings about non-finite numbers."""
        run = super().build(function, constants)
        num_inputs = len(function.signature.inputs)
        last = num_inputs + len(function.signature.outputs)

        def run_silently(*arrays: NDArray) -> object:
            outputs = arrays[num_inputs:last]
            results = [np.empty(output.shape, output.dtype) for output in outputs]
            for workspace in arrays[last:]:
                memory = workspace[: results[0].nbytes]
                results[0] = memory.view(results[0].dtype).reshape(results[0].shape)
            with np.errstate(all="ignore"):
                returned = run(*arrays[:num_inputs], *results)
            for output, result in zip(outputs, results, strict=True):
                output[...] = result
            return returned

        return run_silently


class FakeModule(GraphModule):
    """A graph with declared permissions of functions, and products callable by machine code."""

    def find_function(self, name: str) -> PackedFunction:
        """Return a function."""
        function = super().find_function(name)
        if self._is(name, "multiply") and function.native is None:
            signature = self.document.functions[name].signature
            dtypes = [spec.dtype for spec in (*signature.inputs, *signature.outputs)]
            function.native = native_entry(function.impl, dtypes)
        return function

    def call_traits(self, name: str) -> CallTraits:
        """Return a function's permissions: all, because results are made apart; for `exp`, in a workspace."""
        signature = self.document.functions[name].signature
        pairs = (
            (i, j)
            for i, output in enumerate(signature.outputs)
            for j, operand in enumerate(signature.inputs)
            if (output.dtype, output.shape) == (operand.dtype, operand.shape)
        )
        first = signature.outputs[0]
        return CallTraits(
            strided=super().call_traits(name).strided,
            in_place=tuple(pairs),
            workspace_nbytes=nbytes_of(first.shape, first.dtype) if self._is(name, "exp") else 0,
        )

    def _is(self, name: str, op: str) -> bool:
        """Return whether a function is a single op: faults in arrays have little else to consider there."""
        return [node.op for node in self.document.functions[name].nodes] == [op]


def fake_module(module: GraphModule) -> FakeModule:
    """Return a graph module as a module of this backend."""
    return FakeModule(module.document, module.constants, FakeEngine())


@hookimpl
def byoc_runtime_info() -> RuntimeInfo:
    """Introduce the runtime."""
    return RuntimeInfo("fakenpu", file_formats=("fakenpu",))


@hookimpl
def byoc_save_module(module: RuntimeModule) -> bytes:
    """Return the document."""
    return save_graph(cast("GraphModule", module))


@hookimpl
def byoc_load_module(payload: bytes, context: LoadContext) -> RuntimeModule:
    """Return the module."""
    return fake_module(load_graph(payload, context, FakeEngine()))


@hookimpl
def byoc_load_file(data: bytes, context: LoadContext) -> RuntimeModule:
    """Return the module of a document in a file."""
    return fake_module(load_graph(data, context, FakeEngine()))


break_run_half(globals())
