"""Products and convolutions of random sizes, among views and broadcast operands, to the last bit.

    python -m plugins.ccompiler.tests.random_products --sources 100 --seed 1
    python -m plugins.ccompiler.tests.random_products --seed 4711

A source has several functions; each runs with several sizes of the symbols, including 0 and 1. The second line tries a
single source. Numbers are small and whole, so sums are exact in any order, also in the reference kernels. To find reads
and writes out of place:

    python -m core.tests.sanitizers.run address --python '-m plugins.ccompiler.tests.random_products --sources 100'
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import byoc_ccompiler.codegen as codegen
import numpy as np
import numpy.typing as npt
from byoc_ccompiler.kernel import KernelContext
from byoc_ccompiler.options import CCompilerOptions
from byoc_ccompiler.vector_unit import VectorUnit
from byoc_core.authoring.csource_scope import FunctionScope
from byoc_core.dims import Dim, DimExpr, evaluate, is_name, symbol
from byoc_core.errors import ByocError, IRTypeError
from byoc_core.ir import Function, FunctionBuilder, TensorType, Value, Var

from plugins.ccompiler.tests.bench import Bench

NDArray = npt.NDArray[Any]
KNOWN_SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 48, 64, 65, 100)
SYMBOL_SIZES = (0, 1, 1, 2, 3, 5, 8, 16, 17, 33, 49, 64, 70)
FUNCTIONS, RUNS = 6, 4
"""Functions of a source, and how often each runs."""


def _shape(value: Value) -> tuple[Dim, ...]:
    assert isinstance(value.type, TensorType)
    assert value.type.shape is not None
    return value.type.shape


@dataclass
class Case:
    """A function under construction.

    Attributes:
        rng: draws.
        builder: the function.
        dtype: of all tensors.
        draws: by symbol, a function of the earlier drawn sizes returning the size.
        orders: by name, the axes of a parameter in memory order.
        is_product: whether there is a matrix product, rather than a convolution with operands moved beforehand.
        whole: the parameters not read by views.
    """

    rng: random.Random
    builder: FunctionBuilder
    dtype: str
    draws: dict[str, Callable[[Mapping[str, int]], int]] = field(default_factory=dict)
    orders: dict[str, tuple[int, ...]] = field(default_factory=dict)
    is_product: bool = False
    full_params: list[Var] = field(default_factory=list)
    num_params: int = 0

    def emit(self, op: str, *operands: Value, **attrs: object) -> Value:
        return self.builder.bind(op, operands, attrs).results[0]

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def new_symbol(self, draw: Callable[[Mapping[str, int]], int]) -> DimExpr:
        name = f"n{len(self.draws)}"
        self.draws[name] = draw
        return symbol(name)

    def size(self, sizes: Sequence[int] = KNOWN_SIZES) -> Dim:
        if self.chance(0.6):
            return self.rng.choice(sizes)
        if self.draws and self.chance(0.3):
            return symbol(self.rng.choice(sorted(self.draws)))
        return self.new_symbol(lambda _: self.rng.choice(SYMBOL_SIZES))

    def fitting(self, dim: Dim) -> Dim:
        """Return a size broadcasting to another size, perhaps a symbol with value 1, or the same size."""
        if self.chance(0.25):
            return 1
        if dim == 1:
            return self.new_symbol(lambda _: self.rng.choice(SYMBOL_SIZES)) if self.chance(0.15) else 1
        is_plain = isinstance(dim, int) or is_name(str(dim))
        if is_plain and self.chance(0.7):
            return dim
        return self.new_symbol(lambda sizes: 1 if self.chance(0.5) else evaluate(dim, sizes))

    def fresh(self, shape: Sequence[Dim]) -> Value:
        """Return a parameter or a constant."""
        if all(isinstance(dim, int) for dim in shape) and self.chance(0.25):
            return self.builder.const(_draw_array(self.rng, [int(str(dim)) for dim in shape], self.dtype))
        self.num_params += 1
        return self.builder.param(f"p{self.num_params}", TensorType(tuple(shape), self.dtype))

    def operand(self, shape: Sequence[Dim]) -> Value:
        """Return a value of a shape: a parameter, or the result of a view or an op on a parameter."""
        kind = self.rng.choice(("plain", "plain", "turned", "sliced", "part", "made", "joined", "grown"))
        axis = self.rng.randrange(len(shape)) if shape else 0
        if not shape or kind == "plain":
            value = self.fresh(shape)
            self.full_params += [value] if isinstance(value, Var) else []
            return value
        if kind == "turned":
            axes = self.rng.sample(range(len(shape)), len(shape))
            inverse = tuple(axes.index(own) for own in range(len(shape)))
            return self.emit("permute_dims", self.fresh([shape[own] for own in axes]), axes=inverse)
        if kind in ("sliced", "part", "joined") and isinstance(size := shape[axis], int):
            return self._cut(shape, axis, size, kind)
        if kind == "grown":
            at = self.rng.randrange(len(shape) + 1)
            stacked = self.fresh((*shape[:at], 1, *shape[at:]))
            return self.emit("squeeze", stacked, axis=(at,))
        return self.emit(self.rng.choice(("negative", "nn.relu")), self.fresh(shape))

    def _cut(self, shape: Sequence[Dim], axis: int, size: int, kind: str) -> Value:
        def resized(length: int) -> Value:
            return self.fresh((*shape[:axis], length, *shape[axis + 1 :]))

        before, after = self.rng.randrange(4), self.rng.randrange(4)
        if kind == "sliced":
            bounds = {"axes": (axis,), "begin": (before,), "end": (before + size,), "strides": (1,)}
            return self.emit("strided_slice", resized(before + size + after), **bounds)
        if kind == "part":
            sections = {"sections": (before, size, after), "axis": axis}
            return self.builder.bind("split", [resized(before + size + after)], sections).results[1]
        first = self.rng.randrange(size + 1)
        parts = [self.emit("negative", resized(first)), self.emit("nn.relu", resized(size - first))]
        return self.emit("concat", *parts, axis=axis)

    def anchor(self) -> Value:
        kind = self.rng.choice(("matmul", "matmul", "dense", "conv"))
        if kind == "conv":
            return self._convolution()
        self.is_product = True
        depth = self.size()
        lead = [self.size((1, 2, 3, 5)) for _ in range(self.rng.choice((0, 0, 1, 2)))]
        x = self.operand([*lead, self.size(), depth] if kind == "dense" or self.chance(0.9) else [depth])
        columns = self.rng.choice((1, 2)) if self.chance(0.3) else self.size()
        if kind == "dense":
            return self.emit("nn.dense", x, self.operand([columns, depth]))
        if self.chance(0.1):
            return self.emit("matmul", x, self.operand([depth]))
        stack = [self.fitting(dim) for dim in lead[self.rng.randrange(len(lead) + 1) :]] if self.chance(0.6) else []
        return self.emit("matmul", x, self.operand([*stack, depth, columns]))

    def _convolution(self) -> Value:
        groups = self.rng.choice((1, 1, 2, 4))
        depth, out_channels = groups * self.rng.choice((1, 2, 5, 16)), groups * self.rng.choice((1, 2, 3, 16))
        image = [self.size((1, 3, 4, 7, 9, 16)) for _ in range(2)]
        window = [self.rng.choice((1, 2, 3)) for _ in range(2)]
        attrs = {
            "groups": groups,
            "strides": tuple(self.rng.choice((1, 1, 2)) for _ in range(2)),
            "dilation": tuple(self.rng.choice((1, 1, 2)) for _ in range(2)),
            "padding": tuple(self.rng.randrange(3) for _ in range(4)),
        }
        if any(isinstance(n, int) and n + 1 < 2 * k for n, k in zip(image, window, strict=True)):
            attrs["padding"] = (2, 2, 2, 2)
        x = self.operand([self.size((1, 2, 3)), depth, *image])
        return self.emit("nn.conv2d", x, self.operand([out_channels, depth // groups, *window]), **attrs)

    def extend(self, value: Value) -> list[Value]:
        """Return the results: the anchor with following ops, with broadcast operands, and perhaps moved."""
        results = [value] if self.chance(0.15) else []
        for _ in range(self.rng.choice((0, 1, 1, 2, 3))):
            if self.chance(0.25):
                value = self.emit(self.rng.choice(("nn.relu", "negative")), value)
                continue
            dims = [self.fitting(dim) for dim in _shape(value)]
            other = self.operand(dims[self.rng.randrange(len(dims) + 1) :])
            pair = (value, other) if self.chance(0.5) else (other, value)
            value = self.emit(self.rng.choice(("add", "subtract", "maximum", "minimum")), *pair)
            results += [value] if self.chance(0.1) else []
        rank = len(_shape(value))
        kind = self.rng.choice(("none", "none", "turned", "sum", "joined", "sliced"))
        axis = self.rng.randrange(rank) if rank else 0
        if kind == "turned":
            value = self.emit("permute_dims", value, axes=tuple(self.rng.sample(range(rank), rank)))
        elif kind == "sum" and rank:
            value = self.emit("sum", value, axis=(axis,), keepdims=self.chance(0.5))
        elif kind == "joined" and rank:
            value = self.emit("concat", value, self.emit("negative", value), axis=axis)
        elif kind == "sliced" and rank:
            value = self.emit("strided_slice", value, axes=(axis,), begin=(1,), end=(1 << 20,), strides=(2,))
        return [*results, value]

    def lay_out(self) -> None:
        """Let some parameters lie in memory in another order of axes, except the last axis."""
        for param in self.full_params if self.is_product else ():
            rank = len(_shape(param))
            if rank > 2 and self.chance(0.3):
                self.orders[param.name] = (*self.rng.sample(range(rank - 1), rank - 1), rank - 1)

    def sizes(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for name, draw in self.draws.items():
            sizes[name] = draw(sizes)
        return sizes


def _draw_array(rng: random.Random, shape: Sequence[int], dtype: str) -> NDArray:
    return np.random.default_rng(rng.randrange(1 << 32)).integers(-3, 4, shape).astype(dtype)


def grow(rng: random.Random, builder: FunctionBuilder) -> tuple[Case, list[Value]]:
    """Return a case and the results of the case's function."""
    case = Case(rng, builder, rng.choice(("float32", "float32", "float64", "int32")))
    results = case.extend(case.anchor())
    case.lay_out()
    return case, results


def in_memory(array: NDArray, order: tuple[int, ...] | None) -> NDArray:
    """Return an array of the shape of another array, with the other's axes in a given order in memory."""
    return array if order is None else np.ascontiguousarray(array.transpose(order)).reshape(array.shape)


def _strides(shape: Sequence[Dim], order: Sequence[int]) -> tuple[Dim, ...]:
    found: list[Dim] = [0] * len(shape)
    step: Dim = 1
    for axis in reversed(order):
        found[axis] = step
        step = step * shape[axis]
    return tuple(found)


class LaidOut:
    """A :class:`KernelContext` with parameters laid out as in their cases."""

    def __init__(self) -> None:
        self.orders: dict[Function, Mapping[str, tuple[int, ...]]] = {}

    def context(
        self,
        scope: FunctionScope,
        unit: VectorUnit,
        options: CCompilerOptions,
        strides: Mapping[Value, tuple[Dim, ...]],
    ) -> KernelContext:
        orders = next((o for f, o in self.orders.items() if f.name == scope.function.name), {})
        params = [param for param in scope.function.params if param.name in orders]
        strides_of: dict[Value, tuple[Dim, ...]] = {
            param: _strides(_shape(param), orders[param.name]) for param in params
        }
        return KernelContext(scope, unit, options, {**strides, **strides_of})


def try_seed(seed: int, **options: object) -> int:
    """Try the source of a seed, and return the number of runs of functions.

    Raises:
        AssertionError: a result is wrong; the text has the function and the sizes.
    """
    rng = random.Random(seed)
    drawn = {"opt_level": rng.choice((1, 2, 3)), "march": rng.choice(("native", "generic")), "winograd": "f2"}
    bench, laid_out = Bench(**{**drawn, **options}), LaidOut()
    cases: list[tuple[Case, Function]] = []
    while len(cases) < FUNCTIONS:
        try:
            case, results = grow(rng, bench.builder())
        except IRTypeError:
            continue
        function = bench.add(case.builder, *results)
        laid_out.orders[function] = case.orders
        cases.append((case, function))
    with patch.object(codegen, "KernelContext", laid_out.context):
        bench.module  # noqa: B018 - generates the code
    return sum(_try_sizes(bench, case, function, seed) for case, function in cases for _ in range(RUNS))


def _try_sizes(bench: Bench, case: Case, function: Function, seed: int) -> int:
    sizes = case.sizes()
    results = [[evaluate(dim, sizes) for dim in _shape(result)] for result in function.results]
    if any(size < 0 for shape in results for size in shape):
        return 0
    inputs = [
        _draw_array(case.rng, [evaluate(dim, sizes) for dim in _shape(param)], case.dtype) for param in function.params
    ]
    arrays = [in_memory(x, case.orders.get(param.name)) for x, param in zip(inputs, function.params, strict=True)]
    where = f"seed {seed}, sizes {sizes}, orders {case.orders}, options {bench.options}\n{function}"
    expected = _or_refused(lambda: bench.reference(function, *inputs))
    actual = _or_refused(lambda: bench.run(function, *arrays))
    if expected is None or actual is None:
        assert expected is actual, f"refused by one only: {where}"
        return 1
    for output, reference in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(output, reference, err_msg=where)
    return 1


def _or_refused(run: Callable[[], tuple[NDArray, ...]]) -> tuple[NDArray, ...] | None:
    """Return results; ``None`` if the image is smaller than the window."""
    try:
        return run()
    except ByocError as error:
        if "the padded image" not in str(error):
            raise
        return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=int, default=1, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="of the first; the next ones follow")
    arguments = parser.parse_args()
    runs, failures = 0, 0
    for seed in range(arguments.seed, arguments.seed + arguments.sources):
        try:
            runs += try_seed(seed)
        except Exception as error:
            failures += 1
            print(f"{type(error).__name__}: {error}", flush=True)
    print(f"{runs} runs of functions from {arguments.sources} sources, {failures} of which failed")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
