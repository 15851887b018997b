"""A builder of ONNX graphs, node by node: names, constants, seeded weights, and shapes computed as by exporters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

__all__ = ["STYLES", "Dim", "GraphBuilder", "Style"]

Dim = int | str
"""An integer, or the name of a 0-d int64 tensor in the graph."""

SEED = 20
IR_VERSION = 10


@dataclass(frozen=True)
class Style:
    """The spelling of a network.

    Attributes:
        name: the name on the command line.
        opset: the operator set.
        is_modern: whether ops of operator set 20 and later replace the longer spelling of older exporters, and shapes
            are computed as by PyTorch's newer exporter instead of TorchScript's.
    """

    name: str
    opset: int
    is_modern: bool = False


STYLES = {style.name: style for style in (Style("exported13", 13), Style("exported17", 17), Style("modern", 23, True))}
"""The spellings of every network, by name. From 17 on, exporters write LayerNormalization as a single op."""


class GraphBuilder:
    """A graph under construction; a value is the name of a tensor.

    Nodes are named by scope, as ``/layer.0/attention/MatMul``. Weights are drawn in the order of the requests: all
    styles of a network hold the same numbers.
    """

    def __init__(self, name: str, style: Style, seed: int = SEED) -> None:
        self.style = style
        self._name = name
        self._rng = np.random.default_rng(seed)
        self._scopes: list[str] = []
        self._counts: dict[str, int] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Put the nodes and weights made inside the context under a name."""
        self._scopes.append(name)
        try:
            yield
        finally:
            self._scopes.pop()

    def input(self, name: str, dtype: npt.DTypeLike, *dims: int | str) -> str:
        """Add an input; a string among the sizes is the name of a dynamic size."""
        self._inputs.append(_declare(name, dtype, dims))
        return name

    def output(self, name: str, value: str, dtype: npt.DTypeLike, *dims: int | str) -> None:
        """Make a value an output, and give the output's name to the value."""
        for node in self._nodes:
            for names in (node.input, node.output):
                for index, old in enumerate(names):
                    names[index] = name if old == value else old
        self._outputs.append(_declare(name, dtype, dims))

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with a single output; return the output."""
        return self.ops(op_type, *inputs, num_outputs=1, **attributes)[0]

    def ops(self, op_type: str, *inputs: str, num_outputs: int, **attributes: Any) -> list[str]:
        """Add a node and return the outputs; an input ``""`` is left out."""
        name = self._fresh(op_type)
        outputs = [f"{name}_output_{index}" for index in range(num_outputs)]
        self._nodes.append(helper.make_node(op_type, list(inputs), outputs, name, **attributes))
        return outputs

    def constant(self, value: npt.ArrayLike, dtype: npt.DTypeLike = np.int64) -> str:
        """Add a ``Constant`` node, the form of small arrays in exporters."""
        return self.op("Constant", value=numpy_helper.from_array(np.asarray(value, dtype)))

    def weight(self, name: str, shape: Sequence[int], deviation: float, mean: float = 0.0) -> str:
        """Add an initializer of seeded normal float32 numbers."""
        numbers = self._rng.standard_normal(shape, np.float32) * np.float32(deviation) + np.float32(mean)
        return self.initializer(name, numbers)

    def initializer(self, name: str, array: npt.NDArray[Any]) -> str:
        """Add an initializer with given numbers."""
        full = self._number(".".join([*self._scopes, name]))
        self._initializers.append(numpy_helper.from_array(array, full))
        return full

    def size(self, value: str, axis: int) -> Dim:
        """Return the size of an axis of a value, computed while the model runs."""
        if self.style.is_modern:
            return self.op("Squeeze", self.op("Shape", value, start=axis, end=axis + 1))
        return self.op("Gather", self.op("Shape", value), self.constant(axis), axis=0)

    def vector(self, *dims: Dim) -> str:
        """Return sizes as a 1-d tensor."""
        if all(isinstance(dim, int) for dim in dims):
            return self.constant(dims)
        parts = [self.constant([dim]) if isinstance(dim, int) else self._as_vector(dim) for dim in dims]
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=0)

    def reshape(self, value: str, *dims: Dim) -> str:
        """Return a value in another shape."""
        return self.op("Reshape", value, self.vector(*dims))

    def expand(self, value: str, *dims: Dim) -> str:
        """Return a value repeated along axes of size one, with TorchScript's guard against sizes of -1."""
        shape = self.vector(*dims)
        if self.style.is_modern:
            return self.op("Expand", value, shape)
        ones = self.op("ConstantOfShape", self.op("Shape", shape), value=numpy_helper.from_array(np.array([1])))
        unknown = self.op("Equal", shape, self.op("Mul", ones, self.constant(-1)))
        return self.op("Expand", value, self.op("Where", unknown, ones, shape))

    def unsqueeze(self, value: str, *axes: int) -> str:
        """Return a value with additional axes of size one; TorchScript adds the axes one by one."""
        if self.style.is_modern:
            return self.op("Unsqueeze", value, self.constant(axes))
        for axis in axes:
            value = self.op("Unsqueeze", value, self.constant([axis]))
        return value

    def slice(self, value: str, axis: int, start: Dim, end: Dim) -> str:
        """Return the elements ``start`` to ``end`` of an axis."""
        return self.op("Slice", value, self.vector(start), self.vector(end), self.constant([axis]))

    def arange(self, start: Dim, end: Dim) -> str:
        """Return the integers ``start`` to ``end``."""
        return self.op("Range", self._as_scalar(start), self._as_scalar(end), self.constant(1))

    def add(self, left: Dim, right: Dim) -> Dim:
        """Return the sum of two sizes."""
        return self.op("Add", self._as_scalar(left), self._as_scalar(right))

    def subtract(self, left: Dim, right: Dim) -> Dim:
        """Return the difference of two sizes."""
        return self.op("Sub", self._as_scalar(left), self._as_scalar(right))

    def halve(self, dim: Dim) -> Dim:
        """Return half a size."""
        return self.op("Div", self._as_scalar(dim), self.constant(2))

    def cast(self, value: str, dtype: npt.DTypeLike) -> str:
        """Return a value in another dtype."""
        return self.op("Cast", value, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def finish(self) -> onnx.ModelProto:
        """Return the model.

        Raises:
            onnx.checker.ValidationError: the model is malformed.
        """
        graph = helper.make_graph(self._nodes, self._name, self._inputs, self._outputs, self._initializers)
        opsets = [helper.make_opsetid("", self.style.opset)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="byoc-zoo")
        onnx.checker.check_model(model)
        return model

    def _as_scalar(self, dim: Dim) -> str:
        return self.constant(dim) if isinstance(dim, int) else dim

    def _as_vector(self, dim: str) -> str:
        if self.style.is_modern:
            return self.op("Reshape", dim, self.constant([-1]))
        return self.op("Unsqueeze", dim, self.constant([0]))

    def _fresh(self, op_type: str) -> str:
        return self._number("/".join(["", *self._scopes, op_type]))

    def _number(self, name: str) -> str:
        """Return an unused name."""
        count = self._counts[name] = self._counts.get(name, -1) + 1
        return f"{name}_{count}" if count else name


def _declare(name: str, dtype: npt.DTypeLike, dims: Sequence[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(dims))
