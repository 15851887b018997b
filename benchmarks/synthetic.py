"""Synthetic ONNX models of any size: chains, wide layers and random graphs, seeded."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["GRAPHS", "make_model"]

OPSET = 17
WIDTHS = (16, 32, 64, 128)
UNARY = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs")
BINARY = ("Add", "Mul", "Sub")
NUM_WEIGHTS = 16
"""Matrices for each change of width; each matrix is used many times."""


class _Graph:
    """Nodes over rows ``(1, width)``, with the width of each value and the values still unread."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.widths: dict[str, int] = {f"x{width}": width for width in WIDTHS}
        self.unread: dict[str, None] = {}
        self._weights: dict[str, onnx.TensorProto] = {}
        self._rng = np.random.default_rng(seed)

    def emit(self, op: str, *operands: str, width: int | None = None) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, operands, [name], name=f"{op}_{len(self.nodes)}"))
        self.widths[name] = self.widths[operands[0]] if width is None else width
        for operand in operands:
            self.unread.pop(operand, None)
        self.unread[name] = None
        return name

    def weight(self, name: str, rows: int, columns: int) -> str:
        if name not in self._weights:
            array = self._rng.standard_normal((rows, columns), np.float32) / np.float32(rows**0.5)
            self._weights[name] = numpy_helper.from_array(array, name)
        return name

    def matmul(self, value: str, width: int) -> str:
        before = self.widths[value]
        matrix = self.weight(f"w{before}x{width}_{self.random.randrange(NUM_WEIGHTS)}", before, width)
        return self.emit("MatMul", value, matrix, width=width)

    def scale(self, value: str) -> str:
        return self.emit("Mul", value, self.weight(f"s{len(self.nodes)}", 1, self.widths[value]))

    def finish(self) -> onnx.ModelProto:
        """Return the model; unread values are the outputs."""
        used = {name for node in self.nodes for name in node.input}

        def info(name: str) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, self.widths[name]))

        inputs = [info(f"x{width}") for width in WIDTHS if f"x{width}" in used]
        graph = helper.make_graph(
            self.nodes, "synthetic", inputs, list(map(info, self.unread)), list(self._weights.values())
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])


def _chain(num_ops: int, seed: int) -> onnx.ModelProto:
    """Build a chain of ops; some ops read the input again, and a few change the width."""
    graph = _Graph(seed)
    value = f"x{WIDTHS[0]}"
    for index in range(num_ops):
        width = graph.widths[value]
        if index % 16 == 15:
            value = graph.matmul(value, graph.random.choice(WIDTHS))
        elif index % 3:
            value = graph.emit(BINARY[index % len(BINARY)], value, f"x{width}")
        else:
            value = graph.emit(UNARY[index % len(UNARY)], value)
    return graph.finish()


def _layers(num_ops: int, seed: int) -> onnx.ModelProto:
    """Build ten layers; in each, branches of four ops advance side by side, then adds join the branches two by two."""
    graph = _Graph(seed)
    num_branches = max(num_ops // 50, 1)
    joined = f"x{WIDTHS[0]}"
    for _ in range(10):
        branches = [graph.scale(joined) for _ in range(num_branches)]
        for op in ("Relu", "Tanh", "Sigmoid"):
            branches = [graph.emit(op, value) for value in branches]
        while len(branches) > 1:
            rest = branches[len(branches) & ~1 :]
            branches = [graph.emit("Add", *pair) for pair in zip(branches[::2], branches[1::2], strict=False)] + rest
        joined = graph.matmul(branches[0], graph.random.choice(WIDTHS))
    return graph.finish()


def _random_graph(num_ops: int, seed: int) -> onnx.ModelProto:
    """Build ops on values made a little before, now and then long before; a quarter of the ops change the width."""
    graph = _Graph(seed)
    values_of_width: dict[int, list[str]] = {width: [f"x{width}"] for width in WIDTHS}

    def pick(width: int) -> str:
        values = values_of_width[width]
        reach = len(values) if graph.random.random() < 0.05 else 12
        return values[-1 - min(int(graph.random.random() ** 2 * reach), len(values) - 1)]

    while len(graph.nodes) < num_ops:
        width = graph.random.choice(WIDTHS)
        kind = graph.random.random()
        if kind < 0.25:
            source = graph.random.choice(WIDTHS)
            value = graph.matmul(pick(source), width)
        elif kind < 0.5:
            value = graph.emit(graph.random.choice(UNARY), pick(width))
        else:
            value = graph.emit(graph.random.choice(BINARY), pick(width), pick(width))
        values_of_width[width].append(value)
        if len(graph.unread) > 64:
            _join(graph, values_of_width)
    _join(graph, values_of_width)
    return graph.finish()


def _join(graph: _Graph, values_of_width: dict[int, list[str]]) -> None:
    """Sum all unread values, width by width, to leave no dead value."""
    for width in WIDTHS:
        first, *further = [name for name in graph.unread if graph.widths[name] == width] or values_of_width[width][:1]
        for other in further:
            first = graph.emit("Add", first, other)
            values_of_width[width].append(first)


GRAPHS: Mapping[str, Callable[[int, int], onnx.ModelProto]] = MappingProxyType(
    {"chain": _chain, "layers": _layers, "random": _random_graph}
)
"""Builders of models by kind; the arguments are the approximate number of ops and the seed."""


def make_model(kind: str, num_ops: int, seed: int = 0) -> bytes:
    """Return a serialised model of a kind of :data:`GRAPHS`, with ``num_ops`` nodes within a tenth."""
    data: bytes = GRAPHS[kind](num_ops, seed).SerializeToString()
    return data
