"""Declared facts of ops for rearranging, multiplying, reducing and quantising hold for their kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.ops.cases import new_function
from byoc_core.opset.contexts import OpContext
from byoc_core.opset.families import ops_of
from byoc_core.opset.layout import Layout, compact_layout
from byoc_core.opset.opdef import OpDef
from byoc_core.opset.permutation import Order, inverse
from byoc_core.opset.types import TensorType
from byoc_core.opset.value_bounds import ValueFacts

_FAMILIES = ("shape", "slices", "arrangement", "unit_axes", "linear", "reduction", "quantisation")
_OPS = [op for family in _FAMILIES for op in ops_of(family).values()]
_RANDOM = 20250101

Array = npt.NDArray[Any]


def _context(op: OpDef, types: Sequence[TensorType], attrs: Mapping[str, object]) -> OpContext:
    return new_function(op, types, attrs)[1].context()


def _uses(op: OpDef) -> Iterator[tuple[OpContext, list[Array]]]:
    for index, case in enumerate(op.canonical_cases):
        yield (
            _context(op, case.types(), case.attrs),
            list(case.arrays(np.random.default_rng(_RANDOM + index))),
        )


def _run(op: OpDef, operands: Sequence[Array], attrs: Mapping[str, Any]) -> tuple[Array, ...]:
    assert op.kernel is not None
    results = op.kernel(*operands, **attrs)
    return results if isinstance(results, tuple) else (results,)


def _layouts(shape: Sequence[int]) -> tuple[Layout, ...]:
    """Return layouts of a given shape: compact, with gaps and an offset, and with the axes in reverse order."""
    compact, mirrored = compact_layout(shape), compact_layout(shape[::-1])
    gaps = Layout(5, compact.shape, tuple(2 * stride for stride in compact.strides))
    return (compact, gaps, Layout(0, compact.shape, mirrored.strides[::-1]))


def _place(layout: Layout, buffer: Array) -> Array:
    """Return the elements of a buffer of one axis addressed by a layout."""
    numbers = [int(str(value)) for value in (*layout.shape, *layout.strides)]
    rank = len(layout.shape)
    strides = [stride * buffer.itemsize for stride in numbers[rank:]]
    return np.lib.stride_tricks.as_strided(buffer[int(str(layout.offset)) :], numbers[:rank], strides)


def _buffer(array: Array, layout: Layout) -> Array:
    buffer = np.zeros(2 * prod(array.shape) + 5, array.dtype)
    _place(layout, buffer)[...] = array
    return buffer


@pytest.mark.parametrize("op", [op for op in _OPS if op.view and op.view.results], ids=lambda op: op.name)
def test_results_lie_in_the_operand_where_the_view_says(op: OpDef) -> None:
    assert op.view is not None
    for context, operands in _uses(op):
        results = _run(op, operands, context.attrs)
        has_steps_back = any(step < 0 for step in context.attrs.get("strides", ()))
        for layout in _layouts(operands[0].shape):
            buffer = _buffer(operands[0], layout)
            for result, place in zip(results, op.view.result_layouts(context, layout), strict=True):
                if place is None:
                    assert has_steps_back or not layout.is_compact
                else:
                    np.testing.assert_array_equal(_place(place, buffer), result)


@pytest.mark.parametrize("op", [op for op in _OPS if op.view and op.view.operands], ids=lambda op: op.name)
def test_operands_lie_in_the_result_where_the_view_says(op: OpDef) -> None:
    assert op.view is not None
    for context, operands in _uses(op):
        (result,) = _run(op, operands, context.attrs)
        for layout in _layouts(result.shape):
            buffer = _buffer(result, layout)
            for operand, place in zip(operands, op.view.operand_layouts(context, layout), strict=True):
                if place is None:
                    assert not layout.is_compact
                else:
                    np.testing.assert_array_equal(_place(place, buffer), operand)


@pytest.mark.parametrize("op", [op for op in _OPS if op.view], ids=lambda op: op.name)
def test_a_whole_view_has_each_element_of_its_operand_once(op: OpDef) -> None:
    assert op.view is not None
    for context, operands in _uses(op):
        numbers = [np.arange(operand.size, dtype="int32").reshape(operand.shape) for operand in operands]
        results = _run(op, numbers, context.attrs)
        is_whole = len(operands) == len(results) == 1 and sorted(results[0].flat) == list(range(numbers[0].size))
        assert op.view.is_whole <= is_whole


def _exact_operands(context: OpContext, operands: Sequence[Array]) -> list[Array]:
    """Return operands, large and small, with sums, products and exponentials independent of the order."""
    generator = np.random.default_rng(_RANDOM)
    return [
        generator.choice([-1024.0, -512.0, 512.0, 1024.0], operand.shape).astype(operand.dtype)
        if operand.dtype.kind == "f"
        else operand
        for operand in operands
    ]


def _orders(op: OpDef) -> Iterator[tuple[OpContext, list[Array], Order]]:
    for context, operands in _uses(op):
        rule = op.permute(context) if op.permute else None
        if rule is not None:
            for order in permutations(range(rule.rank)):
                yield context, _exact_operands(context, operands), order


@pytest.mark.parametrize("op", [op for op in _OPS if op.permute], ids=lambda op: op.name)
def test_operands_in_another_order_give_results_in_another_order(op: OpDef) -> None:
    tried = 0
    for context, operands, order in _orders(op):
        assert op.permute is not None
        rule = op.permute(context)
        assert rule is not None
        stored = [
            operand.transpose(inverse(order)) if index in rule.operands else operand
            for index, operand in enumerate(operands)
        ]
        permuted = _run(op, stored, op.normalise_attrs(rule.attrs(order)))
        for result, plain in zip(permuted, _run(op, operands, context.attrs), strict=True):
            np.testing.assert_array_equal(result.transpose(rule.result_order(order)), plain)
        tried += 1
    assert tried > 1


@pytest.mark.parametrize("op", [op for op in _OPS if op.name.endswith("quantize")], ids=lambda op: op.name)
def test_parameters_of_blocks_stay_in_front_of_quantisation(op: OpDef) -> None:
    x, scale, zero = (op.canonical_cases[0].types()[index].dtype for index in range(3))
    types = (TensorType((4, 6), x), TensorType((4, 3), scale), TensorType((4, 3), zero))
    assert op.permute is not None
    assert op.permute(_context(op, types, {"block_size": 2})) is None


_IDENTITIES: Mapping[str, tuple[tuple[int, ...], Mapping[str, object]]] = {
    "reshape": ((2, 3), {"shape": (2, -1)}),
    "squeeze": ((2, 3), {}),
    "expand_dims": ((2, 3), {"axis": ()}),
    "broadcast_to": ((2, 3), {"shape": (2, 3)}),
    "nn.pad": ((2, 3), {"pad_width": (0, 0, 0, 0)}),
    "concat": ((2, 3), {"axis": 1}),
    "split": ((2, 3), {"sections": (3,), "axis": 1}),
    "permute_dims": ((3, 3), {"axes": (-2, 1)}),
    "strided_slice": ((2, 3), {"axes": (1,), "begin": (-3,), "end": (9,), "strides": (1,)}),
}
_CHANGES: Mapping[str, tuple[tuple[int, ...], Mapping[str, object]]] = {
    "permute_dims": ((3, 3), {"axes": (1, 0)}),
    "strided_slice": ((2, 3), {"axes": (1,), "begin": (2,), "end": (-9,), "strides": (-1,)}),
}


@pytest.mark.parametrize("op", [op for op in _OPS if op.identity], ids=lambda op: op.name)
def test_an_identity_gives_its_operand_back(op: OpDef) -> None:
    shape, attrs = _IDENTITIES[op.name]
    type_ = TensorType(shape, "float32")
    context = _context(op, (type_,), attrs)
    assert op.identity is not None
    assert context.results == (type_,)
    assert op.identity(context)
    x = np.arange(prod(shape), dtype="float32").reshape(shape)
    (result,) = _run(op, [x], context.attrs)
    np.testing.assert_array_equal(result, x)


@pytest.mark.parametrize("op", [op for op in _OPS if op.name in _CHANGES], ids=lambda op: op.name)
def test_equal_types_do_not_make_every_op_an_identity(op: OpDef) -> None:
    shape, attrs = _CHANGES[op.name]
    type_ = TensorType(shape, "float32")
    context = _context(op, (type_,), attrs)
    assert context.results == (type_,)
    assert op.identity is not None
    assert not op.identity(context)


class _Facts(ValueFacts):
    def __init__(self, context: OpContext, arrays: Sequence[Array], *, constants: bool) -> None:
        self.context = context
        self._arrays = [array.astype(np.float64) for array in arrays]
        self._constants = constants

    def bound(self, operand: int) -> float:
        return float(np.max(np.abs(self._arrays[operand])))

    def is_constant(self, operand: int) -> bool:
        return self._constants and operand > 0

    def constant(self, operand: int) -> Array:
        return self._arrays[operand]

    def smallest(self, operand: int) -> float:
        return float(np.min(np.abs(self._arrays[operand]))) if self.is_constant(operand) else 0.0

    def largest_sum(self, operand: int, axis: int) -> float:
        array = np.abs(self._arrays[operand])
        return float(np.max(np.sum(array, axis=tuple(other for other in range(array.ndim) if other != axis))))


@pytest.mark.parametrize("constants", [False, True])
@pytest.mark.parametrize("op", [op for op in _OPS if op.bound], ids=lambda op: op.name)
def test_results_keep_their_bound(op: OpDef, constants: bool) -> None:
    assert op.bound is not None
    for context, random in _uses(op):
        for operands in (random, [np.abs(operand) for operand in random], [np.ones_like(each) for each in random]):
            bound = op.bound(_Facts(context, operands, constants=constants))
            largest = max(float(np.max(np.abs(result))) for result in _run(op, operands, context.attrs))
            assert largest <= bound < np.inf


@pytest.mark.parametrize(("name", "terms"), [("sum", 6), ("mean", 1), ("matmul", 16), ("nn.dense", 16)])
def test_bounds_of_sums_count_their_terms(name: str, terms: int) -> None:
    (op,) = (op for op in _OPS if op.name == name)
    assert op.bound is not None
    case = op.canonical_cases[1 if name == "sum" else 0]
    context = _context(op, case.types(), case.attrs)
    ones = [np.ones(operand.shape, "float32") for operand in case.operands]
    for constants in (False, True):
        assert terms <= op.bound(_Facts(context, ones, constants=constants)) <= terms * (1 + 2.0**-16)
