"""Microseconds of a host op beyond numpy's own calls for this op, inside a region and for a region of a single op.

A region of a single op and a region of twenty ops are called. The difference, over nineteen, is the time of an op. The
time of the smaller region beyond numpy's calls is the overhead of the call. Beside these regions runs a plain Python
loop of numpy's own calls, with ``out=`` if numpy's function accepts a result buffer. Times are the best of all rounds:
a difference of medians drowns in noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.runtime.graph import GraphModule
from byoc_core.runtime.graph.document import GraphAttr, GraphDocument, GraphFunction, GraphNode, GraphTensor
from byoc_core.runtime.module import TensorSpec

from benchmarks.pairing import measure, time_call

Array = npt.NDArray[Any]
Numpy = Callable[[Array, tuple[Array, ...], Array], Array]

LENGTH = 20
SMALL, LARGE = 10, 1_000


def _sigmoid(x: Array, _: tuple[Array, ...], out: Array) -> Array:
    decay = np.exp(-np.abs(x))
    np.divide(np.where(x >= 0, np.float32(1), decay), np.float32(1) + decay, out=out)
    return out


def _softmax(x: Array, _: tuple[Array, ...], out: Array) -> Array:
    powers = np.exp(x - np.max(x, axis=-1, keepdims=True))
    np.divide(powers, np.sum(powers, axis=-1, keepdims=True), out=out)
    return out


def _layer_norm(x: Array, parameters: tuple[Array, ...], out: Array) -> Array:
    gamma, beta = parameters
    centred = x - np.mean(x, axis=-1, keepdims=True)
    deviation = np.sqrt(np.mean(np.square(centred), axis=-1, keepdims=True) + np.float32(1e-5))
    np.add(centred / deviation * gamma, beta, out=out)
    return out


def _take(x: Array, parameters: tuple[Array, ...], out: Array) -> Array:
    np.take(x, parameters[0], axis=0, out=out, mode="clip")
    return out


def _clip(x: Array, _: tuple[Array, ...], out: Array) -> Array:
    return np.minimum(np.maximum(x, np.float32(-1), out=out), np.float32(1), out=out)


@dataclass(frozen=True)
class Case:
    """An op on ``(n, n)`` and further operands.

    Attributes:
        numpy: numpy's own calls for the op.
        other_operands: the further operands: a name of a shape, and a dtype unless float32.
        attrs: the op's attributes.
        shape: the name of the result's shape.
        dtype: the dtype of the result.
        is_large: whether large operands are measured too.
        is_chain: whether the op reads the predecessor's result if this result has the type of the operand.
    """

    op: str
    numpy: Numpy
    other_operands: tuple[str, ...] = ()
    attrs: Mapping[str, GraphAttr] = field(default_factory=lambda: MappingProxyType({}))
    shape: str = "nn"
    dtype: str = "float32"
    is_large: bool = True
    is_chain: bool = True


CASES = (
    Case("add", lambda x, o, out: np.add(x, o[0], out=out), ("nn",)),
    Case("multiply", lambda x, o, out: np.multiply(x, o[0], out=out), ("nn",)),
    Case("divide", lambda x, o, out: np.divide(x, o[0], out=out), ("nn",)),
    Case("nn.bias_add", lambda x, o, out: np.add(x, o[0], out=out), ("n",), {"axis": -1}),
    Case("nn.relu", lambda x, _o, out: np.maximum(x, np.float32(0), out=out)),
    Case("exp", lambda x, _o, out: np.exp(x, out=out), is_chain=False),
    Case("sqrt", lambda x, _o, out: np.sqrt(x, out=out)),
    Case("sigmoid", _sigmoid),
    Case("clip", _clip, (), {"min": -1.0, "max": 1.0}),
    Case("greater", lambda x, o, out: np.greater(x, o[0], out=out), ("nn",), {}, "nn", "bool"),
    Case("where", lambda x, o, _out: np.where(o[0], o[1], x), ("nn bool", "nn")),
    Case("cast", lambda x, _o, _out: x.astype(np.float64), (), {"dtype": "float64"}, "nn", "float64"),
    Case("matmul", lambda x, o, out: np.matmul(x, o[0], out=out), ("nn",), is_large=False),
    Case("nn.dense", lambda x, o, out: np.matmul(x, o[0].T, out=out), ("nn",), is_large=False),
    Case("reshape", lambda x, _o, out: x.reshape(out.shape), (), {"shape": (-1,)}, "m"),
    Case("permute_dims", lambda x, _o, _out: x.transpose((1, 0)), (), {"axes": (1, 0)}),
    Case("concat", lambda x, o, out: np.concatenate((x, o[0]), axis=0, out=out), ("nn",), {"axis": 0}, "2n"),
    Case("take", _take, ("n int64",), {"axis": 0, "mode": "fast"}),
    Case("mean", lambda x, _o, _out: np.mean(x, axis=(1,)), (), {"axis": (1,), "keepdims": False}, "n"),
    Case("max", lambda x, _o, _out: np.max(x, axis=(1,)), (), {"axis": (1,), "keepdims": False}, "n"),
    Case("nn.softmax", _softmax, (), {"axis": -1}),
    Case("nn.layer_norm", _layer_norm, ("n", "n"), {"axes": (-1,), "epsilon": 1e-5}),
)


def run(num_rounds: int) -> dict[str, Any]:
    """Return microseconds of numpy, op and call for each op on 10x10 and most ops on 1000x1000."""
    figures: dict[str, Any] = {"unit": "us"}
    # Many short measurements: the best one was not interrupted.
    for size, num_calls, rounds in ((SMALL, 10, 10 * num_rounds), (LARGE, 1, num_rounds)):
        print(f"  float32[{size}, {size}]: numpy alone; overhead of the op; overhead of a region's call (us)")
        for case in CASES:
            if size == SMALL or case.is_large:
                found = _measure_case(case, size, rounds, num_calls)
                figures[f"{case.op} {size}"] = found
                print(f"  {case.op:14} " + "  ".join(f"{value:10.2f}" for value in found.values()))
    return figures


def _measure_case(case: Case, size: int, num_rounds: int, num_calls: int) -> dict[str, float]:
    shapes = {"nn": (size, size), "n": (size,), "2n": (2 * size, size), "m": (size * size,)}
    rng = np.random.default_rng(0)
    x, *other_operands = (_operand(rng, shapes, text) for text in ("nn", *case.other_operands))
    shape = shapes[case.shape]
    result = GraphTensor(case.dtype, shape)
    is_chain = case.is_chain and result == GraphTensor("float32", x.shape)
    regions = {length: _region(case, length, (x, *other_operands), result, is_chain=is_chain) for length in (1, LENGTH)}
    out = np.empty(shape, case.dtype)
    numpy, rest = case.numpy, tuple(other_operands)

    def loop(length: int) -> None:
        value = x
        for _ in range(length):
            computed = numpy(value, rest, out)
            if is_chain:
                value = computed

    seconds = measure(
        {
            "region 1": time_call(lambda: regions[1](x, *other_operands, out), num_calls=num_calls),
            "region": time_call(lambda: regions[LENGTH](x, *other_operands, out), num_calls=num_calls),
            "numpy 1": time_call(lambda: loop(1), num_calls=num_calls),
            "numpy": time_call(lambda: loop(LENGTH), num_calls=num_calls),
        },
        num_rounds=num_rounds,
    )
    best = {name: 1e6 * found.best for name, found in seconds.items()}
    numpy_op = (best["numpy"] - best["numpy 1"]) / (LENGTH - 1)
    return {
        "numpy": numpy_op,
        "op adds": (best["region"] - best["region 1"]) / (LENGTH - 1) - numpy_op,
        "call adds": best["region 1"] - best["numpy 1"],
    }


def _operand(rng: np.random.Generator, shapes: Mapping[str, tuple[int, ...]], text: str) -> Array:
    name, _, dtype = text.partition(" ")
    shape = shapes[name]
    if dtype == "int64":
        return rng.integers(0, shape[0], shape)
    numbers = rng.random(shape, np.float32) + np.float32(0.5)
    return numbers > 1 if dtype == "bool" else numbers


def _region(
    case: Case, length: int, operands: tuple[Array, ...], result: GraphTensor, *, is_chain: bool
) -> Callable[..., object]:
    """Return the bare implementation of a function of ``length`` nodes, with the last node's result as the result."""
    inputs = tuple(TensorSpec(f"x{i}", array.dtype.name, array.shape) for i, array in enumerate(operands))
    other_values = range(1, len(operands))
    first = len(operands)
    # `where` has the value of the chain as its last operand.
    reads = [0 if index == 0 or not is_chain else first + index - 1 for index in range(length)]
    nodes = tuple(
        GraphNode(
            case.op, (*other_values, read) if case.op == "where" else (read, *other_values), (result,), case.attrs
        )
        for read in reads
    )
    function = GraphFunction("f", inputs, (), nodes, (("y", first + length - 1),))
    return GraphModule(GraphDocument({"f": function}), {}).get_function("f").impl
