"""The kernels: SciPy's BLAS for dense layers, and SciPy's special functions for activations.

A kernel takes C-contiguous arrays, and the op's attributes by keyword, and returns a new array. A kernel never writes
to its arguments, and keeps no state between calls, because several threads may call a kernel at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from byoc_core.runtime.graph import KernelEngine
from byoc_core.runtime.graph.document import GraphFunction, GraphNode, GraphTensor
from byoc_core.runtime.module import NDArray
from scipy.linalg.blas import get_blas_funcs
from scipy.special import erf, expit, ndtr, softmax

__all__ = ["DENSE_BIAS", "DENSE_BIAS_RELU", "DTYPES", "KERNELS", "Engine", "dense_bias", "dense_bias_relu"]

DTYPES = ("float32", "float64")
"""The dtypes of the kernels; no other dtype is claimed or loaded."""

DENSE_BIAS = "scipy.dense_bias"
DENSE_BIAS_RELU = "scipy.dense_bias_relu"


def _erf(x: NDArray) -> NDArray:
    return np.asarray(erf(x))  # SciPy gives a scalar for arrays without axes


def _sigmoid(x: NDArray) -> NDArray:
    return np.asarray(expit(x))


def _gelu(x: NDArray, *, approximate: str) -> NDArray:  # `approximate` is "none": see `patterns.reject_op`
    # The limit, where the product is infinity times zero.
    return np.asarray(np.where(np.isneginf(x), x.dtype.type(0), x * ndtr(x)))


def _softmax(x: NDArray, *, axis: int) -> NDArray:
    return np.asarray(softmax(x, axis)) if x.size else x.copy()


def _relu(x: NDArray) -> NDArray:
    return np.asarray(np.maximum(x, x.dtype.type(0)))  # NaN stays NaN


def _dense(x: NDArray, weight: NDArray) -> NDArray:
    return np.asarray(x @ weight.T)


def _bias_add(x: NDArray, bias: NDArray, *, axis: int) -> NDArray:
    shape = [1] * x.ndim
    shape[axis] = -1
    return np.asarray(x + bias.reshape(shape))


KERNELS: Mapping[str, Callable[..., NDArray]] = {
    "erf": _erf,
    "sigmoid": _sigmoid,
    "nn.gelu": _gelu,
    "nn.softmax": _softmax,
    "nn.relu": _relu,
    "nn.dense": _dense,
    "nn.bias_add": _bias_add,
}
"""Kernels by op name. The last three are the parts of the patterns, and are taken singly too."""


class Engine(KernelEngine):
    """An engine running graphs with the kernels above, and each pattern in one call."""

    def __init__(self) -> None:
        super().__init__(KERNELS)

    @property
    def type_key(self) -> str:
        """The runtime's name, cited by artifacts."""
        return "scipy"

    def check_node(self, node: GraphNode, operands: Sequence[GraphTensor] = ()) -> str | None:
        """Return the reason if a node cannot run here; called during compilation, and for every loaded file."""
        foreign = sorted({tensor.dtype for tensor in (*operands, *node.outputs)} - set(DTYPES))
        if foreign:
            return f"has no kernel for {', '.join(foreign)}"
        if node.attrs.get("approximate", "none") != "none":
            return "is computed exactly only"
        return super().check_node(node)

    def bind_composite(self, node: GraphNode, constants: Mapping[str, NDArray]) -> Callable[..., NDArray] | None:
        """Return a pattern's kernel with the weights, once, at load; ``None`` has the pattern run op by op."""
        kernel = _kernel_of(node.body) if node.body is not None else None
        if kernel is None or node.body is None:
            return None
        weight, bias = (constants[constant.digest] for constant in node.body.constants)
        return lambda x: kernel(x, weight, bias)

    def build(
        self, function: GraphFunction, constants: Mapping[str, NDArray], prepared: object = None
    ) -> Callable[..., object]:
        """Return a callable for a function: the callable of the base class, without warnings for overflow and NaN."""
        run = super().build(function, constants)

        def run_quietly(*arrays: NDArray) -> object:
            with np.errstate(all="ignore"):
                return run(*arrays)

        return run_quietly


def dense_bias(x: NDArray, weight: NDArray, bias: NDArray) -> NDArray:
    """Return ``x @ weight.T + bias`` by one call of BLAS: the product is added to the bias stored in the result.

    Shapes: ``(N, K), (M, K), (M,) -> (N, M)``.
    """
    result = np.empty((len(x), len(weight)), x.dtype)
    result[...] = bias
    if 0 in (*x.shape, *weight.shape):
        return result  # BLAS takes no empty matrices, and there is nothing to add
    # BLAS counts columns first. So the transposes are what lies in memory, and nothing is copied.
    gemm = get_blas_funcs("gemm", dtype=x.dtype)
    product: NDArray = gemm(1.0, weight.T, x.T, 1.0, result.T, trans_a=True, overwrite_c=True)
    return product.T


def dense_bias_relu(x: NDArray, weight: NDArray, bias: NDArray) -> NDArray:
    """Return ``max(x @ weight.T + bias, 0)``; shapes as for :func:`dense_bias`."""
    result = dense_bias(x, weight, bias)
    np.maximum(result, 0, out=result)
    return result


def _kernel_of(body: GraphFunction) -> Callable[[NDArray, NDArray, NDArray], NDArray] | None:
    """Return the kernel of a pattern's body. Ids: 0 the input, 1 the weight, 2 the bias, then each node's result."""
    steps: list[tuple[Any, ...]] = [(node.op, *node.inputs) for node in body.nodes]
    ids = [id_ for _, id_ in body.outputs]
    dense, biased, relu = ("nn.dense", 0, 1), ("nn.bias_add", 3, 2), ("nn.relu", 4)
    if (steps, ids) == ([dense, biased], [4]):
        return dense_bias
    if (steps, ids) == ([dense, biased, relu], [5]):
        return dense_bias_relu
    return None
