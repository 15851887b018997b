"""Gradients of random shapes: broadcasting of known and unknown sizes, products, windows, slices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from byoc_core.dims import Dim, symbol
from byoc_core.errors import IRTypeError
from byoc_core.ir import IRModule, TensorType
from byoc_core.ops import FunctionBuilder
from byoc_core.transform.gradients import RULES
from hypothesis import assume, given
from hypothesis import strategies as st

from core.tests.transform.gradients.cases import DOMAINS
from core.tests.transform.gradients.differences import STEP, Array, check_gradients, separated

Draw = Callable[[st.SearchStrategy[Any]], Any]
Shape = tuple[int, ...]

BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "nn.prelu")
REDUCTIONS = ("sum", "mean", "max", "min", "prod", "logsumexp")


@st.composite
def _operands(draw: Draw, count: int) -> list[Shape]:
    """Return shapes that broadcast together."""
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    shapes = []
    for _ in range(count):
        rank = draw(st.integers(0, len(shape)))
        shapes.append(tuple(draw(st.sampled_from((1, size))) for size in shape[len(shape) - rank :]))
    return shapes


@st.composite
def _types(draw: Draw, shapes: Sequence[Shape], most: int = 100) -> list[TensorType]:
    """Return a type for each shape; some sizes are unknown, each with a symbol of its own."""
    types, count = [], 0
    for shape in shapes:
        dims: list[Dim] = []
        for size in shape:
            is_unknown = count < most and draw(st.booleans())
            dims.append(symbol(f"n{count}") if is_unknown else size)
            count += is_unknown
        types.append(TensorType(tuple(dims), "float64"))
    return types


def _module(op: str, types: Sequence[TensorType], attrs: Mapping[str, object]) -> IRModule:
    fb = FunctionBuilder("main")
    params = [fb.param(f"x{index}", type_) for index, type_ in enumerate(types)]
    return IRModule({"main": fb.finish(*fb.bind(op, params, attrs).results)}, fb.constants, ops=fb.ops)


def _inputs(op: str, shapes: Sequence[Shape], generator: np.random.Generator) -> list[Array]:
    domains = DOMAINS.get(op, ((-1.9371, 2.1113),))
    return [separated(generator, shape, *domains[min(index, len(domains) - 1)]) for index, shape in enumerate(shapes)]


def _check(op: str, types: Sequence[TensorType], shapes: Sequence[Shape], **attrs: object) -> None:
    """Check an op of operands of these types and shapes; uses refused by the type rule are no example."""
    try:
        _module(op, list(map(_static, shapes)), attrs)  # sizes that fit
        module = _module(op, types, attrs)
    except IRTypeError:
        assume(condition=False)
    generator = np.random.default_rng(1)
    check_gradients(module, _inputs(op, shapes, generator), generator)


@given(op=st.sampled_from(BINARY), seed=st.integers(0, 9), data=st.data())
def test_broadcasting(op: str, seed: int, data: st.DataObject) -> None:
    shapes = data.draw(_operands(2))
    generator = np.random.default_rng(seed)
    x, y = _inputs(op, shapes, generator)
    if op in ("maximum", "minimum"):  # equal numbers have no slope
        assume(bool(np.all(np.abs(x - y) > 8 * STEP)))
    check_gradients(_module(op, data.draw(_types(shapes)), {}), [x, y], generator)


@given(data=st.data())
def test_broadcasting_of_a_choice(data: st.DataObject) -> None:
    shapes = data.draw(_operands(3))
    types = data.draw(_types(shapes))
    fb = FunctionBuilder("main")
    x, y, z = (fb.param(name, type_) for name, type_ in zip("xyz", types, strict=True))
    condition = fb.bind("less", (x, fb.const(np.float64(0))), {}).result
    module = IRModule({"main": fb.finish(fb.bind("where", (condition, y, z), {}).result)}, fb.constants)
    generator = np.random.default_rng(1)
    check_gradients(module, [separated(generator, shape) for shape in shapes], generator)


@given(data=st.data())
def test_products(data: st.DataObject) -> None:
    rows, inner, columns = (data.draw(st.integers(0, 4)) for _ in range(3))
    left, right = data.draw(_operands(2))
    is_row, is_column = data.draw(st.booleans()), data.draw(st.booleans())
    shapes = [(inner,) if is_row else (*left, rows, inner), (inner,) if is_column else (*right, inner, columns)]
    _check("matmul", data.draw(_types(shapes)), shapes)


@given(data=st.data())
def test_dense_layers(data: st.DataObject) -> None:
    leading = tuple(data.draw(st.lists(st.integers(0, 3), max_size=2)))
    inner, outer = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    shapes = [(*leading, inner), (outer, inner)]
    _check("nn.dense", data.draw(_types(shapes)), shapes)


@given(op=st.sampled_from(REDUCTIONS), data=st.data())
def test_reductions(op: str, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), max_size=3)))
    axes = data.draw(
        st.one_of(st.none(), st.lists(st.sampled_from(range(len(shape))), unique=True) if shape else st.just([]))
    )
    keepdims = data.draw(st.booleans())
    _check(op, data.draw(_types([shape])), [shape], axis=axes, keepdims=keepdims)


def _each(draw: Draw, rank: int, low: int, high: int) -> tuple[int, ...]:
    return tuple(draw(st.integers(low, high)) for _ in range(rank))


@given(rank=st.sampled_from((1, 2)), data=st.data())
def test_convolutions(rank: int, data: st.DataObject) -> None:
    groups = data.draw(st.integers(1, 2))
    channels, out_channels = (groups * data.draw(st.integers(1, 2)) for _ in range(2))
    window, sizes = _each(data.draw, rank, 1, 3), _each(data.draw, rank, 3, 7)
    attrs = {
        "strides": _each(data.draw, rank, 1, 3),
        "padding": _each(data.draw, 2 * rank, 0, 2),
        "dilation": _each(data.draw, rank, 1, 2),
        "groups": groups,
    }
    is_transposed = data.draw(st.booleans())
    image = (data.draw(st.integers(1, 2)), channels, *sizes)
    if is_transposed:
        attrs["output_padding"] = _each(data.draw, rank, 0, 2)
        weight = (channels, out_channels // groups, *window)
    else:
        weight = (out_channels, channels // groups, *window)
    image_type = data.draw(st.sampled_from((_static(image), _open(image))))
    _check(
        f"nn.conv{rank}d{'_transpose' if is_transposed else ''}",
        [image_type, _static(weight)],
        [image, weight],
        **attrs,
    )


def _static(shape: Shape) -> TensorType:
    return TensorType(shape, "float64")


def _open(shape: Shape) -> TensorType:
    """Return the type of an image of unknown batch and unknown spatial sizes."""
    sizes = (symbol(f"s{axis}") for axis in range(len(shape) - 2))
    return TensorType((symbol("n"), shape[1], *sizes), "float64")


@given(kind=st.sampled_from(("max", "avg", "lp")), rank=st.sampled_from((1, 2)), data=st.data())
def test_pooling(kind: str, rank: int, data: st.DataObject) -> None:
    window, dilation = _each(data.draw, rank, 1, 3), _each(data.draw, rank, 1, 2)
    reach = [(size - 1) * step + 1 for size, step in zip(window, dilation, strict=True)]
    padding = tuple(data.draw(st.integers(0, size - 1)) for size in (*reach, *reach))
    attrs: dict[str, Any] = {
        "pool_size": window,
        "strides": _each(data.draw, rank, 1, 3),
        "padding": padding,
        "dilation": dilation,
        "ceil_mode": data.draw(st.booleans()),
    }
    attrs |= {"count_include_pad": data.draw(st.booleans())} if kind == "avg" else {}
    attrs |= {"p": data.draw(st.integers(1, 3))} if kind == "lp" else {}
    image = (data.draw(st.integers(1, 2)), 2, *_each(data.draw, rank, 3, 7))
    image_type = data.draw(st.sampled_from((_static(image), _open(image))))
    _check(f"nn.{kind}_pool{rank}d", [image_type], [image], **attrs)


@given(data=st.data())
def test_slices(data: st.DataObject) -> None:
    shape = _each(data.draw, 2, 0, 6)
    axes = data.draw(st.lists(st.sampled_from((0, 1)), unique=True))
    bounds = st.one_of(st.integers(-8, 8), st.sampled_from((1 << 62, -(1 << 62))))
    begin, end = (tuple(data.draw(bounds) for _ in axes) for _ in range(2))
    strides = tuple(data.draw(st.sampled_from((-3, -1, 1, 2))) for _ in axes)
    types = data.draw(_types([shape]))
    _check("strided_slice", types, [shape], axes=axes, begin=begin, end=end, strides=strides)


@given(op=st.sampled_from(("softmax", "log_softmax")), data=st.data())
def test_softmax(op: str, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    _check(f"nn.{op}", data.draw(_types([shape])), [shape], axis=axis)


@given(data=st.data())
def test_concatenation(data: st.DataObject) -> None:
    rest, axis = data.draw(st.integers(1, 3)), data.draw(st.sampled_from((0, 1)))
    sizes = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    shapes = [(size, rest) if axis == 0 else (rest, size) for size in sizes]
    _check("concat", data.draw(_types(shapes)), shapes, axis=axis)


def test_ops_of_the_tests_have_rules() -> None:
    assert {*BINARY, *REDUCTIONS} <= set(RULES)


@pytest.mark.parametrize("size", [1, 3])
def test_an_unknown_size_may_be_one(size: int) -> None:
    """The gradient of a row is a sum if the row was repeated, else the cotangent."""
    module = _module("multiply", [TensorType((symbol("n"),), "float64"), TensorType((3,), "float64")], {})
    generator = np.random.default_rng(1)
    gradients = check_gradients(module, [separated(generator, (size,)), separated(generator, (3,))], generator)
    assert [binding.op.name for binding in gradients["main"].bindings].count("scatter_nd") == 1
