"""Layouts and their parts of a buffer, against sets of elements and numpy's strides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core.dims import Dim, parse_dim, substitute
from byoc_core.opset.layout import Layout, compact_layout, is_size, unproved_sizes
from byoc_core.vm.boxes import parts_of
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.interpreter

shapes = st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4).filter(lambda dims: np.prod(dims) <= 200)


def elements(layout: Layout, **sizes: int) -> Any:
    """Return the numbers of a layout's elements as an array of the layout's shape."""

    def number(dim: Dim) -> int:
        value = substitute(dim, sizes)
        assert isinstance(value, int)
        return value

    grid = np.indices([number(dim) for dim in layout.shape])
    return number(layout.offset) + sum(
        (index * number(step) for index, step in zip(grid, layout.strides, strict=True)), np.zeros(grid.shape[1:], int)
    )


@st.composite
def layouts(draw: st.DrawFn, shape: list[int]) -> Layout:
    """Layouts made from a C-contiguous tensor by slices, permutations and reshapes."""
    layout = compact_layout(shape)
    for _ in range(draw(st.integers(0, 4))):
        rank = len(layout.shape)
        axis = draw(st.integers(0, rank - 1))
        match draw(st.sampled_from(["slice", "permute", "cut"])):
            case "slice":
                size = layout.shape[axis]
                assert isinstance(size, int)
                start = draw(st.integers(0, size - 1))
                step = draw(st.integers(1, 2))
                count = draw(st.integers(0 if draw(st.booleans()) else 1, (size - 1 - start) // step + 1))
                layout = layout.sliced(axis, start, count, step)
            case "permute":
                layout = layout.permuted(draw(st.permutations(range(rank))))
            case "cut":
                layout = layout.reshaped((*layout.shape[:axis], 1, *layout.shape[axis:])) or layout
        if layout.is_empty:
            break
    return layout


@given(st.data())
def test_a_layout_knows_its_elements(data: st.DataObject) -> None:
    shape = data.draw(shapes)
    layout = data.draw(layouts(shape))
    found = elements(layout)
    assert layout.fits(shape) or layout.is_empty
    assert layout.is_injective()
    assert layout.canonical.shape == layout.shape
    assert layout.is_empty or (elements(layout.canonical) == found).all()
    in_order = np.arange(found.size) + (found.min() if found.size else 0)
    assert layout.is_compact == (found.ravel() == in_order).all()
    if found.size:
        assert layout.extent == found.max() - found.min() + 1


@given(st.data())
def test_a_reshaped_layout_is_numpys(data: st.DataObject) -> None:
    shape = data.draw(shapes)
    layout = data.draw(layouts(shape))
    total = int(np.prod([int(str(dim)) for dim in layout.shape]))
    target: list[int] = []
    while total > 1 and len(target) < 4:
        target.append(data.draw(st.sampled_from([divisor for divisor in range(1, total + 1) if total % divisor == 0])))
        total //= target[-1]
    target.append(total)
    found = elements(layout)
    memory = np.arange(200)
    array: Any = np.lib.stride_tricks.as_strided(
        memory[found.min() if found.size else 0 :], found.shape, [int(str(step)) * 8 for step in layout.strides]
    )
    reshaped = layout.reshaped(target)
    if reshaped is None:
        assert not np.shares_memory(array.reshape(target), memory)
    else:
        assert (elements(reshaped) == found.reshape(target)).all()


@given(st.data())
def test_parts_are_disjoint_and_make_up_each_layout(data: st.DataObject) -> None:
    shape = data.draw(shapes)
    found = [layout for layout in data.draw(st.lists(layouts(shape), max_size=4)) if not layout.is_empty]
    numbers = parts_of(shape, found)
    if numbers is None:
        return
    whole, *parts = numbers
    assert whole == tuple(range(len(whole)))
    # Every element belongs to the parts that all layouts with it share, and no others.
    sets = [set(elements(layout).ravel().tolist()) for layout in found]
    for left, of_left in zip(sets, parts, strict=True):
        for right, of_right in zip(sets, parts, strict=True):
            assert bool(left & right) == bool(set(of_left) & set(of_right))
            assert (left <= right) == (set(of_left) <= set(of_right))
    assert (set().union(*sets) == set(range(int(np.prod(shape))))) == (set().union(*map(set, parts)) == set(whole))


def test_slices_along_one_axis_are_parts() -> None:
    whole = compact_layout((2, 6, 5))
    slices = [whole.sliced(1, 0, 2), whole.sliced(1, 2, 3), whole.sliced(1, 5, 1), whole.sliced(1, 0, 5)]
    assert parts_of((2, 6, 5), slices) == [(0, 1, 2), (0,), (1,), (2,), (0, 1)]


BROADCAST_SIZES = ["broadcast(n, m)", "broadcast(n+1, m)", "broadcast((n+1)//2, m)", "broadcast(broadcast(n+2, m), k)"]


@pytest.mark.parametrize("text", BROADCAST_SIZES)
def test_slices_beside_a_broadcast_size_are_parts(text: str) -> None:
    """The sizes of a broadcast need not fit for equal symbols."""
    size = parse_dim(text)
    whole = compact_layout((4, size))
    assert parts_of(whole.shape, [whole.sliced(0, 0, 2), whole.sliced(0, 2, 2)]) == [(0, 1), (0,), (1,)]


def test_parts_between_ends_of_equal_typical_values() -> None:
    n, least = parse_dim("n"), parse_dim("min(n, m)")
    assert parts_of((n,), [Layout(0, (least,), (1,)), Layout(0, (n,), (1,))]) == [(0, 1), (0,), (0, 1)]


@pytest.mark.parametrize("batch", ["n", "2*n+1", "n*k"])
def test_symbolic_slices_are_parts(batch: str) -> None:
    n, h, k = parse_dim(batch), parse_dim("h"), parse_dim("k")
    whole = compact_layout((n, 3 + k, h))
    slices = [whole.sliced(1, 0, 3), whole.sliced(1, 3, k)]
    assert all(layout.fits(whole.shape) and layout.is_injective() for layout in slices)
    assert parts_of(whole.shape, slices) == [(0, 1), (0,), (1,)]
    assert not whole.sliced(1, 3, k + 1).fits(whole.shape)
    flat = slices[1].reshaped((n, k * h))
    assert flat is not None
    of_flat, of_slice = elements(flat, n=2, h=3, k=4), elements(slices[1], n=2, h=3, k=4)
    assert (of_flat == of_slice.reshape(of_flat.shape)).all()


def test_what_is_not_proved_has_no_parts() -> None:
    n, m = parse_dim("n"), parse_dim("m")
    assert parts_of((n + m,), [Layout(0, (n,), (1,)), Layout(0, (m,), (1,))]) is None
    assert parts_of((30,), [Layout(0, (3, 4), (10, 2)), Layout(0, (3, 2), (9, 1))]) is None


@pytest.mark.parametrize(
    ("value", "sizes", "expected"),
    [
        ("n-2", ("n-2",), True),
        ("4*n-8", ("n-2",), True),
        ("8*n-8", ("n-2",), True),
        ("n*m-2*m", ("n-2",), True),
        ("3*n-7", ("n-2", "n-3"), True),
        ("n*m-n-2*m+1", ("n-2", "m-1"), False),
        ("n-3", ("n-2",), False),
        ("m-2", ("n-2",), False),
        ("n-1", ("2*n-3",), False),
    ],
)
def test_what_follows_from_sizes_of_which_something_is_taken(
    value: str, sizes: tuple[str, ...], expected: bool
) -> None:
    assert is_size(parse_dim(value), [parse_dim(size) for size in sizes]) is expected


def test_sizes_that_are_numbers_prove_nothing() -> None:
    assert unproved_sizes((-1, parse_dim("n"), parse_dim("n-2"))) == (parse_dim("n-2"),)
