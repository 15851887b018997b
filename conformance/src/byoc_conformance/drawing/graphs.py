"""Random graphs of float32: values with several readers, several results, constants, diamonds."""

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

_ROWS = (2, 3, 5, 70, 300)
_COLUMNS = (3, 6, 8, 17, 40)
_NUM_CALLS = 2
_LARGEST = 50.0
_LEAST = 0.1
_FAR_FROM_ZERO = ("reciprocal", "log")
"""Ops with results sensitive to the last bit of an operand near zero."""
_FAVOUR = 12
_COMMON = dict.fromkeys(["add", "subtract", "multiply", "exp", "nn.relu", "nn.dense", "nn.bias_add", "concat"], 4.0)
"""Weights of the ops claimed by most backends; the weights of the rest are 1."""

_UNARY = (
    *("exp", "log", "sqrt", "tanh", "sigmoid", "erf", "reciprocal", "sin", "cos", "negative", "abs"),
    *("nn.softplus", "nn.softsign", "nn.elu", "nn.selu", "nn.hard_sigmoid", "nn.hard_swish", "nn.swish", "nn.mish"),
    *("nn.leaky_relu", "nn.gelu", "nn.relu", "nn.softmax", "nn.log_softmax"),
)
_BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum")


@dataclass(frozen=True, eq=False, slots=True)
class DrawnGraph:
    """A graph, and the inputs of several calls with ordinary numbers as values.

    Attributes:
        function: the graph.
        constants: the cited constants.
        calls: for each call an array per parameter; with a symbolic number of rows, the number differs among calls.
    """

    function: Function
    constants: ConstantStore
    calls: Sequence[Sequence[NDArray]]


def graph_ops() -> tuple[str, ...]:
    """Return the ops of drawn graphs."""
    return (*_UNARY, *_BINARY, *_STEPS)


def draw_graph(
    name: str, ops: OpRegistry, favoured: str, generator: np.random.Generator, *, is_dynamic: bool
) -> DrawnGraph:
    """Return a graph of 4 to 30 ops.

    Steps with values other than ordinary numbers are left out: an infinite value, or a value sensitive to the last
    bit of an operand, gives no evidence about a backend.

    Args:
        name: of the function.
        ops: the registry.
        favoured: the op drawn most often.
        generator: of all random numbers.
        is_dynamic: whether the number of rows is a symbol.
    """
    draft = _Draft(name, ops, generator, is_dynamic=is_dynamic)
    names = graph_ops()
    weights = np.array([_FAVOUR if op == favoured else _COMMON.get(op, 1.0) for op in names])
    num_ops = int(generator.integers(4, 31))
    for _ in range(4 * num_ops):
        if draft.num_ops >= num_ops:
            break
        draft.grow(str(generator.choice(names, p=weights / weights.sum())))
    return draft.finish()


class _Draft:
    """A growing graph, with all values in each call."""

    def __init__(self, name: str, ops: OpRegistry, generator: np.random.Generator, *, is_dynamic: bool) -> None:
        self._builder = FunctionBuilder(name, ops=ops)
        self._ops = ops
        self.generator = generator
        rows = generator.permutation(_ROWS)[:_NUM_CALLS].tolist()
        dim: Dim = symbol("n") if is_dynamic else rows[0]
        self._sizes = [{"n": size} for size in (rows if is_dynamic else rows[:1] * _NUM_CALLS)]
        self._arrays: dict[int, list[NDArray]] = {}
        self._values: list[Value] = []
        self._inputs: list[list[NDArray]] = [[] for _ in self._sizes]
        self._read: set[int] = set()
        self.num_ops = 0
        columns = int(generator.choice(_COLUMNS))
        for number in range(int(generator.integers(1, 4))):
            param = self._builder.param(f"x{number}", TensorType((dim, columns), "float32"))
            for sizes, inputs in zip(self._sizes, self._inputs, strict=True):
                inputs.append(generator.standard_normal((sizes["n"], columns)).astype(np.float32))
            self._keep(param, [inputs[-1] for inputs in self._inputs])

    def _keep(self, value: Value, arrays: Sequence[NDArray]) -> None:
        self._arrays[id(value)] = [array.astype(np.float64) for array in arrays]
        self._values.append(value)

    def grow(self, op: str) -> None:
        """Add an op on existing values, if possible."""
        # Late values are read more often than early values, for deep graphs; early values too, for joins.
        late = self.generator.random() < 0.6
        values = self._values
        if op in _FAR_FROM_ZERO:
            values = [value for value in values if self._is_far_from_zero(value)] or values
        count = len(values)
        x = values[count - 1 - int(self.generator.integers(min(3, count) if late else count))]
        operands, attrs = _STEPS.get(op, _binary if op in _BINARY else _unary)(self, x)
        self._emit(op, operands, attrs)

    def _is_far_from_zero(self, value: Value) -> bool:
        return all(np.min(np.abs(array)) >= _LEAST for array in self._arrays[id(value)])

    def any_value(self) -> Value:
        """Return an existing value."""
        return self._values[int(self.generator.integers(len(self._values)))]

    def shape(self, value: Value) -> tuple[int, ...]:
        """Return the sizes of a value in the first call."""
        return self._arrays[id(value)][0].shape

    def constant(self, *shape: int) -> Constant:
        """Return a constant of moderate numbers."""
        array = (self.generator.standard_normal(shape) / np.sqrt(max(1, shape[-1]))).astype(np.float32)
        constant = self._builder.const(array)
        self._arrays[id(constant)] = [array.astype(np.float64)] * len(self._sizes)
        return constant

    def _emit(self, op: str, operands: Sequence[Value], attrs: Mapping[str, Any]) -> None:
        calls = list(zip(*(self._arrays[id(operand)] for operand in operands), strict=True))
        if op in (*_FAR_FROM_ZERO, "divide") and not self._is_far_from_zero(operands[-1]):
            return
        probe = FunctionBuilder("probe", ops=self._ops)
        types = [operand.type for operand in operands]
        try:
            tried = probe.bind(op, [probe.param(f"v{k}", type_) for k, type_ in enumerate(types)], attrs)
        except IRTypeError:
            return
        with np.errstate(all="ignore"):
            found = [evaluate_binding(tried, arrays, sizes) for arrays, sizes in zip(calls, self._sizes, strict=True)]
        if not all(_is_ordinary(result) for results in found for result in results):
            return
        binding = self._builder.bind(op, operands, attrs)
        self._read |= {id(operand) for operand in operands}
        self.num_ops += 1
        for value, arrays in zip(binding.results, zip(*found, strict=True), strict=True):
            self._keep(value, arrays)

    def finish(self) -> DrawnGraph:
        """Return the graph: unread values are results, and a few random values too."""
        computed = [value for value in self._values if isinstance(value, Var)][len(self._inputs) :]
        results = [value for value in computed if id(value) not in self._read or self.generator.random() < 0.1]
        return DrawnGraph(self._builder.finish(*results), self._builder.constants, self._inputs)


def _is_ordinary(array: NDArray) -> bool:
    return bool(np.all(np.isfinite(array)) and np.max(np.abs(array), initial=0) < _LARGEST)


Step = Callable[[_Draft, Value], tuple[Sequence[Value], Mapping[str, Any]]]


def _unary(draft: _Draft, x: Value) -> tuple[Sequence[Value], Mapping[str, Any]]:
    return [x], {}


def _binary(draft: _Draft, x: Value) -> tuple[Sequence[Value], Mapping[str, Any]]:
    """Return operands, with a value, a row, or a number as the other operand; either may come first."""
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
