"""Kernels of gathers, scatters and moves of slices against numpy's own indexing, plain loops, and float64 sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from byoc_core.dtypes import all_dtypes, to_numpy
from byoc_core.ops import default_ops
from byoc_core.opset.families import KERNELS
from byoc_core.runtime.module import NDArray
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.lowest

ORACLES = {
    "flip": "numpy.flip",
    "roll": "numpy.roll",
    "stack": "numpy.stack",
}
"""The oracles of ops missing in ONNX Runtime."""

Draw = Callable[[st.SearchStrategy[Any]], Any]
RunNode = Callable[..., list[Any]]
_REDUCTIONS = ("update", "add", "mul", "min", "max")
_UNIT = 2.0**-24


def _call(name: str, *inputs: NDArray, **attrs: object) -> Any:
    op = default_ops()[name]
    before = [array.tobytes() for array in inputs]
    result = KERNELS[name](*inputs, **op.normalise_attrs(attrs))
    assert [array.tobytes() for array in inputs] == before
    return result


def _shape(draw: Draw, low: int, high: int, least: int = 1) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.integers(least, 4), min_size=low, max_size=high)))


def _numbers(*shape: int) -> Any:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(np.int32)


def _indices(draw: Draw, shape: tuple[int, ...], size: int) -> Any:
    """Return indices into an axis, including negative indices, of any integer dtype with a sufficient range."""
    dtype = draw(st.sampled_from(["int64", "int32", "int8", "int4", "uint8", "uint64"]))
    low = 0 if dtype.startswith("u") else -size
    count = int(np.prod(shape))
    values = draw(st.lists(st.integers(low, size - 1), min_size=count, max_size=count))
    return np.array(values, np.int64).reshape(shape).astype(to_numpy(dtype))


def _wide(indices: NDArray) -> Any:
    return indices.astype(np.int64)


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_take_is_numpy_take_for_indices_of_any_dtype(data: st.DataObject) -> None:
    x = _numbers(*_shape(data.draw, 1, 3))
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    indices = _indices(data.draw, _shape(data.draw, 0, 2, 0), x.shape[axis])
    np.testing.assert_array_equal(_call("take", x, indices, axis=axis), np.take(x, _wide(indices), axis))


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_gather_elements_is_take_along_axis_of_the_part_that_pairs(data: st.DataObject) -> None:
    x = _numbers(*_shape(data.draw, 1, 3))
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    pairing = [data.draw(st.integers(0, size)) for size in x.shape]
    pairing[axis] = data.draw(st.integers(0, 6))
    indices = _indices(data.draw, tuple(pairing), x.shape[axis])
    pairing[axis] = x.shape[axis]
    part = x[tuple(map(slice, pairing))]
    expected = np.take_along_axis(part, _wide(indices), axis)
    np.testing.assert_array_equal(_call("gather_elements", x, indices, axis=axis), expected)


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_gather_nd_is_a_loop_of_indexing(data: st.DataObject) -> None:
    batch, outer = _shape(data.draw, 0, 2), _shape(data.draw, 0, 2, 0)
    x = _numbers(*batch, *_shape(data.draw, 1, 2), *_shape(data.draw, 0, 1, 0))
    count = data.draw(st.integers(1, x.ndim - len(batch)))
    sizes = x.shape[len(batch) : len(batch) + count]
    if 0 in sizes:
        sizes, outer = tuple(max(size, 1) for size in sizes), (*outer, 0)
    indices = np.stack([_wide(_indices(data.draw, (*batch, *outer), size)) for size in sizes], -1)
    result = _call("gather_nd", x, indices, batch_dims=len(batch))
    assert result.shape == (*batch, *outer, *x.shape[len(batch) + count :])
    assert result.dtype == x.dtype
    for place in np.ndindex(*batch, *outer):
        np.testing.assert_array_equal(result[place], x[(*place[: len(batch)], *indices[place])])


def _scatter_by_loop(x: NDArray, places: list[Any], updates: list[Any], reduction: str) -> Any:
    """Return the result of sequential updates, by the rule of ONNX Runtime."""
    rules: dict[str, Callable[[Any, Any], Any]] = {
        "update": lambda there, update: update,
        "add": lambda there, update: there + update,
        "mul": lambda there, update: there * update,
        "min": lambda there, update: np.where(there < update, there, update),
        "max": lambda there, update: np.where(there > update, there, update),
    }
    result = x.copy()
    for place, update in zip(places, updates, strict=True):
        result[place] = rules[reduction](result[place], update)
    return result


_VALUES = st.sampled_from([0.0, 1.0, -1.0, 2.0, 3.0, np.nan, np.inf, -np.inf])


def _values(draw: Draw, shape: tuple[int, ...]) -> Any:
    """Return small whole numbers, NaNs and infinities, without rounding in sums."""
    count = int(np.prod(shape))
    return np.array(draw(st.lists(_VALUES, min_size=count, max_size=count))).reshape(shape)


@pytest.mark.parametrize("reduction", _REDUCTIONS)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_scatter_elements_is_a_loop(reduction: str, data: st.DataObject) -> None:
    shape = _shape(data.draw, 1, 2)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    pairing = [data.draw(st.integers(0, size)) for size in shape]
    pairing[axis] = data.draw(st.integers(0, 6))
    x, updates = _values(data.draw, shape), _values(data.draw, tuple(pairing))
    indices = _indices(data.draw, tuple(pairing), shape[axis])
    places = [list(place) for place in np.ndindex(*pairing)]
    for place in places:
        place[axis] = int(indices[tuple(place)])
    with np.errstate(invalid="ignore"):
        expected = _scatter_by_loop(x, list(map(tuple, places)), list(updates.reshape(-1)), reduction)
    result = _call("scatter_elements", x, indices, updates, axis=axis, reduction=reduction)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("reduction", _REDUCTIONS)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_scatter_nd_is_a_loop(reduction: str, data: st.DataObject) -> None:
    shape, outer = _shape(data.draw, 1, 3), _shape(data.draw, 0, 2, 0)
    count = data.draw(st.integers(1, len(shape)))
    indices = np.stack([_wide(_indices(data.draw, outer, size)) for size in shape[:count]], -1)
    x, updates = _values(data.draw, shape), _values(data.draw, (*outer, *shape[count:]))
    places = [tuple(indices[place]) for place in np.ndindex(*outer)]
    with np.errstate(invalid="ignore"):
        expected = _scatter_by_loop(x, places, [updates[place] for place in np.ndindex(*outer)], reduction)
    np.testing.assert_array_equal(_call("scatter_nd", x, indices, updates, reduction=reduction), expected)


@pytest.mark.parametrize("width", [2, 300], ids=["narrow", "wide"])
@pytest.mark.parametrize("reduction", _REDUCTIONS)
def test_rows_of_any_width_and_memory_order_are_scattered_in_order(reduction: str, width: int) -> None:
    rng = np.random.default_rng(0)
    x, updates = (rng.integers(-3, 4, shape).astype(np.float64) for shape in ((5, width), (40, width)))
    x[rng.random(x.shape) < 0.1] = np.nan
    updates[rng.random(updates.shape) < 0.1] = np.nan
    places = rng.integers(0, 5, 40)
    expected = _scatter_by_loop(x, list(places), list(updates), reduction)
    for rows, terms in ((x, updates), (np.asfortranarray(x), np.asfortranarray(updates))):
        result = _call("scatter_nd", rows, places[:, np.newaxis], terms, reduction=reduction)
        np.testing.assert_array_equal(result, expected)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_what_was_scattered_to_places_of_its_own_is_gathered_again(data: st.DataObject) -> None:
    shape = _shape(data.draw, 1, 3)
    axis = data.draw(st.integers(0, len(shape) - 1))
    x, count = _numbers(*shape), data.draw(st.integers(0, shape[axis]))
    seed = data.draw(st.integers(0, 2**32 - 1))
    order = np.random.default_rng(seed).permuted(np.broadcast_to(_along(shape, axis), shape), axis=axis)
    indices = np.take(order, np.arange(count), axis)
    updates = -1 - np.take(x, np.arange(count), axis)
    scattered = _call("scatter_elements", x, indices, updates, axis=axis)
    np.testing.assert_array_equal(_call("gather_elements", scattered, indices, axis=axis), updates)
    assert np.count_nonzero(scattered != x) == updates.size

    places = np.argwhere(np.ones(shape, bool))[np.random.default_rng(seed).permutation(x.size)][:5]
    scattered = _call("scatter_nd", x, places, updates := np.arange(-1, -1 - len(places), -1, dtype=np.int32))
    np.testing.assert_array_equal(_call("gather_nd", scattered, places), updates)
    assert np.count_nonzero(scattered != x) == updates.size


def _along(shape: tuple[int, ...], axis: int) -> Any:
    """Return the indices of an axis, with the shape's number of axes."""
    return np.arange(shape[axis]).reshape([-1 if other == axis else 1 for other in range(len(shape))])


@pytest.mark.parametrize("dtype", [dtype for dtype in all_dtypes() if dtype != "float8_e8m0fnu"])
@pytest.mark.parametrize("reduction", _REDUCTIONS)
def test_updates_of_every_dtype_meet_at_one_element(reduction: str, dtype: str) -> None:
    """Three updates of 3 reach the element 2: the results 11 and 54 wrap around in few bits.

    A dtype of powers of two has no 3.
    """
    narrow = to_numpy(dtype)
    x, updates = np.array([1, 2], np.int8).astype(narrow), np.array([3, 3, 3], np.int8).astype(narrow)
    exact = {"update": 3, "add": 11, "mul": 54, "min": 2, "max": 3}[reduction]
    expected = np.array([1, exact], np.int8).astype(narrow)
    indices = np.array([1, 1, -1])
    for result in (
        _call("scatter_elements", x, indices, updates, reduction=reduction),
        _call("scatter_nd", x, indices[:, np.newaxis], updates, reduction=reduction),
    ):
        assert result.dtype == narrow
        assert result.tolist() == expected.tolist()


@pytest.mark.parametrize(("dtype", "unit"), [("float32", _UNIT), ("float16", 2.0**-11), ("bfloat16", 2.0**-8)])
def test_sums_of_updates_are_within_the_bound_of_their_length(dtype: str, unit: float) -> None:
    rng, length = np.random.default_rng(3), 500
    x = rng.standard_normal(4).astype(to_numpy(dtype))
    updates, indices = rng.standard_normal(length).astype(to_numpy(dtype)), rng.integers(0, 4, length)
    result = _call("scatter_elements", x, indices, updates, reduction="add").astype(np.float64)
    for place in range(4):
        terms = np.array([x[place], *updates[indices == place]], np.float64)
        gamma = len(terms) * _UNIT / (1 - len(terms) * _UNIT)
        bound = gamma * np.abs(terms).sum()  # in float32, then one rounding
        assert abs(result[place] - terms.sum()) <= bound + unit * (abs(terms.sum()) + bound)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("reduction", ["min", "max"])
def test_nan_in_extremes_is_as_in_onnx_runtime(reduction: str, dtype: str, run_node: RunNode) -> None:
    rng = np.random.default_rng(4)
    choices = np.array([np.nan, 1, 2, 3, -np.inf, np.inf])
    x, updates = rng.choice(choices, 200).astype(dtype), rng.choice(choices, 500).astype(dtype)
    indices = rng.integers(-200, 200, 500)
    result = _call("scatter_elements", x, indices, updates, reduction=reduction)
    np.testing.assert_array_equal(
        result, run_node("ScatterElements", [x, indices, updates], reduction=reduction)[0], strict=True
    )
    assert np.isnan(result).any()
    assert np.any(np.isnan(x) & ~np.isnan(result))


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_scatter_slice_is_the_loop_of_its_definition(data: st.DataObject) -> None:
    """The loop comes from ONNX's TensorScatter."""
    shape = _shape(data.draw, 2, 4)
    starts_shape: tuple[int, ...] = data.draw(st.sampled_from([(), shape[:1]]))
    axis = data.draw(st.integers(1 if starts_shape else 0, len(shape) - 1))
    length, mode = data.draw(st.integers(0, shape[axis])), data.draw(st.sampled_from(["linear", "circular"]))
    x = _numbers(*shape)
    updates = -1 - _numbers(*shape[:axis], length, *shape[axis + 1 :])
    possible = st.integers(0, shape[axis] - length) if mode == "linear" else st.integers(-(2**63), 2**63 - 1)
    starts = np.array([data.draw(possible) for _ in range(int(np.prod(starts_shape)))]).reshape(starts_shape)
    expected = x.copy()
    for place in np.ndindex(*updates.shape):
        start = int(starts[place[0]] if starts_shape else starts)
        target = list(place)
        target[axis] = (start + place[axis]) % shape[axis]
        expected[tuple(target)] = updates[place]
    result = _call("scatter_slice", x, updates, starts, axis=axis - len(shape), mode=mode)
    np.testing.assert_array_equal(result, expected, strict=True)


def test_a_circular_start_of_the_largest_unsigned_integers_is_exact() -> None:
    start = 2**64 - 1
    result = _call("scatter_slice", _numbers(7), -_numbers(2) - 1, np.array(start, np.uint64), axis=0, mode="circular")
    expected = _numbers(7)
    expected[start % 7], expected[(start + 1) % 7] = -1, -2
    np.testing.assert_array_equal(result, expected)


def test_one_hot_counts_from_the_end_and_has_no_place_for_what_lies_outside() -> None:
    indices = np.array([0, 2, -1, -3, 3, -4, 2**62])
    expected = np.full((7, 3), 5.0)
    expected[[0, 1, 2, 3], [0, 2, 2, 0]] = 7.0
    values = np.array(7.0), np.array(5.0)
    np.testing.assert_array_equal(_call("one_hot", indices, *values, depth=3), expected, strict=True)
    np.testing.assert_array_equal(_call("one_hot", indices, *values, depth=3, axis=0), expected.T, strict=True)
    unsigned = np.array([2, 2**64 - 1], np.uint64)
    np.testing.assert_array_equal(_call("one_hot", unsigned, *values, depth=3), expected[[1, 4]])
    np.testing.assert_array_equal(_call("one_hot", np.array(1, np.uint8), *values, depth=300)[:3], [5, 7, 5])


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_one_hot_of_indices_inside_is_a_row_of_the_unit_matrix(data: st.DataObject) -> None:
    depth = data.draw(st.integers(1, 6))
    indices = _indices(data.draw, _shape(data.draw, 0, 2, 0), depth)
    axis = data.draw(st.integers(-indices.ndim - 1, indices.ndim))
    result = _call("one_hot", indices, np.array(1, np.int8), np.array(0, np.int8), depth=depth, axis=axis)
    expected = np.moveaxis(np.eye(depth, dtype=np.int8)[_wide(indices)], -1, axis)
    np.testing.assert_array_equal(result, expected, strict=True)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_tile_flip_roll_and_stack_are_those_of_numpy(data: st.DataObject) -> None:
    x = _numbers(*_shape(data.draw, 0, 3, 0))
    repeats = tuple(data.draw(st.integers(0, 3)) for _ in x.shape)
    np.testing.assert_array_equal(_call("tile", x, repeats=repeats), np.tile(x, repeats), strict=True)
    axis = data.draw(st.integers(-x.ndim - 1, x.ndim))
    parts = [x + place for place in range(data.draw(st.integers(1, 3)))]
    np.testing.assert_array_equal(_call("stack", *parts, axis=axis), np.stack(parts, axis), strict=True)
    np.testing.assert_array_equal(_call("roll", x, shift=(), axis=()), x)
    for axis in range(-x.ndim, x.ndim):
        shift = data.draw(st.integers(-9, 9))
        np.testing.assert_array_equal(_call("roll", x, shift=(shift,), axis=(axis,)), np.roll(x, shift, axis))
        flipped = _call("flip", x, axis=axis)
        np.testing.assert_array_equal(flipped, np.flip(x, axis))
        np.testing.assert_array_equal(_call("flip", flipped, axis=axis), x)


def test_roll_along_several_axes_is_one_roll_after_the_other() -> None:
    x = _numbers(3, 4, 5)
    expected = np.roll(np.roll(x, 2, 0), -3, 2)
    np.testing.assert_array_equal(_call("roll", x, shift=(2, -3), axis=(0, -1)), expected)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_sequences_reversed_twice_are_as_before(data: st.DataObject) -> None:
    x = _numbers(*_shape(data.draw, 2, 4))
    batch_axis, seq_axis = data.draw(st.permutations(range(x.ndim)))[:2]
    attrs = {"batch_axis": batch_axis, "seq_axis": seq_axis - x.ndim}
    lengths = np.array([data.draw(st.integers(0, x.shape[seq_axis])) for _ in range(x.shape[batch_axis])], np.uint8)
    result = _call("reverse_sequence", x, lengths, **attrs)
    for item, length in enumerate(lengths):
        before, after = (np.moveaxis(a, (batch_axis, seq_axis), (0, 1))[item] for a in (x, result))
        np.testing.assert_array_equal(after, np.concatenate([before[:length][::-1], before[length:]]))
    np.testing.assert_array_equal(_call("reverse_sequence", result, lengths, **attrs), x)


def test_empty_arrays_are_indexed_by_nothing() -> None:
    x, none = np.zeros((2, 0, 3), np.float32), np.zeros((2, 0, 3), np.int64)
    calls = [
        _call("gather_elements", x, none, axis=1),
        _call("scatter_elements", x, none, x, axis=1, reduction="max"),
        _call("scatter_elements", x, none, x, axis=0),
        _call("gather_nd", x, np.zeros((2, 0, 3, 1), np.int64), batch_dims=1)[:, :, 0],
        _call("scatter_nd", x, np.zeros((4, 1), np.int64), np.zeros((4, 0, 3), np.float32), reduction="min"),
        _call("scatter_slice", x, x, np.array([0, 0]), axis=1),
        _call("scatter_slice", x, x, np.array([5, -5]), axis=1, mode="circular"),
        _call("roll", x, shift=(1,), axis=(1,)),
        _call("reverse_sequence", x, np.array([0, 0])),
    ]
    for result in calls:
        assert (result.shape, result.dtype) == (x.shape, x.dtype)
