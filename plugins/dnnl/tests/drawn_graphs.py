"""Random graphs of float32 ops computed by oneDNN: values read twice, views, residuals, unit axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.dims import Dim, symbol
from byoc_core.errors import ByocError
from byoc_core.ir import Constant, Function, FunctionBuilder, IRModule, TensorType, Value, Var
from byoc_core.ops import default_ops
from byoc_core.transform import evaluate_binding

__all__ = ["DrawnGraph"]

NDArray = npt.NDArray[Any]

_LARGEST = 50.0
"""Values growing beyond are rejected: large values hide errors in small values."""

_FUNCTIONS: Mapping[str, Mapping[str, Any]] = {
    "abs": {},
    "clip": {"min": -0.75, "max": 0.5},
    "exp": {},
    "log": {},
    "negative": {},
    "nn.celu": {},
    "nn.elu": {"alpha": 0.5},
    "nn.gelu": {"approximate": "tanh"},
    "nn.hard_sigmoid": {},
    "nn.hard_swish": {},
    "nn.leaky_relu": {"alpha": 0.1},
    "nn.mish": {},
    "nn.relu": {},
    "nn.selu": {},
    "nn.softplus": {},
    "nn.softsign": {},
    "nn.swish": {},
    "sigmoid": {},
    "tanh": {},
}
_BINARIES = ("add", "add", "add", "multiply", "subtract", "maximum", "minimum", "divide")
_SYMBOLIC = 11
"""The number of images, if a symbol: a size dividing no other."""
_CHANNELS = (1, 2, 3, 8, 16, 17, 32)

Step = tuple[str, Sequence[Value], Mapping[str, Any]]


class DrawnGraph:
    """A function of one to three inputs, and inputs keeping all values moderate.

    Args:
        generator: of all random numbers.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator
        self._builder = FunctionBuilder("f", ops=default_ops())
        self._is_dynamic = self._happens(0.2)
        self._images = _SYMBOLIC if self._is_dynamic else self._choose((1, 1, 2, 3))
        self._arrays: dict[int, NDArray] = {}
        self._values: list[Value] = []
        self._constants: list[Value] = []
        self._shapes: list[tuple[int, ...]] = []
        self._read: set[int] = set()
        first = self._shape()
        for number in range(self._choose((1, 1, 2, 3))):
            self._add_input(number, first if self._happens(0.7) else self._shape())
        wanted = int(generator.integers(3, 13))
        taken = 0
        for _ in range(6 * wanted):
            taken += self._grow()
            if taken == wanted:
                break
        self._num_ops = taken
        self.function: Function = self._builder.finish(*self._results())
        self.module = IRModule({"f": self.function}, self._builder.constants)

    def inputs(self, images: int | None = None) -> list[NDArray]:
        """Return new inputs, with other sizes for a symbolic number of images."""
        images = images if images is not None and self._is_dynamic else self._images
        shapes = [(images, *shape[1:]) for shape in self._shapes]
        return [self._generator.standard_normal(shape).astype(np.float32) for shape in shapes]

    def evaluate(self, inputs: Sequence[NDArray], noise: float, seed: int) -> list[NDArray]:
        """Return the results in float64, with noise on each step relative to the largest number in the step."""
        generator = np.random.default_rng(seed)
        values: dict[Value, NDArray] = dict(zip(self.function.params, inputs, strict=True))
        for binding in self.function.bindings:
            operands = [self._array(value, values) for value in binding.operands]
            results = evaluate_binding(binding, operands, {"n": inputs[0].shape[0]})
            largest = max(map(_magnitude, (*operands, *results)))
            for value, result in zip(binding.results, results, strict=True):
                values[value] = result + noise * largest * generator.uniform(-1, 1, result.shape)
        return [self._array(value, values) for value in self.function.results]

    def _array(self, value: Value, values: Mapping[Value, NDArray]) -> NDArray:
        array = self.module.constants[value.digest] if isinstance(value, Constant) else values[value]
        return array.astype(np.float64)

    def _choose(self, options: Sequence[Any]) -> Any:
        return options[int(self._generator.integers(len(options)))]

    def _happens(self, probability: float) -> bool:
        return bool(self._generator.random() < probability)

    def _shape(self) -> tuple[int, ...]:
        rank = self._choose((2, 3, 4, 4, 4))
        if rank == 4:
            side = self._choose((1, 4, 6, 7))
            return (self._images, self._choose(_CHANNELS), side, self._choose((side, 1, 5)))
        if rank == 3:
            return (self._images, self._choose((1, 4, 16, 32)), self._choose((1, 8, 16, 17)))
        return (self._images, self._choose((1, 8, 16, 17, 64)))

    def _add_input(self, number: int, shape: tuple[int, ...]) -> Var:
        first: Dim = symbol("n") if self._is_dynamic else shape[0]
        param = self._builder.param(f"x{number}", TensorType((first, *shape[1:]), "float32"))
        self._shapes.append(shape)
        self._keep(param, self._generator.standard_normal(shape))
        return param

    def _keep(self, value: Value, array: NDArray) -> None:
        self._arrays[id(value)] = array.astype(np.float64)
        self._values.append(value)

    def _size(self, value: Value) -> tuple[int, ...]:
        return self._arrays[id(value)].shape

    def _any_value(self) -> Value:
        return self._values[int(self._generator.integers(len(self._values)))]

    def _constant(self, *shape: int, positive: bool = False) -> Value:
        """Return a constant; now and then an existing constant if it fits."""
        there = [value for value in self._constants if self._size(value) == shape]
        if there and self._happens(0.4) and not positive:
            return there[int(self._generator.integers(len(there)))]
        array = (self._generator.standard_normal(shape) / math.sqrt(max(1, math.prod(shape[1:])))).astype(np.float32)
        value = self._builder.const(np.abs(array) + np.float32(0.5) if positive else array)
        self._arrays[id(value)] = (np.abs(array) + np.float32(0.5) if positive else array).astype(np.float64)
        self._constants.append(value)
        return value

    def _grow(self) -> bool:
        """Add an op on existing values; return whether this was possible."""
        x = self._values[-1] if self._happens(0.8) else self._any_value()
        step = self._choose(_STEPS)(self, x) if self._size(x) else self.function_step(x)
        return step is not None and self._emit(*step)

    def _emit(self, op: str, operands: Sequence[Value], attrs: Mapping[str, Any]) -> bool:
        arrays = [self._arrays[id(operand)] for operand in operands]
        fixed = [size for operand in operands if isinstance(operand, Constant) for size in self._size(operand)]
        if self._is_dynamic and any(size % _SYMBOLIC == 0 for size in fixed):
            return False
        if op == "divide" and np.min(np.abs(arrays[1])) < 0.1:
            return False
        probe = FunctionBuilder("probe", ops=default_ops())
        params = [probe.param(f"v{number}", operand.type) for number, operand in enumerate(operands)]
        try:
            tried = probe.bind(op, params, attrs)
            with np.errstate(all="ignore"):
                results = evaluate_binding(tried, arrays, {"n": self._images})
        except (ByocError, ValueError):  # the sizes do not fit; where one is a symbol the kernel says so
            return False
        if any(not result.size or not np.max(np.abs(result)) < _LARGEST or result.size > 1 << 17 for result in results):
            return False
        binding = self._builder.bind(op, operands, attrs)
        self._read |= {id(operand) for operand in operands}
        for value, result in zip(binding.results, results, strict=True):
            self._keep(value, result)
        return True

    def _results(self) -> list[Value]:
        """Return the unread values, now and then another value, an input, and a repetition."""
        made = self._values[len(self._shapes) :]
        results = [value for value in made if id(value) not in self._read or self._happens(0.12)]
        if self._happens(0.05):
            results.append(self._values[0])
        if results and self._happens(0.08):
            results.append(self._choose(results))
        return results or [self._values[-1]]

    # Steps: each gives an op with operands and attributes, or None where it does not fit the value.

    def function_step(self, x: Value) -> Step:
        op = self._choose(list(_FUNCTIONS))
        return op, [x], _FUNCTIONS[op]

    def binary(self, x: Value) -> Step:
        """The other operand is a value, or repeated along some axes; either may come first."""
        sizes, kind = self._size(x), self._generator.random()
        op = self._choose(_BINARIES)
        alike = [value for value in self._values if self._size(value) == sizes]
        if kind < 0.45:
            other = self._choose(alike)
        elif kind < 0.6:
            other = self._any_value()
        else:
            repeated = 0.5 if self._happens(0.7) else 0.0
            some = [1 if self._happens(repeated) else size for size in sizes]
            some[0] = 1 if self._is_dynamic else some[0]
            cut = int(self._generator.integers(len(some))) if self._happens(0.3) else 0
            other = self._constant(*some[cut:], positive=op == "divide")
        return op, [x, other] if self._happens(0.6) else [other, x], {}

    def residual(self, x: Value) -> Step:
        """Add a value of the same sizes: the oldest value except inputs."""
        sizes = self._size(x)
        made = [value for value in self._values[len(self._shapes) :] if self._size(value) == sizes and value is not x]
        return "add", [x, made[0]] if made else [x, x], {}

    def function_of_sum(self, x: Value) -> Step:
        """Apply a function to each element of a residual sum, or of the value if no sum is possible."""
        return self.function_step(self._values[-1] if self._emit(*self.residual(x)) else x)

    def convolution_of_residual(self, x: Value) -> Step | None:
        """Add a convolution keeping the operand's sizes, and the sum of both or of earlier values."""
        sizes = self._size(x)
        if len(sizes) != 4:
            return None
        weights = self._constant(sizes[1], sizes[1], 1, 1)
        if not self._emit("nn.conv2d", [x, weights], {}):
            return None
        self._emit(*self.bias(self._values[-1]))
        return self.function_of_sum(self._values[-1])

    def bias(self, x: Value) -> Step:
        axis = int(self._generator.integers(len(self._size(x))))
        return "nn.bias_add", [x, self._constant(self._size(x)[axis])], {"axis": axis}

    def convolution(self, x: Value) -> Step | None:
        sizes = self._size(x)
        rank = len(sizes) - 2
        if rank not in (1, 2):
            return None
        channels = sizes[1]
        groups = self._choose([group for group in (1, 1, 2, channels) if channels % group == 0])
        outputs = groups * self._choose((1, 2, 8)) if groups > 1 else self._choose((*_CHANNELS, channels, channels))
        kernel = [self._choose((1, 1, 3)) for _ in range(rank)]
        padding = [size // 2 for size in kernel] * 2 if self._happens(0.8) else [0] * 2 * rank
        attrs = {
            "groups": groups,
            "padding": tuple(padding),
            "strides": (self._choose((1, 1, 1, 2)),) * rank,
        }
        if self._happens(0.15) and rank == 2:  # the axes in another order
            return (
                "nn.conv2d",
                [x, self._constant(outputs, sizes[3] if groups == 1 else 1, 1, 1)],
                {"data_layout": "NHWC"},
            )
        return f"nn.conv{rank}d", [x, self._constant(outputs, channels // groups, *kernel)], attrs

    def dense(self, x: Value) -> Step:
        inner = self._size(x)[-1]
        outer = self._choose((1, 3, 8, 16, 32, inner, inner))
        if self._happens(0.5):
            return "nn.dense", [x, self._constant(outer, inner)], {}
        return "matmul", [x, self._constant(inner, outer)], {}

    def flattened(self, x: Value) -> Step | None:
        """Multiply all elements of an image by constant weights."""
        sizes, shape = self._size(x), x.type.shape if isinstance(x.type, TensorType) else None
        inner = math.prod(sizes[1:])
        if len(sizes) < 3 or inner > 1 << 11 or not shape:
            return None
        if not self._emit("reshape", [x], {"shape": (shape[0], inner)}):
            return None
        x, outer = self._values[-1], self._choose((1, 3, 16))
        if self._happens(0.2) and self._emit("abs", [self._constant(inner, outer)], {}):
            return "matmul", [x, self._values[-1]], {}
        if self._happens(0.5):
            return "nn.dense", [x, self._constant(outer, inner)], {}
        return "matmul", [x, self._constant(inner, outer)], {}

    def product(self, x: Value) -> Step | None:
        """Multiply two values, or a constant and a value."""
        sizes = self._size(x)
        if len(sizes) < 2:
            return None
        others = [value for value in self._values if len(self._size(value)) > 1 and self._size(value)[-2] == sizes[-1]]
        if others and self._happens(0.8):
            return "matmul", [x, self._choose(others)], {}
        return "matmul", [self._constant(self._choose((1, 4, 16)), sizes[-2]), x], {}

    def turned(self, x: Value) -> Step:
        """Swap the last two axes, for a product with an existing value."""
        rank = len(self._size(x))
        axes = [*range(rank - 2), rank - 1, rank - 2] if rank > 1 else [0]
        return "permute_dims", [x], {"axes": tuple(axes)}

    def permutation(self, x: Value) -> Step:
        axes = self._generator.permutation(len(self._size(x)))
        return "permute_dims", [x], {"axes": tuple(map(int, axes))}

    def reshape(self, x: Value) -> Step | None:
        """Merge two axes, or split an axis in two."""
        shape = list(x.type.shape or ()) if isinstance(x.type, TensorType) else []
        if len(shape) > 1 and self._happens(0.5):
            at = int(self._generator.integers(len(shape) - 1))
            first, second = shape[at : at + 2]
            return "reshape", [x], {"shape": (*shape[:at], first * second, *shape[at + 2 :])}
        if len(shape) in (0, 5):
            return None
        at = int(self._generator.integers(len(shape)))
        size = shape[at]
        if not isinstance(size, int):
            return None
        factor = self._choose([factor for factor in (1, 2, 4, size) if size % factor == 0])
        pair = (factor, size // factor) if self._happens(0.5) else (size // factor, factor)
        return "reshape", [x], {"shape": (*shape[:at], *pair, *shape[at + 1 :])}

    def unit_axis(self, x: Value) -> Step:
        sizes = self._size(x)
        ones = [axis for axis, size in enumerate(sizes) if size == 1 and (axis or not self._is_dynamic)]
        if ones and self._happens(0.5):
            return "squeeze", [x], {"axis": (self._choose(ones),)}
        return "expand_dims", [x], {"axis": (int(self._generator.integers(len(sizes) + 1)),)}

    def pooling(self, x: Value) -> Step | None:
        sizes = self._size(x)
        rank = len(sizes) - 2
        if rank not in (1, 2):
            return None
        kind, window = self._choose(("max", "avg")), self._choose((1, 2, 3))
        if self._happens(0.2):
            return f"nn.adaptive_{kind}_pool{rank}d", [x], {"output_size": (1,) * rank}
        padding = (window // 2,) * 2 * rank if self._happens(0.5) else (0,) * 2 * rank
        attrs = {"pool_size": (window,) * rank, "strides": (self._choose((1, 2)),) * rank, "padding": padding}
        return f"nn.{kind}_pool{rank}d", [x], attrs

    def softmax(self, x: Value) -> Step:
        rank = len(self._size(x))
        op = "nn.log_softmax" if self._happens(0.2) else "nn.softmax"
        return op, [x], {"axis": -1 if self._happens(0.7) else int(self._generator.integers(rank))}

    def normalisation(self, x: Value) -> Step | None:
        sizes = self._size(x)
        kind = self._choose(("layer", "layer", "batch", "batch", "group", "instance", "rms"))
        if kind in ("layer", "rms"):
            gamma, beta = (self._constant(sizes[-1]) for _ in range(2))
            operands = [x, gamma, beta] if kind == "layer" else [x, gamma]
            return f"nn.{kind}_norm", operands, {"axes": (-1,), "epsilon": 0.01}
        if len(sizes) < 2:
            return None
        gamma, beta, mean = (self._constant(sizes[1]) for _ in range(3))
        if kind == "batch":
            return "nn.batch_norm", [x, gamma, beta, mean, self._constant(sizes[1], positive=True)], {}
        attrs = {"groups": self._choose([g for g in (1, 2, 4) if sizes[1] % g == 0])} if kind == "group" else {}
        return f"nn.{kind}_norm", [x, gamma, beta], {**attrs, "epsilon": 0.01}

    def concat(self, x: Value) -> Step:
        sizes = self._size(x)
        axis = int(self._generator.integers(len(sizes)))
        fitting = [
            value
            for value in self._values
            if len(self._size(value)) == len(sizes)
            and all(a == b for k, (a, b) in enumerate(zip(sizes, self._size(value), strict=True)) if k != axis)
        ]
        parts = [x, *(self._choose(fitting) for _ in range(self._choose((1, 1, 2))))]
        if self._happens(0.15) and not self._is_dynamic:
            parts.append(self._constant(*sizes))
        return ("stack" if self._happens(0.1) else "concat"), parts, {"axis": axis}

    def pieces(self, x: Value) -> Step | None:
        sizes = self._size(x)
        axis = int(self._generator.integers(len(sizes)))
        size = sizes[axis]
        if self._happens(0.2):
            return "roll", [x], {"shift": (self._choose((1, 2)),), "axis": (axis,)}
        if self._happens(0.5):
            first = max(1, size // self._choose((2, 2, 3)))
            return "split", [x], {"sections": (first, size - first) if size > first else (size,), "axis": axis}
        begin = int(self._generator.integers(size))
        end = int(self._generator.integers(begin, size)) + 1
        bounds = {"axes": (axis,), "begin": (begin,), "end": (end,), "strides": (self._choose((1, 1, 2, 3)),)}
        return "strided_slice", [x], bounds

    def reduction(self, x: Value) -> Step:
        rank = len(self._size(x))
        count = int(self._generator.integers(1, rank + 1))
        axes = tuple(sorted(map(int, self._generator.choice(rank, count, replace=False))))
        attrs = {"axis": axes, "keepdims": self._happens(0.6)}
        return self._choose(("mean", "sum", "max", "min")), [x], attrs

    def layout(self, x: Value) -> Step | None:
        sizes = self._size(x)
        if len(sizes) != 4:
            return None
        if self._happens(0.4):
            attrs = {"axes": (2, 3), "sizes": (2 * sizes[2], 2 * sizes[3])}
            return "nn.resize", [x], {**attrs, "method": self._choose(("nearest", "linear"))}
        return self._choose(("depth_to_space", "space_to_depth")), [x], {"block_size": 2}

    def slope(self, x: Value) -> Step:
        sizes = self._size(x)
        some = [1 if self._happens(0.6) else size for size in sizes]
        some[0] = 1
        return "nn.prelu", [x, self._constant(*some)], {}


def _magnitude(array: NDArray) -> float:
    return float(np.max(np.abs(array), initial=0.0, where=np.isfinite(array)))


_STEPS: tuple[Callable[[DrawnGraph, Value], Step | None], ...] = (
    *(DrawnGraph.function_step,) * 4,
    *(DrawnGraph.binary,) * 5,
    *(DrawnGraph.residual,) * 3,
    *(DrawnGraph.function_of_sum,) * 2,
    *(DrawnGraph.convolution_of_residual,) * 5,
    *(DrawnGraph.bias,) * 2,
    *(DrawnGraph.convolution,) * 6,
    *(DrawnGraph.dense,) * 3,
    *(DrawnGraph.flattened,) * 2,
    *(DrawnGraph.product,) * 3,
    *(DrawnGraph.turned, DrawnGraph.permutation, DrawnGraph.permutation, DrawnGraph.reshape, DrawnGraph.reshape),
    *(DrawnGraph.unit_axis, DrawnGraph.pooling, DrawnGraph.pooling, DrawnGraph.softmax, DrawnGraph.softmax),
    *(DrawnGraph.normalisation,) * 2,
    *(DrawnGraph.concat, DrawnGraph.concat, DrawnGraph.pieces, DrawnGraph.pieces),
    *(DrawnGraph.reduction, DrawnGraph.layout, DrawnGraph.slope),
)
