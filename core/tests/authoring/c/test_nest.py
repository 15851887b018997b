"""Nests: results and fusion."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from byoc_core.authoring.c import (
    Accumulator,
    Axis,
    Buffer,
    CType,
    Element,
    Function,
    Let,
    Literal,
    Load,
    MemoryAccess,
    Nest,
    Schedule,
    Select,
    Size,
    Store,
    Variable,
    fuse_into_load,
    fuse_into_store,
    interpret,
    lower_nest,
    merge_nests,
    verify,
)
from byoc_core.errors import InternalError

from core.tests.authoring.c.nests import NDArray, arrays_of, product_case

FLOAT = CType("float32")
CASE = product_case(3, 4, 5, {})
LEFT, RIGHT = CASE.inputs
(PRODUCT,) = CASE.outputs
OUT, OTHER = (Buffer(name, "float32", MemoryAccess.WRITE, 12) for name in ("result", "other"))
BIAS = Buffer("bias", "float32", size=4)
ROW, COLUMN = Axis(Variable("i"), 3), Axis(Variable("j"), 4)
AT = ROW.index * 4 + COLUMN.index
T = Variable("t", FLOAT)
RELU = Nest(
    (ROW, COLUMN),
    (Let(T, PRODUCT[AT] + BIAS[COLUMN.index]), Store(OUT, AT, Element("nn.relu", (T,), FLOAT))),
)
SCALE = Nest((ROW, COLUMN), (Store(PRODUCT, AT, OTHER[AT] * 2),))


def computed(nest: Nest, *buffers: Buffer, schedule: Schedule | None = None) -> dict[Buffer, NDArray]:
    """Return the arrays of some buffers after running a nest; ``bias`` and ``other`` count from -1 on."""
    arrays = {**arrays_of(CASE), BIAS: np.arange(-1, 3, dtype=np.float32), OUT: np.zeros(12, np.float32)}
    arrays[OTHER] = np.arange(-1, 11, dtype=np.float32)
    body = lower_nest(nest, schedule or Schedule())
    interpret(verify(Function("f", (LEFT, RIGHT, PRODUCT, BIAS, OTHER, OUT), body)), arrays)
    return {buffer: arrays[buffer] for buffer in buffers}


def test_a_product_of_matrices_is_one() -> None:
    arrays = arrays_of(CASE)
    expected = arrays[LEFT].reshape(3, 5) @ arrays[RIGHT].reshape(5, 4)
    np.testing.assert_allclose(computed(CASE.nest, PRODUCT)[PRODUCT].reshape(3, 4), expected, rtol=1e-6)


@pytest.mark.parametrize("schedule", [Schedule(), Schedule(order=("i", "r", "j"), vector="j", lanes=4)], ids=str)
def test_an_epilogue_computes_what_two_nests_do(schedule: Schedule) -> None:
    product = computed(CASE.nest, PRODUCT)[PRODUCT]
    bias = np.tile(np.arange(-1, 3, dtype=np.float32), 3)
    fused = fuse_into_store(CASE.nest, RELU, PRODUCT)
    found = computed(fused, PRODUCT, OUT, schedule=schedule)
    np.testing.assert_array_equal(found[OUT], np.maximum(product + bias, 0))
    assert np.isnan(found[PRODUCT]).all()


def test_a_nest_may_be_an_epilogue_of_its_own() -> None:
    again = replace(SCALE, body=(Let(T, PRODUCT[AT]), Store(PRODUCT, AT, T)))
    first = replace(SCALE, body=(Let(T, OTHER[AT]), Store(PRODUCT, AT, T)))
    fused = fuse_into_store(fuse_into_store(first, again, PRODUCT), replace(RELU, body=again.body), PRODUCT)
    np.testing.assert_array_equal(computed(fused, PRODUCT)[PRODUCT], np.arange(-1, 11))


def test_a_prologue_computes_what_two_nests_do() -> None:
    fused = fuse_into_load(SCALE, RELU, PRODUCT)
    expected = np.arange(-1, 11, dtype=np.float32) * 2 + np.tile(np.arange(-1, 3, dtype=np.float32), 3)
    np.testing.assert_array_equal(computed(fused, OUT)[OUT], np.maximum(expected, 0))


def test_two_nests_of_one_walk_have_two_results() -> None:
    reader = replace(CASE.nest, body=(Store(OUT, CASE.nest.axes[0].index * 4 + CASE.nest.axes[1].index, total()),))
    both = computed(merge_nests(CASE.nest, reader), PRODUCT, OUT)
    np.testing.assert_array_equal(both[PRODUCT], both[OUT])


def total() -> Variable:
    """Return the variable of the sum of the product."""
    (accumulator,) = CASE.nest.accumulators
    return accumulator.variable


def test_the_largest_element_may_be_held_in_a_tile() -> None:
    largest, column = Variable("largest", FLOAT), Axis(Variable("r"), 4)
    value = Variable("value", FLOAT)
    nest = Nest(
        (ROW,),
        (Store(OUT, ROW.index, largest),),
        (column,),
        (Let(value, OTHER[ROW.index * 4 + column.index]),),
        (Accumulator(largest, Literal(-9, FLOAT), Element("maximum", (largest, value), FLOAT)),),
    )
    found = computed(nest, OUT, schedule=Schedule(order=("r", "i")))
    assert found[OUT][:3].tolist() == [2, 6, 10]


WINDOW = Nest((ROW,), (Store(OUT, ROW.index, PRODUCT[ROW.index + 1]),))
REFUSALS: dict[str, tuple[Callable[[], Nest], str]] = {
    "other points": (lambda: fuse_into_store(CASE.nest, WINDOW, PRODUCT), "has other points than the producer"),
    "another place": (
        lambda: fuse_into_store(CASE.nest, replace(RELU, body=(Store(OUT, AT, PRODUCT[0]),)), PRODUCT),
        "`out` is read at another element than the stored element",
    ),
    "a vector": (
        lambda: fuse_into_store(CASE.nest, replace(RELU, body=(Store(OUT, AT, Load(PRODUCT, AT, 4)),)), PRODUCT),
        "`out` is read at another element than the stored element",
    ),
    "no store": (
        lambda: fuse_into_store(CASE.nest, RELU, OTHER),
        "the producer does not store to `other` once, at each point",
    ),
    "its own result": (
        lambda: fuse_into_store(replace(SCALE, body=(*SCALE.body, Store(OTHER, AT, PRODUCT[AT]))), RELU, PRODUCT),
        "`out` is read by other means than loads of single elements",
    ),
    "a reduction": (lambda: fuse_into_load(CASE.nest, RELU, PRODUCT), "the producer has more than a single store"),
    "beside the points": (
        lambda: fuse_into_load(
            SCALE, replace(RELU, body=(Store(OUT, AT, PRODUCT[ROW.index * 4 + (COLUMN.index + 1)]),)), PRODUCT
        ),
        "`out` is read at an element not provably stored by the producer",
    ),
    "a choice": (
        lambda: fuse_into_load(
            SCALE,
            replace(RELU, body=(Store(OUT, AT, PRODUCT[Select(AT.compare("<", 3), AT, Size(0))]),)),
            PRODUCT,
        ),
        "`out` is read at an element not provably stored by the producer",
    ),
    "both at once": (lambda: merge_nests(SCALE, RELU), "a nest reads buffers stored by the other nest: `out`"),
    "two walks": (lambda: merge_nests(SCALE, WINDOW), "the nests have different points"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_nests_that_do_not_fit_are_not_fused(name: str) -> None:
    fuse, problem = REFUSALS[name]
    with pytest.raises(InternalError, match=re.escape(problem)):
        fuse()


def test_two_axes_of_one_name_are_no_nest() -> None:
    with pytest.raises(InternalError, match="two axes have the same name"):
        Nest((ROW, ROW), ())
