"""Random graphs of view ops and externs with random traits: the program gives numpy's results, in no larger arena."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from byoc_core import VirtualMachine
from byoc_core.artifact import Executable
from byoc_core.dims import Dim, evaluate, parse_dim
from byoc_core.ir import Function, FunctionBuilder, IRModule, TensorType, Type, Value, Var, tensor, verify
from byoc_core.ir.printer import EXTERNAL_MODULES
from byoc_core.lower import lower
from byoc_core.ops import default_ops
from byoc_core.runtime.module import CallTraits, NDArray
from byoc_core.vm import Program, decode, encode
from byoc_core.vm import verify as verify_program
from hypothesis import given, note
from hypothesis import strategies as st

from core.tests.lower.view_modules import IN_PLACE, TraitModule, without_views

Draw = Callable[[st.SearchStrategy[Any]], Any]
TRAITS = [CallTraits(strided, pairs) for strided in (False, True) for pairs in ((), IN_PLACE[:1], IN_PLACE)]
NAMES = ("next_a", "next_b", "add_a", "add_b")
SHAPES: tuple[tuple[int | str, ...], ...] = ((1, 4, 3), (2, 4, 3), ("n", 4, 2), ("n", 2, "m-2"))
SIZES = {"n": 3, "m": 4}
LARGEST = 400


class Maker:
    """A strategy for a body of view ops, calls, branches and loops."""

    def __init__(self, draw: Draw, fb: FunctionBuilder, depth: int = 0) -> None:
        self.draw = draw
        self.fb = fb
        self.depth = depth
        self.values: list[Value] = []

    def fill(self, count: int) -> None:
        steps = [self.call, self.call, self.join, self.join, self.reshape, self.permute, self.split, self.slice]
        steps += [self.squeeze, self.broadcast, *([self.branch, self.loop] if self.depth < 2 else [])]
        for _ in range(count):
            self.draw(st.sampled_from(steps))()

    def pick(self) -> Value:
        value: Value = self.draw(st.sampled_from(self.values[-8:]))
        return value

    def some_axis(self, value: Value) -> int | None:
        static_axes = [axis for axis, dim in enumerate(_shape(value)) if isinstance(dim, int)]
        return self.draw(st.sampled_from(static_axes)) if static_axes else None

    def bind(self, op: str, *operands: Value, **attrs: object) -> None:
        self.values += self.fb.bind(op, operands, attrs).results

    def call(self) -> None:
        x = self.pick()
        name = self.draw(st.sampled_from(NAMES))
        second_operands = (
            [self.draw(st.sampled_from([v for v in self.values if v.type == x.type]))] if "add" in name else []
        )
        self.values += self.fb.bind(
            "call_dps_packed", [x, *second_operands], {"symbol": name}, out_types=[x.type]
        ).results

    def join(self) -> None:
        x = self.pick()
        shape = _shape(x)
        if not shape:
            return
        axis = self.draw(st.integers(0, len(shape) - 1))

        def fits(value: Value) -> bool:
            other = _shape(value)
            return len(other) == len(shape) and (*other[:axis], shape[axis], *other[axis + 1 :]) == shape

        further_parts = self.draw(st.lists(st.sampled_from([v for v in self.values if fits(v)]), max_size=2))
        if _size(x) * (1 + len(further_parts)) < LARGEST:
            self.bind("concat", *self.draw(st.permutations([x, *further_parts])), axis=axis)

    def reshape(self) -> None:
        x = self.pick()
        shape = list(_shape(x))
        even = [axis for axis, dim in enumerate(shape) if isinstance(dim, int) and dim % 2 == 0]
        match self.draw(st.sampled_from(["merge", "cut", "unit"])):
            case "merge" if len(shape) > 1:
                axis = self.draw(st.integers(0, len(shape) - 2))
                shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
            case "cut" if even:
                axis = even[-1]
                shape[axis : axis + 1] = [2, shape[axis] // 2]
            case _:
                shape.insert(self.draw(st.integers(0, len(shape))), 1)
        if len(shape) < 6:
            self.bind("reshape", x, shape=tuple(shape))

    def permute(self) -> None:
        x = self.pick()
        self.bind("permute_dims", x, axes=tuple(self.draw(st.permutations(range(len(_shape(x)))))))

    def split(self) -> None:
        x = self.pick()
        axis = self.some_axis(x)
        if axis is not None:
            size = _shape(x)[axis]
            first = self.draw(st.integers(0, size))
            self.bind("split", x, sections=(first, size - first), axis=axis)

    def slice(self) -> None:
        x = self.pick()
        axis = self.some_axis(x)
        if axis is not None:
            begin, end = (self.draw(st.integers(-5, 5)) for _ in range(2))
            step = self.draw(st.integers(1, 3))
            self.bind("strided_slice", x, axes=(axis,), begin=(begin,), end=(end,), strides=(step,))

    def squeeze(self) -> None:
        x = self.pick()
        self.bind("squeeze", x, axis=tuple(axis for axis, dim in enumerate(_shape(x)) if dim == 1))

    def broadcast(self) -> None:
        x = self.pick()
        if _size(x) < LARGEST // 4:
            self.bind("broadcast_to", x, shape=tuple(2 if dim == 1 else dim for dim in _shape(x)))

    def inputs(self) -> list[Value]:
        values: list[Value] = self.draw(st.lists(st.sampled_from(self.values), min_size=1, max_size=3))
        return values

    def region(self, name: str, inputs: Sequence[Value], *first: Type) -> Maker:
        maker = Maker(self.draw, FunctionBuilder(name, ops=default_ops(), constants=self.fb.constants), self.depth + 1)
        for index, type_ in enumerate(first):
            maker.fb.param(f"i{index}", type_)
        maker.values = [maker.fb.param(f"p{index}", value.type) for index, value in enumerate(inputs)]
        maker.fill(self.draw(st.integers(0, 6)))
        return maker

    def of_types(self, types: Sequence[Any]) -> list[Value] | None:
        fitting = [[value for value in self.values if value.type == type_] for type_ in types]
        return [self.draw(st.sampled_from(values)) for values in fitting] if all(fitting) else None

    def branch(self) -> None:
        inputs = self.inputs()
        then, otherwise = (self.region(name, inputs) for name in ("then_region", "else_region"))
        results = then.inputs()
        else_results = otherwise.of_types([value.type for value in results])
        if else_results is not None:
            regions = [then.fb.finish(*results), otherwise.fb.finish(*else_results)]
            condition = self.fb.const(np.bool_(self.draw(st.booleans())))
            self.values += self.fb.bind("if", [condition, *inputs], {}, regions=regions).results

    def loop(self) -> None:
        inputs = self.inputs()
        maker = self.region("body", inputs, tensor((), "int64"))
        results = maker.of_types([value.type for value in inputs])
        assert results is not None
        body = maker.fb.finish(maker.fb.const(np.bool_(True)), *results)
        operands = [self.fb.const(np.int64(self.draw(st.integers(0, 3)))), self.fb.const(np.bool_(True)), *inputs]
        self.values += self.fb.bind("loop", operands, {}, regions=[body]).results


def _shape(value: Value) -> tuple[Any, ...]:
    assert isinstance(value.type, TensorType)
    return value.type.shape or ()


def _size(value: Value) -> int:
    return int(np.prod([evaluate(dim, SIZES) for dim in _shape(value)]))


def _interpreted(module: IRModule, function: Function, inputs: Sequence[Any]) -> list[Any]:
    """Return the results of a function, computed op by op with numpy."""
    arrays: dict[Var, Any] = dict(zip(function.params, inputs, strict=True))

    def value_of(value: Value) -> Any:
        return arrays[value] if isinstance(value, Var) else module.constants[value.digest]

    for binding in function.bindings:
        first, *rest = map(value_of, binding.operands)
        match binding.op.name:
            case "call_dps_packed":
                found = [first + (rest[0] if rest else 1)]
            case "if":
                found = _interpreted(module, binding.regions[0 if first else 1], rest)
            case "loop":
                found = rest[1:]
                for number in range(int(first)):
                    found = _interpreted(module, binding.regions[0], [number, *found])[1:]
            case _:
                assert binding.op.view is not None
                kernel: Any = binding.op.kernel
                outputs = kernel(first, *rest, **{name: _numbers(attr) for name, attr in binding.attrs.items()})
                found = list(outputs) if isinstance(outputs, tuple) else [outputs]
        arrays.update(zip(binding.results, found, strict=True))
    return [value_of(result) for result in function.results]


def _numbers(attr: Any) -> Any:
    if isinstance(attr, tuple):
        return tuple(map(_numbers, attr))
    return attr if isinstance(attr, str) or attr is None else evaluate(attr, SIZES)


def _run(program: Program, module: IRModule, inputs: list[NDArray]) -> Any:
    verify_program(program)
    assert decode(encode(program)) == program
    machine = VirtualMachine(Executable(program, module.attrs[EXTERNAL_MODULES], dict(module.constants)))
    originals = [array.copy() for array in inputs]
    results, repeated = machine["main"](*inputs), machine["main"](*inputs)
    for left, right in (*zip(inputs, originals, strict=True), *zip(results, repeated, strict=True)):
        np.testing.assert_array_equal(left, right)
    return results


def _arena(program: Program) -> int:
    nbytes: Dim = program.functions[0].arena_nbytes
    return evaluate(nbytes, SIZES)


@given(st.data())
def test_programs_with_views_give_what_numpy_gives(data: st.DataObject) -> None:
    externals = TraitModule({name: data.draw(st.sampled_from(TRAITS)) for name in NAMES})
    maker = Maker(data.draw, FunctionBuilder("main", ops=default_ops()))
    inputs = []
    for index, shape in enumerate(SHAPES):
        concrete = [evaluate(parse_dim(dim), SIZES) for dim in shape]
        inputs.append(np.arange(np.prod(concrete), dtype=np.float32).reshape(concrete) + 100 * index)
        maker.values.append(maker.fb.param(f"x{index}", tensor(shape)))
    maker.fill(data.draw(st.integers(1, 14)))
    results = data.draw(st.lists(st.sampled_from(maker.values), min_size=2, max_size=4))
    module = IRModule({"main": maker.fb.finish(*results)}, maker.fb.constants, {EXTERNAL_MODULES: (externals,)})
    verify(module)
    note(str(module))
    program = lower(module)
    expected = _interpreted(module, module["main"], inputs)
    for have, want in zip(_run(program, module, inputs), expected, strict=True):
        np.testing.assert_array_equal(have, want)
    assert _arena(program) <= _arena(without_views(module))
