"""What computes. Change this first: numpy stands here for the library or device that you bring.

A kernel takes C-contiguous arrays, and the op's attributes by keyword, and gives a new array; it never writes to what
it takes, and keeps nothing between calls, since several threads may be in it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from byoc_core.runtime.graph import KernelEngine
from byoc_core.runtime.graph_document import GraphFunction, GraphNode
from byoc_core.runtime.module import NDArray

__all__ = ["DENSE_RELU", "DTYPES", "KERNELS", "Engine"]

DTYPES = ("float32", "float64")
"""What the kernels compute in; nothing else is claimed, and nothing else is loaded."""

DENSE_RELU = "scipy.dense_relu"
"""The name of the pattern that the library computes in one call."""


def _add(a: NDArray, b: NDArray) -> NDArray:
    return np.asarray(a + b)  # numpy gives a scalar for arrays without axes


def _multiply(a: NDArray, b: NDArray) -> NDArray:
    return np.asarray(a * b)


def _relu(x: NDArray) -> NDArray:
    return np.asarray(np.maximum(x, x.dtype.type(0)))  # NaN stays NaN


def _dense(x: NDArray, weight: NDArray) -> NDArray:
    return np.asarray(x @ weight.T)


def _bias_add(x: NDArray, bias: NDArray, *, axis: int) -> NDArray:
    shape = [1] * x.ndim
    shape[axis] = -1
    return np.asarray(x + bias.reshape(shape))


KERNELS: Mapping[str, Callable[..., NDArray]] = {
    "add": _add,
    "multiply": _multiply,
    "nn.relu": _relu,
    "nn.dense": _dense,
    "nn.bias_add": _bias_add,
}
"""By op name. A new op is one line here and one function above; ``byoc_core.kernels`` says what each op means."""


class Engine(KernelEngine):
    """Runs graphs with the kernels above, and each pattern in one call."""

    def __init__(self) -> None:
        super().__init__(KERNELS)

    @property
    def type_key(self) -> str:
        """The runtime's name, which artifacts cite."""
        return "scipy"

    def check_node(self, node: GraphNode) -> str | None:
        """Gives the reason why a node cannot run here: asked when compiling, and of every file that is loaded."""
        foreign = sorted({tensor.dtype for tensor in node.outputs} - set(DTYPES))
        return f"has no kernel for {', '.join(foreign)}" if foreign else super().check_node(node)

    def bind_composite(self, node: GraphNode, constants: Mapping[str, NDArray]) -> Callable[..., NDArray] | None:
        """Gives a pattern's kernel with its weights, once, at load; ``None`` has the pattern run op by op."""
        if node.body is None or not _is_dense_relu(node.body):
            return None
        weight, bias = (constants[constant.digest] for constant in node.body.constants)
        return lambda x: dense_relu(x, weight, bias)

    def build(self, function: GraphFunction, constants: Mapping[str, NDArray]) -> Callable[..., object]:
        """Gives what runs a function: as the base class does, with overflow and NaN as values and not as warnings."""
        run = super().build(function, constants)

        def run_quietly(*arrays: NDArray) -> object:
            with np.errstate(all="ignore"):
                return run(*arrays)

        return run_quietly


def dense_relu(x: NDArray, weight: NDArray, bias: NDArray) -> NDArray:
    """Gives ``max(x @ weight.T + bias, 0)``: the one call that makes the pattern worth taking."""
    result: NDArray = x @ weight.T
    result += bias
    np.maximum(result, 0, out=result)
    return result


def _is_dense_relu(body: GraphFunction) -> bool:
    """Tells whether a body is the pattern's. Ids: 0 the input, 1 the weight, 2 the bias, then each node's result."""
    steps: list[tuple[Any, ...]] = [(node.op, *node.inputs) for node in body.nodes]
    ids = [id_ for _, id_ in body.outputs]
    return ids == [5] and steps == [("nn.dense", 0, 1), ("nn.bias_add", 3, 2), ("nn.relu", 4)]
