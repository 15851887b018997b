"""Random graphs of view ops and externs with random traits: the program gives numpy's results, in no larger arena."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from byoc_core import VirtualMachine
from byoc_core.artifact import Executable
from byoc_core.dims import evaluate
from byoc_core.ir import FunctionBuilder, IRModule, TensorType, Value, tensor, verify
from byoc_core.ir.printer import EXTERNAL_MODULES
from byoc_core.lower import lower
from byoc_core.lower.aims import Sharing
from byoc_core.lower.lower_function import _Lowering
from byoc_core.lower.tables import ProgramTables
from byoc_core.ops import default_ops
from byoc_core.runtime.module import CallTraits, NDArray
from byoc_core.vm import decode, encode
from byoc_core.vm import verify as verify_program
from hypothesis import given, note
from hypothesis import strategies as st

from core.tests.lower.view_modules import IN_PLACE, TraitModule

Draw = Callable[[st.SearchStrategy[Any]], Any]
TRAITS = [CallTraits(s, p) for s in (False, True) for p in ((), IN_PLACE[:1], IN_PLACE)]
BATCH = 3
SHAPES: tuple[tuple[int | str, ...], ...] = ((1, 4, 3), (2, 4, 3), ("n", 4, 2))


class Maker:
    """Draws a body of view ops and calls, with what numpy gives for it."""

    def __init__(self, draw: Draw, symbols: TraitModule, *, depth: int = 0) -> None:
        self.draw = draw
        self.module = symbols
        self.depth = depth
        self.pairs: list[tuple[Value, Any]] = []

    def fill(self, fb: FunctionBuilder, count: int) -> None:
        steps = [self.call, self.call, self.join, self.join, self.reshape, self.permute, self.split, self.slice]
        steps += [self.squeeze, self.broadcast]
        if self.depth < 2:
            steps += [self.branch, self.loop]
        for _ in range(count):
            self.draw(st.sampled_from(steps))(fb)

    def one(self) -> tuple[Value, Any]:
        pair: tuple[Value, Any] = self.draw(st.sampled_from(self.pairs[-8:]))
        return pair

    def bind(self, fb: FunctionBuilder, op: str, operands: list[Value], attrs: dict[str, Any], *arrays: Any) -> None:
        results = fb.bind(op, operands, attrs).results
        for result, array in zip(results, arrays, strict=True):
            self.pairs.append((result, array))

    def call(self, fb: FunctionBuilder) -> None:
        x, array = self.one()
        name = self.draw(st.sampled_from(self.module.function_names))
        operands, result = [x], array + 1
        if name.startswith("add"):
            y, other = self.draw(st.sampled_from([pair for pair in self.pairs if pair[0].type == x.type]))
            operands, result = [x, y], array + other
        var = fb.bind("call_dps_packed", operands, {"symbol": name}, out_types=[x.type]).result
        self.pairs.append((var, result))

    def join(self, fb: FunctionBuilder) -> None:
        x, array = self.one()
        shape = _shape(x)
        if not shape:
            return
        axis = self.draw(st.integers(0, len(shape) - 1))
        rest = (*shape[:axis], *shape[axis + 1 :])
        fitting = [
            pair
            for pair in self.pairs
            if len(_shape(pair[0])) == len(shape)
            and (*_shape(pair[0])[:axis], *_shape(pair[0])[axis + 1 :]) == rest
            and isinstance(_shape(pair[0])[axis], int) == isinstance(shape[axis], int)
        ]
        others = self.draw(st.lists(st.sampled_from(fitting), max_size=2))
        pairs = self.draw(st.permutations([(x, array), *others]))
        joined = np.concatenate([pair[1] for pair in pairs], axis)
        if joined.size < 400:
            self.bind(fb, "concat", [pair[0] for pair in pairs], {"axis": axis}, joined)

    def reshape(self, fb: FunctionBuilder) -> None:
        x, array = self.one()
        shape = list(_shape(x))
        match self.draw(st.sampled_from(["flat", "merge", "cut", "unit"])):
            case "flat" if all(isinstance(dim, int) for dim in shape):
                shape = [array.size]
            case "merge" if len(shape) > 1:
                axis = self.draw(st.integers(0, len(shape) - 2))
                shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
            case "cut" if any(isinstance(dim, int) and dim % 2 == 0 for dim in shape):
                axis = next(a for a, dim in enumerate(shape) if isinstance(dim, int) and dim % 2 == 0)
                shape[axis : axis + 1] = [2, shape[axis] // 2]
            case _:
                shape.insert(self.draw(st.integers(0, len(shape))), 1)
        if len(shape) < 6:
            concrete = [evaluate(dim, {"n": BATCH}) for dim in shape]
            self.bind(fb, "reshape", [x], {"shape": tuple(shape)}, array.reshape(concrete))

    def permute(self, fb: FunctionBuilder) -> None:
        x, array = self.one()
        axes = tuple(self.draw(st.permutations(range(array.ndim))))
        self.bind(fb, "permute_dims", [x], {"axes": axes}, array.transpose(axes))

    def split(self, fb: FunctionBuilder) -> None:
        x, array = self.one()
        known = [axis for axis, dim in enumerate(_shape(x)) if isinstance(dim, int)]
        if known:
            axis = self.draw(st.sampled_from(known))
            first = self.draw(st.integers(0, array.shape[axis]))
            sections = (first, array.shape[axis] - first)
            self.bind(fb, "split", [x], {"sections": sections, "axis": axis}, *np.split(array, [first], axis))

    def slice(self, fb: FunctionBuilder) -> None:
        x, array = self.one()
        known = [axis for axis, dim in enumerate(_shape(x)) if isinstance(dim, int)]
        if known:
            axis = self.draw(st.sampled_from(known))
            begin, end = (self.draw(st.integers(-5, 5)) for _ in range(2))
            step = self.draw(st.integers(1, 3))
            attrs = {"axes": (axis,), "begin": (begin,), "end": (end,), "strides": (step,)}
            index = (slice(None),) * axis + (slice(begin, end, step),)
            self.bind(fb, "strided_slice", [x], attrs, array[index])

    def squeeze(self, fb: FunctionBuilder) -> None:
        x, array = self.one()
        axes = tuple(axis for axis, dim in enumerate(_shape(x)) if isinstance(dim, int) and dim == 1)
        self.bind(fb, "squeeze", [x], {"axis": axes}, array.squeeze(axes))

    def broadcast(self, fb: FunctionBuilder) -> None:
        x, array = self.one()
        shape = tuple(2 if dim == 1 else dim for dim in _shape(x))
        if array.size < 100:
            concrete = [evaluate(dim, {"n": BATCH}) for dim in shape]
            self.bind(fb, "broadcast_to", [x], {"shape": shape}, np.broadcast_to(array, concrete))

    def branch(self, fb: FunctionBuilder) -> None:
        taken = self.draw(st.booleans())
        inputs = self.draw(st.lists(st.sampled_from(self.pairs), min_size=1, max_size=3))
        regions: list[Any] = []
        chosen: list[Any] = []
        for name in ("then_region", "else_region"):
            inner = FunctionBuilder(name, ops=default_ops(), constants=fb.constants)
            maker = Maker(self.draw, self.module, depth=self.depth + 1)
            maker.pairs = [(inner.param(f"p{i}", value.type), array) for i, (value, array) in enumerate(inputs)]
            maker.fill(inner, self.draw(st.integers(0, 5)))
            if not chosen:
                chosen = self.draw(st.lists(st.sampled_from(maker.pairs), min_size=1, max_size=2))
                wanted = [value.type for value, _ in chosen]
                results = chosen
            else:
                results = [self.of_type(maker, type_) for type_ in wanted]
                if None in results:
                    return
            regions.append((inner, results))
        made = [inner.finish(*(value for value, _ in results)) for inner, results in regions]
        condition = fb.const(np.bool_(taken))
        bound = fb.bind("if", [condition, *(value for value, _ in inputs)], {}, regions=made).results
        arrays = [array for _, array in regions[0 if taken else 1][1]]
        self.pairs += zip(bound, arrays, strict=True)

    def of_type(self, maker: Maker, type_: Any) -> Any:
        fitting = [pair for pair in maker.pairs if pair[0].type == type_]
        return self.draw(st.sampled_from(fitting)) if fitting else None

    def loop(self, fb: FunctionBuilder) -> None:
        """Carries values through rounds; every round is drawn once and computed with numpy by replaying it."""
        inputs = self.draw(st.lists(st.sampled_from(self.pairs), min_size=1, max_size=3))
        inner = FunctionBuilder("body", ops=default_ops(), constants=fb.constants)
        inner.param("i", tensor((), "int64"))
        maker = Maker(self.draw, self.module, depth=2)
        maker.pairs = [(inner.param(f"p{i}", value.type), array) for i, (value, array) in enumerate(inputs)]
        maker.fill(inner, self.draw(st.integers(0, 6)))
        results = [self.of_type(maker, value.type) for value, _ in inputs]
        body = inner.finish(inner.const(np.bool_(True)), *(value for value, _ in results))
        trips = self.draw(st.integers(0, 1))
        operands = [fb.const(np.int64(trips)), fb.const(np.bool_(True)), *(value for value, _ in inputs)]
        bound = fb.bind("loop", operands, {}, regions=[body]).results
        arrays = [array for _, array in (results if trips else inputs)]
        self.pairs += zip(bound, arrays, strict=True)


def _shape(value: Value) -> tuple[Any, ...]:
    assert isinstance(value.type, TensorType)
    return value.type.shape or ()


def _run(module: IRModule, inputs: list[NDArray]) -> Any:
    program = lower(module)
    verify_program(program)
    assert decode(encode(program)) == program
    executable = Executable(program, module.attrs[EXTERNAL_MODULES], dict(module.constants))
    machine = VirtualMachine(executable)
    kept = [array.copy() for array in inputs]
    first = machine["main"](*inputs)
    second = machine["main"](*inputs)
    for array, copy in zip(inputs, kept, strict=True):
        np.testing.assert_array_equal(array, copy)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)
    return first


@given(st.data())
def test_programs_with_views_give_what_numpy_gives(data: st.DataObject) -> None:
    names = ("next_a", "next_b", "add_a", "add_b")
    externals = TraitModule({name: data.draw(st.sampled_from(TRAITS)) for name in names})
    fb = FunctionBuilder("main", ops=default_ops())
    maker = Maker(data.draw, externals)
    inputs = []
    for index, shape in enumerate(SHAPES):
        concrete = [BATCH if isinstance(dim, str) else dim for dim in shape]
        inputs.append(np.arange(np.prod(concrete), dtype=np.float32).reshape(concrete) + 100 * index)
        maker.pairs.append((fb.param(f"x{index}", tensor(shape)), inputs[-1]))
    maker.fill(fb, data.draw(st.integers(1, 14)))
    results = data.draw(st.lists(st.sampled_from(maker.pairs), min_size=2, max_size=4))
    module = IRModule({"main": fb.finish(*(value for value, _ in results))}, fb.constants)
    module = module.with_attrs(**{EXTERNAL_MODULES: (externals,)})
    verify(module)
    note(str(module))
    for have, (_, want) in zip(_run(module, inputs), results, strict=True):
        np.testing.assert_array_equal(have, want)
    (function,) = lower(module).functions
    plain = _Lowering(module["main"], ProgramTables(module), Sharing.NONE).run()
    assert evaluate(function.arena_nbytes - plain.arena_nbytes, {"n": BATCH}) <= 0
