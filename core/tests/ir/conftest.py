"""A few test ops and random modules over these: the IR's tests need no real ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from byoc_core.dims import broadcast_dim, parse_dim, product
from byoc_core.ir import (
    STRUCTURAL_OPS,
    AttrKind,
    AttrSpec,
    Constant,
    ConstantStore,
    Function,
    FunctionBuilder,
    IRModule,
    Location,
    ObjectType,
    OpDef,
    OperandSpec,
    OpRegistry,
    TensorType,
    Trait,
    Type,
    TypeContext,
    Value,
    tensor,
)
from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]

X, Y = OperandSpec("x"), OperandSpec("y")


def _same(context: TypeContext) -> tuple[Type, ...]:
    return (context.operands[0],)


def _broadcast(context: TypeContext) -> tuple[Type, ...]:
    left, right = context.shape(0), context.shape(1)
    if context.tensor(0).dtype != context.tensor(1).dtype:
        raise context.error("has another dtype", operand=1, got=context.operands[1], expected=context.operands[0])
    rank = max(len(left), len(right))
    pairs = zip((1,) * (rank - len(left)) + left, (1,) * (rank - len(right)) + right, strict=True)
    return (TensorType(tuple(broadcast_dim(*pair) for pair in pairs), context.tensor(0).dtype),)


def _split(context: TypeContext) -> tuple[Type, ...]:
    shape, axis = list(context.shape(0)), context.attrs["axis"]
    results: list[Type] = []
    for size in context.attrs["sections"]:
        shape[axis] = size
        results.append(TensorType(tuple(shape), context.tensor(0).dtype))
    return tuple(results)


def _reshape(context: TypeContext) -> tuple[Type, ...]:
    if product(context.attrs["shape"]) != product(context.shape(0)):
        raise context.error("has another number of elements", operand=0, got=context.operands[0])
    return (TensorType(context.attrs["shape"], context.tensor(0).dtype),)


def _object(context: TypeContext) -> tuple[Type, ...]:
    return (ObjectType("sequence"),)


ADD = OpDef(
    "add",
    (X, Y),
    _broadcast,
    traits=frozenset({Trait.PURE, Trait.ELEMENTWISE, Trait.COMMUTATIVE}),
    flops=lambda context: context.elements(),
)
RELU = OpDef("nn.relu", (X,), _same, traits=frozenset({Trait.PURE, Trait.ELEMENTWISE}))
SPLIT = OpDef(
    "split", (X,), _split, (AttrSpec("sections", AttrKind.INTS), AttrSpec("axis", AttrKind.INT, 0)), doc="Cuts."
)
RESHAPE = OpDef("reshape", (X,), _reshape, (AttrSpec("shape", AttrKind.DIMS),))
SEQUENCE = OpDef("sequence", (OperandSpec("items", variadic=True),), _object)
ATTRIBUTES = OpDef(
    "test.attributes",
    (X,),
    _same,
    (
        AttrSpec("flag", AttrKind.BOOL, default=False),
        AttrSpec("count", AttrKind.INT, 0),
        AttrSpec("ratio", AttrKind.FLOAT, 0.5),
        AttrSpec("text", AttrKind.STR, ""),
        AttrSpec("element", AttrKind.DTYPE, "float32"),
        AttrSpec("ints", AttrKind.INTS, None),
        AttrSpec("floats", AttrKind.FLOATS, (1.0,)),
        AttrSpec("strs", AttrKind.STRS, ()),
        AttrSpec("dim", AttrKind.DIM, 1),
        AttrSpec("dims", AttrKind.DIMS, ()),
        AttrSpec("mode", AttrKind.STR, "fast", choices=("fast", "slow")),
    ),
)

OPS = OpRegistry([ADD, RELU, SPLIT, RESHAPE, SEQUENCE, ATTRIBUTES, *STRUCTURAL_OPS])

SYMBOLS = ("n", "m", "k")
DIMS: tuple[int | str, ...] = (0, 1, 2, 3, "n", "m", "2*n+1", "n*m", "n//4", "max(m, n)", "(n+m)%3", "-n+2*m")
DTYPES = ("float32", "float64", "int64", "bool", "bfloat16", "int8")
NAMES = (
    "x",
    "x",
    "x_1",
    "class",
    "R",
    "",
    "é",
    "1st",
    "const0",
    "const1",
    "main",
    "a b",
    "self",
    "_",
    "match",
    "v\n'\"",
)
floats = st.floats(width=64) | st.sampled_from([float("nan"), float("inf"), -float("inf"), -0.0, 1e-320])
texts = st.text(max_size=5) | st.sampled_from(['"', "'", "\\", "\n", "\x00", "\ud800", "\u2028", 'R.add("x")', "{}"])
dims = st.sampled_from(DIMS).map(parse_dim)
scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | floats | texts | dims
attr_values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4)
attr_dicts = st.dictionaries(texts, attr_values, max_size=3)
tensor_types = st.builds(tensor, st.lists(st.sampled_from(DIMS), max_size=3), st.sampled_from(DTYPES))
arrays = st.sampled_from(
    [
        np.array(0.0, np.float32),
        np.array(-0.0, np.float32),
        np.array(float("nan")),
        np.array([1.5, -2.25, 1e30], np.float32),
        np.array([0.1] * 5),
        np.array([], np.int64),
        np.array([2**63 - 1, -(2**63)], np.int64),
        np.array([2**64 - 1], np.uint64),
        np.array([True, False]),
        np.array([[1, 2], [3, 4]], np.int8),
        np.arange(1, 3).astype(tensor((), "float32").dtype),
    ]
)


class _ModuleMaker:
    """A strategy for a module: functions calling earlier functions, each with regions down to some depth."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.store = ConstantStore()
        self.functions: dict[str, Function] = {}

    def module(self) -> IRModule:
        for index in range(self.draw(st.integers(0, 3))):
            name = self.draw(st.sampled_from([f"f{index}", f"const{index}", f"é{index}"]))
            self.functions[name] = self.function(name, index)
        return IRModule(dict(self.functions), self.store, self.draw(attr_dicts))

    def function(self, name: str, index: int) -> Function:
        fb = self.builder(name)
        values: list[Value] = [fb.param(self.name(), tensor(SYMBOLS))]
        types = st.one_of(tensor_types, st.just(ObjectType('odd"kind\n')), st.just(TensorType(None, "float32")))
        values += [fb.param(self.name(), self.draw(types)) for _ in range(self.draw(st.integers(0, 3)))]
        self.fill(fb, values, depth=2)
        attrs = self.draw(attr_dicts)
        if self.draw(st.booleans()):
            attrs |= {"Codegen": "some", "global_symbol": f"symbol{index}"}
        return fb.finish(*self.draw(st.lists(st.sampled_from(values), min_size=1, max_size=3)), **attrs)

    def builder(self, name: str) -> FunctionBuilder:
        return FunctionBuilder(name, ops=OPS, constants=self.store, functions=self.functions)

    def name(self) -> str:
        name: str = self.draw(st.sampled_from(NAMES))
        return name

    def fill(self, fb: FunctionBuilder, values: list[Value], depth: int) -> None:
        makers = [self.relu, self.attributes, self.add, self.pieces, self.reshape, self.constant, self.packed]
        makers += [self.call] if self.functions else []
        makers += [self.branch, self.loop, self.composite] if depth else []
        for maker in self.draw(st.lists(st.sampled_from(makers), max_size=4)):
            maker(fb, values, depth)

    def bind(
        self, fb: FunctionBuilder, values: list[Value], op: str, operands: Sequence[Any], count: int, /, **fields: Any
    ) -> None:
        binding = fb.bind(
            op,
            operands,
            fields.pop("attrs", {}),
            names=[self.name() for _ in range(count)],
            codegen=self.draw(st.none() | st.sampled_from(["some", 'od"d'])),
            schedule=self.draw(st.none() | st.sampled_from(["tile=8", 'od"d'])),
            location=self.draw(st.none() | st.just(Location("file", "node"))),
            **fields,
        )
        values.extend(binding.results)

    def tensors(self, values: list[Value], *, rank: int = 0) -> list[Value]:
        ranks = {id(v): -1 if v.type.rank is None else v.type.rank for v in values if isinstance(v.type, TensorType)}
        return [v for v in values if ranks.get(id(v), -1) >= rank]

    def relu(self, fb: FunctionBuilder, values: list[Value], depth: int) -> None:
        self.bind(fb, values, "nn.relu", [self.draw(st.sampled_from(values))], 1)

    def attributes(self, fb: FunctionBuilder, values: list[Value], depth: int) -> None:
        attrs = {
            "flag": st.booleans(),
            "count": st.integers(),
            "ratio": floats,
            "text": texts,
            "element": st.sampled_from(DTYPES),
            "ints": st.none() | st.lists(st.integers(), max_size=2),
            "floats": st.lists(floats, max_size=2),
            "strs": st.lists(texts, max_size=2),
            "dim": dims,
            "dims": st.lists(dims, max_size=2),
            "mode": st.sampled_from(["fast", "slow"]),
        }
        given = self.draw(st.fixed_dictionaries({}, optional=attrs))
        self.bind(fb, values, "test.attributes", [self.draw(st.sampled_from(values))], 1, attrs=given)

    def add(self, fb: FunctionBuilder, values: list[Value], depth: int) -> None:
        value = self.draw(st.sampled_from(self.tensors(values)))
        one = np.ones((1,), np.float32)
        other = one if value.type.dtype == "float32" and self.draw(st.booleans()) else value
        self.bind(fb, values, "add", [value, other], 1)

    def pieces(self, fb: FunctionBuilder, values: list[Value], depth: int) -> None:
        value = self.draw(st.sampled_from(self.tensors(values, rank=1)))
        sections = self.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
        self.bind(fb, values, "split", [value], len(sections), attrs={"sections": sections, "axis": -1})

    def reshape(self, fb: FunctionBuilder, values: list[Value], depth: int) -> None:
        value = self.draw(st.sampled_from(self.tensors(values)))
        self.bind(fb, values, "reshape", [value], 1, attrs={"shape": (1, value.type.num_elements)})

    def constant(self, fb: FunctionBuilder, values: list[Value], depth: int) -> None:
        values.append(fb.const(self.draw(arrays)))

    def packed(self, fb: FunctionBuilder, values: list[Value], depth: int) -> None:
        types = self.draw(st.lists(tensor_types, min_size=1, max_size=2))
        operands = self.draw(st.lists(st.sampled_from(values), max_size=2))
        op = self.draw(st.sampled_from(["call_packed", "call_dps_packed"]))
        attrs: dict[str, object] = {"symbol": self.draw(texts)}
        if op == "call_packed":
            attrs["pure"] = self.draw(st.booleans())
        else:
            operands.append(self.anchored(fb))
        self.bind(fb, values, op, operands, len(types), attrs=attrs, out_types=types)

    def value_of(self, fb: FunctionBuilder, type_: Type) -> Value:
        if isinstance(type_, TensorType) and type_.shape is None:
            type_ = tensor((2,), type_.dtype)
        return fb.bind("call_packed", [], {"symbol": "make"}, out_types=[type_]).result

    def call(self, fb: FunctionBuilder, values: list[Value], depth: int) -> None:
        callee = self.draw(st.sampled_from(list(self.functions.values())))
        arguments = [self.value_of(fb, param.type) for param in callee.params]
        count = len(callee.results)
        self.bind(fb, values, "call", arguments, count, attrs={"callee": callee.name})

    def region(self, params: Sequence[Type], depth: int) -> tuple[FunctionBuilder, list[Value], list[Value]]:
        fb = self.builder(self.name())
        values: list[Value] = [fb.param(self.name(), type_) for type_ in (*params, tensor(SYMBOLS))]
        inputs = list(values)
        self.fill(fb, values, depth - 1)
        return fb, values, inputs

    def inputs(self, values: list[Value]) -> list[Value]:
        drawn: list[Value] = self.draw(st.lists(st.sampled_from(values), max_size=2))
        return drawn

    def anchored(self, fb: FunctionBuilder) -> Value:
        return self.value_of(fb, tensor(SYMBOLS))

    def composite(self, fb: FunctionBuilder, values: list[Value], depth: int) -> None:
        inputs = self.inputs(values)
        inner, inside, _ = self.region([v.type for v in inputs], depth)
        results = self.draw(st.lists(st.sampled_from(inside), min_size=1, max_size=2))
        body = inner.finish(*results, **self.draw(attr_dicts))
        operands = [*inputs, self.anchored(fb)]
        self.bind(fb, values, "composite", operands, len(results), attrs={"name": self.draw(texts)}, regions=[body])

    def branch(self, fb: FunctionBuilder, values: list[Value], depth: int) -> None:
        inputs = self.inputs(values)
        then, inside, _ = self.region([v.type for v in inputs], depth)
        known = [v for v in inside if not (isinstance(v.type, TensorType) and v.type.shape is None)]
        results = self.draw(st.lists(st.sampled_from(known), min_size=1, max_size=2))
        other, _, _ = self.region([v.type for v in inputs], depth)
        regions = [then.finish(*results), other.finish(*(self.value_of(other, r.type) for r in results))]
        operands = [np.array(True), *inputs, self.anchored(fb)]
        self.bind(fb, values, "if", operands, len(results), regions=regions)

    def loop(self, fb: FunctionBuilder, values: list[Value], depth: int) -> None:
        carried = [*self.inputs(values), self.anchored(fb)]
        body, _, inputs = self.region([tensor((), "int64"), *(v.type for v in carried[:-1])], depth)
        regions = [body.finish(body.const(np.array(False)), *inputs[1:])]
        operands = [np.array(3), np.array(True), *carried]
        self.bind(fb, values, "loop", operands, len(carried), regions=regions)


@st.composite
def random_modules(draw: Draw) -> IRModule:
    """Draw modules obeying every law of the IR."""
    return _ModuleMaker(draw).module()


@pytest.fixture(scope="session")
def ops() -> OpRegistry:
    """The test ops and the structural ops."""
    return OPS


@pytest.fixture(scope="session")
def modules() -> st.SearchStrategy[IRModule]:
    """Random valid modules."""
    return random_modules()


@pytest.fixture
def weight() -> Constant:
    """A constant outside of any store."""
    return Constant("0" * 64, tensor((2,)))
