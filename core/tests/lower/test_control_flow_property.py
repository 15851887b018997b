"""Random programs of nested branches and loops, symbolic and learnt sizes: the machine gives the interpreter's bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
from byoc_core import build, parse
from byoc_core.artifact import Executable
from byoc_core.dims import evaluate, symbol
from byoc_core.ir import Function, FunctionBuilder, IRModule, TensorType, Value, tensor, verify
from byoc_core.ops import default_ops
from byoc_core.transform import Sequential, default_passes, evaluate_function
from byoc_core.vm import VirtualMachine
from byoc_core.vm.program import ALIGNMENT, VMFunction, nbytes_of
from hypothesis import given
from hypothesis import strategies as st

FLAG, COUNT, ROW = tensor((), "bool"), tensor((), "int64"), tensor((3,))
TABLE = tensor(("n", 3))

Draw = Callable[[st.SearchStrategy[Any]], Any]


class Maker:
    """A strategy for a function; every body may use the sizes known outside, and only the own parameters.

    With ``is_growing``, rounds may change sizes, and branches may differ in sizes.
    """

    def __init__(self, draw: Draw, *, is_growing: bool = True) -> None:
        self.draw = draw
        self.is_growing = is_growing
        self.numbers = count()

    def module(self) -> IRModule:
        fb = FunctionBuilder("main", ops=default_ops())
        values: list[Value] = [
            fb.param("flag", FLAG),
            fb.param("trips", COUNT),
            fb.param("row", ROW),
            fb.param("table", TABLE),
        ]
        self.fill(fb, values, ["n"], depth=0)
        results = self.draw(st.lists(st.sampled_from(values), min_size=1, max_size=4))
        results.append(fb.const(np.arange(3, dtype=np.float32)))
        return IRModule({"main": fb.finish(values[-1], *results)}, fb.constants)

    def fill(self, fb: FunctionBuilder, values: list[Value], sizes: list[str], depth: int) -> None:
        makers = [self.unary, self.binary, self.broadcast, self.reduce, self.compare, self.select]
        if depth < 3:
            makers += [self.branch, self.branch, self.loop, self.loop]
            makers += [self.grow, self.open_branch] if self.is_growing else []
        for _ in range(self.draw(st.integers(1, 6 if depth == 0 else 3))):
            self.draw(st.sampled_from(makers))(fb, values, sizes, depth)

    def pick(self, values: Sequence[Value], *, dtype: str = "float32", rank: int | None = None) -> Value | None:
        fitting = [v for v in values if _type(v).dtype == dtype and rank in (None, _type(v).rank)]
        return self.draw(st.sampled_from(fitting)) if fitting else None

    def unary(self, fb: FunctionBuilder, values: list[Value], sizes: list[str], depth: int) -> None:
        x = self.pick(values)
        if x is not None:
            values += fb.bind(self.draw(st.sampled_from(("negative", "abs", "nn.relu"))), [x], {}).results

    def binary(self, fb: FunctionBuilder, values: list[Value], sizes: list[str], depth: int) -> None:
        x = self.pick(values)
        if x is not None:
            other = self.draw(st.sampled_from([value for value in values if value.type == x.type]))
            values += fb.bind(self.draw(st.sampled_from(("add", "subtract", "maximum"))), [x, other], {}).results

    def broadcast(self, fb: FunctionBuilder, values: list[Value], sizes: list[str], depth: int) -> None:
        size = symbol(self.draw(st.sampled_from(sizes)))
        values += fb.bind("broadcast_to", [self.row(fb, values)], {"shape": (size, 3)}).results

    def row(self, fb: FunctionBuilder, values: list[Value]) -> Value:
        rows = [value for value in values if value.type == ROW]
        return self.draw(st.sampled_from(rows)) if rows else fb.const(np.array([0.5, -2.0, 3.0], np.float32))

    def reduce(self, fb: FunctionBuilder, values: list[Value], sizes: list[str], depth: int) -> None:
        x = self.pick(values, rank=2)
        if x is not None:
            values += fb.bind("sum", [x], {"axis": (0,)}).results

    def compare(self, fb: FunctionBuilder, values: list[Value], sizes: list[str], depth: int) -> None:
        total = fb.bind("sum", [self.row(fb, values)], {"axis": (0,)}).result
        values += fb.bind("less", [total, fb.const(np.float32(4))], {}).results

    def select(self, fb: FunctionBuilder, values: list[Value], sizes: list[str], depth: int) -> None:
        """Keep the rows of a table with a positive sum: their number depends on the data."""
        x = self.pick(values, rank=2)
        if x is None:
            return
        name = f"k{next(self.numbers)}"
        sums = fb.bind("sum", [x], {"axis": (1,)}).result
        mask = fb.bind("less", [fb.const(np.float32(0)), sums], {}).result
        result = fb.bind("compress", [x, mask], {"axis": 0}, out_types=[tensor((name, 3))]).result
        values.append(result)
        sizes.append(name)

    def region(
        self,
        fb: FunctionBuilder,
        name: str,
        types: Sequence[Any],
        sizes: list[str],
        depth: int,
        results: Callable[[FunctionBuilder, list[Value]], Sequence[Value]],
    ) -> Function:
        inner = FunctionBuilder(name, ops=default_ops(), constants=fb.constants)
        values: list[Value] = [inner.param(f"p{i}", type_) for i, type_ in enumerate(types)]
        self.fill(inner, values, list(sizes), depth + 1)
        return inner.finish(*results(inner, values))

    def inputs(self, values: list[Value]) -> list[Value]:
        return self.draw(st.lists(st.sampled_from(values), max_size=3)) if values else []

    def of_types(self, types: Sequence[Any]) -> Callable[[FunctionBuilder, list[Value]], Sequence[Value]]:
        """Return a choice of results of given types: parameters, new values, constants, some twice."""

        def choose(fb: FunctionBuilder, values: list[Value]) -> Sequence[Value]:
            return [self.of_type(fb, values, type_) for type_ in types]

        return choose

    def of_type(self, fb: FunctionBuilder, values: list[Value], type_: TensorType) -> Value:
        fitting = [value for value in values if value.type == type_]
        if fitting:
            drawn: Value = self.draw(st.sampled_from(fitting[-3:]))
            return drawn
        if type_.symbols:
            row = fb.const(np.array([1.0, -1.0, 0.25], np.float32))
            return fb.bind("broadcast_to", [row], {"shape": type_.shape}).result
        return fb.const(np.ones(type_.shape, type_.dtype))

    def types(self, values: list[Value], sizes: list[str]) -> list[Any]:
        candidates = [ROW, *(value.type for value in values if _type(value).symbols <= set(sizes))]
        drawn: list[Any] = self.draw(st.lists(st.sampled_from(candidates), min_size=1, max_size=3))
        return drawn

    def branch(self, fb: FunctionBuilder, values: list[Value], sizes: list[str], depth: int) -> None:
        condition = self.pick(values, dtype="bool", rank=0)
        if condition is None:
            return
        inputs = self.inputs(values)
        types = self.types(values, sizes)
        regions = [
            self.region(fb, name, [value.type for value in inputs], sizes, depth, self.of_types(types))
            for name in ("then_region", "else_region")
        ]
        values += fb.bind("if", [condition, *inputs], {}, regions=regions).results

    def loop(self, fb: FunctionBuilder, values: list[Value], sizes: list[str], depth: int) -> None:
        trips = self.pick(values, dtype="int64", rank=0)
        trips = fb.const(np.int64(self.draw(st.integers(0, 3)))) if trips is None else trips
        going = self.pick(values, dtype="bool", rank=0)
        going = fb.const(np.bool_(True)) if going is None or self.draw(st.booleans()) else going
        carried = self.inputs(values)
        if not carried:
            carried = [self.row(fb, values)]
        types = [value.type for value in carried]
        body = self.region(fb, "body", [COUNT, *types], sizes, depth, self.of_types([FLAG, *types]))
        values += fb.bind("loop", [trips, going, *carried], {}, regions=[body]).results

    def tables(self, values: list[Value]) -> list[Value]:
        return [value for value in values if _type(value).rank == 2]

    def grow(self, fb: FunctionBuilder, values: list[Value], sizes: list[str], depth: int) -> None:
        """Carry tables that lose rows, or gain the same rows; two that change alike share the size."""
        tables = self.tables(values)
        if not tables:
            return
        name = f"g{next(self.numbers)}"
        first: Value = self.draw(st.sampled_from(tables))
        carried = [first, *(value for value in tables[-2:] if value.type == first.type and self.draw(st.booleans()))]
        fixed = self.inputs(values)
        grown = [tensor((name, 3)) for _ in carried]
        gains: Value = self.draw(st.sampled_from(tables))
        captured = [gains, *fixed]
        kept = self.draw(st.sampled_from(("gain", "fill", "select" if len(carried) == 1 else "gain")))

        def results(inner: FunctionBuilder, made: list[Value]) -> Sequence[Value]:
            params = made[1 : 1 + len(carried)]
            rows, *rest = made[1 + len(carried) : 1 + len(carried) + len(captured)]
            match kept:
                case "gain":
                    changed = [inner.bind("concat", [param, rows], {"axis": 0}).result for param in params]
                case "fill":
                    shape = (_type(rows).shape or ())[0] * 2 + 1, 3
                    changed = [inner.bind("broadcast_to", [self.row(inner, made)], {"shape": shape}).result] * len(
                        params
                    )
                case _:
                    new = f"k{next(self.numbers)}"
                    sums = inner.bind("sum", [params[0]], {"axis": (1,)}).result
                    mask = inner.bind("less", [inner.const(np.float32(0)), sums], {}).result
                    attrs = {"axis": 0}
                    changed = [inner.bind("compress", [params[0], mask], attrs, out_types=[tensor((new, 3))]).result]
            return [self.of_type(inner, made, FLAG), *changed, rows, *rest]

        types = [COUNT, *grown, *(value.type for value in captured)]
        body = self.region(fb, "body", types, [*sizes, name], depth, results)
        trips = fb.const(np.int64(self.draw(st.integers(0, 3))))
        values += fb.bind("loop", [trips, fb.const(np.bool_(True)), *carried, *captured], {}, regions=[body]).results
        sizes.append(name)

    def open_branch(self, fb: FunctionBuilder, values: list[Value], sizes: list[str], depth: int) -> None:
        """Return tables of other sizes from the branches."""
        condition, tables = self.pick(values, dtype="bool", rank=0), self.tables(values)
        if condition is None or not tables:
            return
        name = f"b{next(self.numbers)}"
        inputs: list[Value] = [self.draw(st.sampled_from(tables)), *self.inputs(values)]

        def results(inner: FunctionBuilder, made: list[Value]) -> Sequence[Value]:
            table = self.draw(st.sampled_from(self.tables(made)))
            return inner.bind("as_dynamic", [table, table], {"axes": (0, 0)}, out_types=[tensor((name, 3))] * 2).results

        types = [value.type for value in inputs]
        regions = [self.region(fb, region, types, sizes, depth, results) for region in ("then_region", "else_region")]
        values += fb.bind("if", [condition, *inputs], {}, regions=regions).results
        sizes.append(name)


def _type(value: Value) -> TensorType:
    assert isinstance(value.type, TensorType)
    return value.type


def _arena(function: VMFunction, sizes: dict[str, int]) -> int:
    return sum(evaluate(nbytes, sizes) for nbytes in function.storages)


def _sum_of_tensors(function: VMFunction, sizes: dict[str, int]) -> int:
    nbytes = (evaluate(nbytes_of(tensor_.shape, tensor_.dtype), sizes) for tensor_ in function.tensors)
    return sum(-(-size // ALIGNMENT) * ALIGNMENT for size in nbytes)


def _check(executable: Executable, module: IRModule) -> None:
    machine = VirtualMachine(executable)
    (function,) = executable.program.functions
    for n in (0, 1, 4):
        assert _arena(function, {"n": n}) <= _sum_of_tensors(function, {"n": n})
        for flag in (True, False):
            table = np.random.default_rng(n).integers(-3, 4, (n, 3)).astype(np.float32)
            inputs: list[Any] = [np.array(flag), np.int64(2), np.array([1.5, -2.0, 0.25], np.float32), table]
            results = machine["main"](*inputs)
            expected = evaluate_function(module, "main", inputs)
            for have, want in zip(results, expected, strict=True):
                assert have.dtype == want.dtype
                np.testing.assert_array_equal(have, want)


@given(st.data())
def test_the_machine_gives_the_bits_of_the_interpreter(data: st.DataObject) -> None:
    module = verify(Maker(data.draw).module())
    assert parse(str(module), constants=module.constants) == module
    _check(build(module, []), module)


@given(st.data())
def test_default_passes_keep_the_bits(data: st.DataObject) -> None:
    module = Maker(data.draw).module()
    passed = Sequential([*default_passes()])(module)
    verify(passed)
    for flag in (True, False):
        table = np.random.default_rng(1).integers(-3, 4, (4, 3)).astype(np.float32)
        inputs: list[Any] = [np.array(flag), np.int64(3), np.array([1.5, -2.0, 0.25], np.float32), table]
        pairs = zip(evaluate_function(passed, "main", inputs), evaluate_function(module, "main", inputs), strict=True)
        for have, want in pairs:
            np.testing.assert_array_equal(have, want)
