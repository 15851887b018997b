"""Random graphs of float32: values that are read again, several results, constants, diamonds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.dims import Dim, symbol
from byoc_core.errors import IRTypeError
from byoc_core.ir import Constant, ConstantStore, Function, FunctionBuilder, OpRegistry, TensorType, Value, Var
from byoc_core.transform import evaluate_binding

__all__ = ["DrawnGraph", "draw_graph", "graph_ops"]

NDArray = npt.NDArray[Any]

_ROWS = (2, 3, 5)
_COLUMNS = (3, 6, 8, 17)
_LARGEST = 50.0
_FAVOUR = 6

_UNARY = (
    *("exp", "log", "sqrt", "tanh", "sigmoid", "erf", "reciprocal", "sin", "cos", "negative", "abs"),
    *("nn.softplus", "nn.softsign", "nn.elu", "nn.selu", "nn.hard_sigmoid", "nn.hard_swish", "nn.swish", "nn.mish"),
    *("nn.leaky_relu", "nn.gelu", "nn.relu", "nn.softmax", "nn.log_softmax"),
)
_BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum")


@dataclass(frozen=True, eq=False, slots=True)
class DrawnGraph:
    """A graph, and inputs on which all its values are ordinary numbers.

    Attributes:
        function: the graph.
        constants: what it cites.
        inputs: one array per parameter.
    """

    function: Function
    constants: ConstantStore
    inputs: Sequence[NDArray]


def graph_ops() -> tuple[str, ...]:
    """Gives the ops that graphs are drawn of."""
    return (*_UNARY, *_BINARY, *_STEPS)


def draw_graph(
    name: str, ops: OpRegistry, favoured: frozenset[str], generator: np.random.Generator, *, is_dynamic: bool
) -> DrawnGraph:
    """Gives a graph of 4 to 40 ops.

    A step whose values are not ordinary numbers is not taken: what is infinite, or hangs on the last bit of an operand,
    says nothing of a backend.

    Args:
        name: of the function.
        ops: the registry.
        favoured: ops that are drawn more often.
        generator: of all random numbers.
        is_dynamic: whether the number of rows is a symbol.
    """
    draft = _Draft(name, ops, generator, is_dynamic=is_dynamic)
    names = graph_ops()
    weights = np.array([_FAVOUR if op in favoured else 1.0 for op in names])
    wanted = int(generator.integers(4, 41))
    for _ in range(4 * wanted):
        if draft.num_ops >= wanted:
            break
        draft.grow(str(generator.choice(names, p=weights / weights.sum())))
    return draft.finish()


class _Draft:
    """A graph that grows, with the value of everything in it."""

    def __init__(self, name: str, ops: OpRegistry, generator: np.random.Generator, *, is_dynamic: bool) -> None:
        self._builder = FunctionBuilder(name, ops=ops)
        self._ops = ops
        self.generator = generator
        rows = int(generator.choice(_ROWS))
        dim: Dim = symbol("n") if is_dynamic else rows
        self._sizes = {"n": rows}
        self._arrays: dict[int, NDArray] = {}
        self._values: list[Value] = []
        self._inputs: list[NDArray] = []
        self._read: set[int] = set()
        self.num_ops = 0
        columns = int(generator.choice(_COLUMNS))
        for number in range(int(generator.integers(1, 4))):
            array = generator.standard_normal((rows, columns)).astype(np.float32)
            param = self._builder.param(f"x{number}", TensorType((dim, columns), "float32"))
            self._inputs.append(array)
            self._keep(param, array)

    def _keep(self, value: Value, array: NDArray) -> None:
        self._arrays[id(value)] = array.astype(np.float64)
        self._values.append(value)

    def grow(self, op: str) -> None:
        """Adds an op on values that are there, if it can be."""
        # Late values are read more often than early ones, so that graphs are deep; early ones too, so that they join.
        late = self.generator.random() < 0.6
        count = len(self._values)
        x = self._values[count - 1 - int(self.generator.integers(min(3, count)))] if late else self.any_value()
        operands, attrs = _STEPS.get(op, _binary if op in _BINARY else _unary)(self, x)
        self._emit(op, operands, attrs)

    def any_value(self) -> Value:
        """Gives a value that is there."""
        return self._values[int(self.generator.integers(len(self._values)))]

    def shape(self, value: Value) -> tuple[int, ...]:
        """Gives the sizes of a value."""
        return self._arrays[id(value)].shape

    def constant(self, *shape: int) -> Constant:
        """Gives a constant of moderate numbers."""
        array = (self.generator.standard_normal(shape) / np.sqrt(max(1, shape[-1]))).astype(np.float32)
        constant = self._builder.const(array)
        self._arrays[id(constant)] = array.astype(np.float64)
        return constant

    def _emit(self, op: str, operands: Sequence[Value], attrs: Mapping[str, Any]) -> None:
        arrays = [self._arrays[id(operand)] for operand in operands]
        if op in ("divide", "reciprocal", "log") and np.min(np.abs(arrays[-1])) < 0.1:
            return
        probe = FunctionBuilder("probe", ops=self._ops)
        types = [operand.type for operand in operands]
        try:
            tried = probe.bind(op, [probe.param(f"v{k}", type_) for k, type_ in enumerate(types)], attrs)
        except IRTypeError:
            return
        with np.errstate(all="ignore"):
            results = evaluate_binding(tried, arrays, self._sizes)
        if not all(np.all(np.isfinite(result)) and np.max(np.abs(result), initial=0) < _LARGEST for result in results):
            return
        binding = self._builder.bind(op, operands, attrs)
        self._read |= {id(operand) for operand in operands}
        self.num_ops += 1
        for value, array in zip(binding.results, results, strict=True):
            self._keep(value, array)

    def finish(self) -> DrawnGraph:
        """Gives the graph: what nothing reads is a result, and now and then something else too."""
        made = [value for value in self._values if isinstance(value, Var)][len(self._inputs) :]
        results = [value for value in made if id(value) not in self._read or self.generator.random() < 0.1]
        return DrawnGraph(self._builder.finish(*results), self._builder.constants, self._inputs)


Step = Callable[[_Draft, Value], tuple[Sequence[Value], Mapping[str, Any]]]


def _unary(draft: _Draft, x: Value) -> tuple[Sequence[Value], Mapping[str, Any]]:
    return [x], {}


def _binary(draft: _Draft, x: Value) -> tuple[Sequence[Value], Mapping[str, Any]]:
    """The other operand is a value, a row, or a number; either may come first."""
    columns = draft.shape(x)[-1]
    kind = draft.generator.random()
    other = draft.any_value() if kind < 0.7 else draft.constant(columns) if kind < 0.9 else draft.constant(1)
    return ([x, other] if draft.generator.random() < 0.7 else [other, x]), {}


def _dense(draft: _Draft, x: Value) -> tuple[Sequence[Value], Mapping[str, Any]]:
    return [x, draft.constant(int(draft.generator.choice(_COLUMNS)), draft.shape(x)[-1])], {}


def _matmul(draft: _Draft, x: Value) -> tuple[Sequence[Value], Mapping[str, Any]]:
    return [x, draft.constant(draft.shape(x)[-1], int(draft.generator.choice(_COLUMNS)))], {}


def _bias_add(draft: _Draft, x: Value) -> tuple[Sequence[Value], Mapping[str, Any]]:
    return [x, draft.constant(draft.shape(x)[-1])], {}


def _concat(draft: _Draft, x: Value) -> tuple[Sequence[Value], Mapping[str, Any]]:
    return [x, draft.any_value()], {"axis": 1}


def _split(draft: _Draft, x: Value) -> tuple[Sequence[Value], Mapping[str, Any]]:
    columns = draft.shape(x)[-1]
    first = int(draft.generator.integers(1, max(2, columns)))
    return [x], {"sections": (first, columns - first) if columns > 1 else (1,), "axis": 1}


def _reduction(draft: _Draft, x: Value) -> tuple[Sequence[Value], Mapping[str, Any]]:
    return [x], {"axis": (1,), "keepdims": True}


_STEPS: Mapping[str, Step] = {
    "nn.dense": _dense,
    "matmul": _matmul,
    "nn.bias_add": _bias_add,
    "concat": _concat,
    "split": _split,
    **dict.fromkeys(["sum", "mean", "max"], _reduction),
}
