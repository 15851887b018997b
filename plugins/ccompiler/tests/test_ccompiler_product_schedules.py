"""Matrix products by random legal schedules equal their nests, to the last bit; illegal schedules are refused.

Numbers are small and whole, so sums are exact in any order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any
from unittest.mock import patch

import byoc_ccompiler.codegen as codegen
import numpy as np
import pytest
from byoc_ccompiler.backend import byoc_generated_kernels
from byoc_ccompiler.kernels import bfloat16_products, byte_products, products
from byoc_ccompiler.kernels.bfloat16 import STEP_ROWS
from byoc_ccompiler.kernels.bfloat16_products import RoundedSchedule
from byoc_ccompiler.kernels.byte_products import ByteSchedule
from byoc_ccompiler.kernels.product_geometry import Matrix, Product
from byoc_ccompiler.kernels.product_schedules import (
    DotSchedule,
    PanelSchedule,
    RightOperand,
    StretchSchedule,
    choose,
)
from byoc_ccompiler.vector_unit import VectorUnit
from byoc_core.authoring import c
from byoc_core.backend.hooks import CompileContext
from byoc_core.dims import Dim, evaluate, symbol
from byoc_core.errors import InternalError
from byoc_core.ir import Function, Value, Var, tensor
from byoc_core.runtime.module import NDArray
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from plugins.ccompiler.tests.bench import MEANING, Bench, sizes_of, tensor_type
from plugins.ccompiler.tests.random_products import LaidOut, in_memory

KINDS = (*RightOperand, DotSchedule, StretchSchedule)
"""The subject of a schedule: panels from somewhere, dot products, rows."""

PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""No phase for shrinking: smaller draws of a generator gain nothing, and each try is a run of the C compiler."""

_ACCESSES = (c.MemoryAccess.READ, c.MemoryAccess.READ, c.MemoryAccess.WRITE)

Kind = RightOperand | type[DotSchedule] | type[StretchSchedule]
Schedule = PanelSchedule | DotSchedule | StretchSchedule


@dataclass
class Case:
    """A function of a single product.

    Attributes:
        kind: the subject of the schedule.
        function: the function, with parameters as operands, the right operand perhaps a constant.
        symbols: the sizes of the symbols.
        orders: by name, the axes of a parameter in memory order.
        is_negated: whether something follows the product.
        made: the product found by the writer, and the given schedule.
    """

    kind: Kind
    function: Function
    symbols: Mapping[str, int]
    orders: Mapping[str, tuple[int, ...]]
    is_negated: bool
    scheduled: tuple[Product, Schedule] | None = None


def _draw_schedule(rng: random.Random, kind: Kind, p: Product, unit: VectorUnit) -> Schedule:
    """Return a legal schedule of a kind."""

    def size(most: int) -> int:
        return rng.randint(1, most)

    if kind is DotSchedule:
        return DotSchedule(size(9), size(9), size(5), size(5))
    if kind is StretchSchedule:
        return StretchSchedule(size(20))
    assert isinstance(kind, RightOperand)
    depth_block = rng.choice((None, size(4), size(12)))
    schedule = PanelSchedule(kind, size(5), size(20), p.num_rows, depth_block, rng.choice((False, True)))
    panels = rng.randint(2, 5)
    at_once = replace(schedule, chunk=max(schedule.chunk, p.known_rows or 1), depth_block=None, panels_at_once=panels)
    if all(at_once.laws(p, unit).values()):
        return at_once
    if schedule.packs_inside(p, unit) or size(2) == 1:
        return schedule
    return PanelSchedule(
        kind, schedule.vectors, schedule.chunk, schedule.chunk * size(3), depth_block, schedule.fetches
    )


def _draw_case(rng: random.Random, bench: Bench, kind: Kind, number: int) -> Case:
    """Return a product with a legal schedule of a kind."""
    symbols = dict[str, int]()

    def flag(*kinds: Kind) -> bool:
        """Draw a flag; always false for the kinds listed."""
        return kind not in kinds and rng.random() < 0.5

    def size(name: str, most: int) -> Dim:
        value = rng.randint(1, most)
        if rng.random() < 0.75:
            return value
        symbols[f"{name}{number}"] = value
        return symbol(f"{name}{number}")

    lead: tuple[Dim, ...] = () if kind is RightOperand.PACKED_APART else rng.choice(((), (2,), (1, 3)))
    is_constant = kind is RightOperand.CONSTANT or flag()
    is_vector = flag(RightOperand.CONSTANT, RightOperand.IN_PLACE)
    is_dense = not is_vector and (kind is DotSchedule or flag(RightOperand.IN_PLACE))
    rows, depth, columns = size("m", 23), size("k", 20), size("n", rng.choice((21, 60)))
    if kind is RightOperand.CONSTANT and number >= len(KINDS):
        lead, rows = (), rng.randint(1, 6)  # perhaps several panels at once
    if is_constant:
        depth, columns = (evaluate(dim, symbols) for dim in (depth, columns))
    matrix = (columns, depth) if is_dense else (depth,) if is_vector else (depth, columns)
    has_stack = not is_dense and not is_vector and flag(RightOperand.CONSTANT)
    right = (*(lead if has_stack else ()), *matrix)
    dtype = rng.choice(("float32", "float64", "int32", "uint8")[: 4 if kind is StretchSchedule else 2])
    builder = bench.builder()
    operands: list[Value] = [builder.param("x", tensor((*lead, rows, depth), dtype))]
    # The matrix on the left, or a vector's, goes along its rows.
    orders = {"x": (*rng.sample(range(len(lead) + 1), len(lead) + 1), len(lead) + 1)}
    if is_constant:
        operands.append(builder.const(_drawn([evaluate(dim, {}) for dim in right], dtype, number)))
    else:
        operands.append(builder.param("y", tensor(right, dtype)))
        axes = range(len(right))
        orders["y"] = tuple(axes if kind in (RightOperand.IN_PLACE, DotSchedule) else rng.sample(axes, len(axes)))
    result, is_negated = builder.emit("nn.dense" if is_dense else "matmul", *operands), dtype != "uint8" and flag()
    function = bench.add(builder, builder.emit("negative", result) if is_negated else result)
    return Case(kind, function, symbols, orders, is_negated)


def _drawn(shape: Sequence[int], dtype: str, seed: int) -> NDArray:
    return np.random.default_rng(seed).integers(0 if dtype == "uint8" else -4, 5, shape).astype(dtype)


def _interpreted(case: Case, bench: Bench, memory: Mapping[str, NDArray]) -> NDArray:
    """Return the results of the nest of a case's product, for operands as laid out in memory."""
    assert case.scheduled is not None
    p = case.scheduled[0]
    x, y, out = (c.Buffer(name, p.dtype, access) for name, access in zip("xyz", _ACCESSES, strict=True))
    function = c.verify(c.Function("product", (x, y, out), c.lower_nest(p.nest(x, y, out))))
    left, right = (
        memory[value.name] if isinstance(value, Var) else bench.constants[value.digest]
        for value in (p.left.value, p.right.value)
    )
    result = np.zeros(sizes_of(case.function.results[0], case.symbols), p.dtype)
    c.interpret(function, {x: left.reshape(-1), y: right.reshape(-1), out: result.reshape(-1)}, case.symbols)
    return -result if case.is_negated else result


def _check(case: Case, bench: Bench) -> None:
    params = case.function.params
    inputs = [_drawn(sizes_of(param, case.symbols), tensor_type(param).dtype, k) for k, param in enumerate(params)]
    arrays = [in_memory(array, case.orders[param.name]) for array, param in zip(inputs, params, strict=True)]
    memory = {param.name: array for array, param in zip(arrays, params, strict=True)}
    (actual,), (reference,) = bench.run(case.function, *arrays), bench.reference(case.function, *inputs)
    np.testing.assert_array_equal(actual, _interpreted(case, bench, memory), err_msg=f"{case}")
    np.testing.assert_array_equal(actual, reference, err_msg=f"{case}")


def test_random_schedules_compute_what_the_nests_say() -> None:
    ran = set[Schedule]()

    @settings(max_examples=5, deadline=None, phases=PHASES)
    @given(st.randoms(use_true_random=True), st.sampled_from(["generic", "native"]))
    def check(rng: random.Random, march: str) -> None:
        bench, laid_out = Bench(march=march, opt_level=MEANING), LaidOut()
        # Several at a time: a run of the C compiler costs more than a product.
        cases = [_draw_case(rng, bench, kind, number) for number, kind in enumerate(KINDS * 2)]
        laid_out.orders.update((case.function, case.orders) for case in cases)
        by_value = {case.function.params[0]: case for case in cases}

        def choose(p: Product, unit: VectorUnit) -> Schedule:
            (case,) = (by_value[value] for value in (p.left.value, p.right.value) if value in by_value)
            case.scheduled = p, _draw_schedule(rng, case.kind, p, unit)
            return case.scheduled[1]

        with patch.object(products, "choose", choose), patch.object(codegen, "KernelContext", laid_out.context):
            bench.module  # noqa: B018 - generates the code
        for case in cases:
            _check(case, bench)
        ran.update(case.scheduled[1] for case in cases if case.scheduled is not None)

    check()
    panels = [schedule for schedule in ran if isinstance(schedule, PanelSchedule)]
    assert {schedule.right for schedule in panels} == set(RightOperand)
    assert {schedule.fetches for schedule in panels} == {True, False}
    assert len({schedule.depth_block for schedule in panels} - {None}) > 2
    assert len({schedule.vectors for schedule in panels}) > 2
    assert len({schedule.chunk for schedule in panels}) > 2
    assert {schedule.panels_at_once > 1 for schedule in panels} == {True, False}
    assert {type(schedule) for schedule in ran} == {PanelSchedule, DotSchedule, StretchSchedule}


def _panels(right: RightOperand, *, chunk: int = 4, outer: int = 8, vectors: int = 1) -> PanelSchedule:
    return PanelSchedule(right, vectors, chunk, outer)


ILLEGAL: list[tuple[str, Callable[[], object], tuple[int, ...], tuple[int, ...], str]] = [
    ("panels hold floats", lambda: _panels(RightOperand.PACKED), (8, 5), (5, 7), "int32"),
    ("rows divide into full chunks", lambda: _panels(RightOperand.PACKED_APART, outer=6), (9, 5), (5, 7), "float32"),
    ("an item packing a panel computes all rows", lambda: _panels(RightOperand.PACKED), (9, 5), (5, 7), "float32"),
    ("an item packing a panel computes all rows", lambda: _panels(RightOperand.IN_PLACE), (9, 5), (5, 7), "float32"),
    ("constant panels hold weights", lambda: _panels(RightOperand.CONSTANT), (8, 5), (5, 7), "float32"),
    ("columns read in place are contiguous", lambda: _panels(RightOperand.IN_PLACE, outer=1), (5, 4), (4,), "float32"),
    (
        "panels packed apart belong to a single matrix",
        lambda: _panels(RightOperand.PACKED_APART),
        (2, 8, 5),
        (2, 5, 7),
        "float32",
    ),
    (
        "panels at once are whole constants, and meet few rows",
        lambda: PanelSchedule(RightOperand.PACKED_APART, 1, 8, 8, panels_at_once=2),
        (4, 5),
        (5, 7),
        "float32",
    ),
    ("sizes are above 0", lambda: _panels(RightOperand.PACKED, chunk=0), (8, 5), (5, 7), "float32"),
    ("sizes are above 0", lambda: StretchSchedule(0), (8, 5), (5, 7), "float32"),
    ("dot products have float operands", lambda: DotSchedule(2, 2, 2, 2), (8, 5), (5,), "int32"),
    ("operands are contiguous along the sums", lambda: DotSchedule(2, 2, 2, 2), (8, 5), (5, 7), "float32"),
]


@pytest.mark.parametrize(("law", "schedule", "x", "y", "dtype"), ILLEGAL)
def test_illegal_schedules_are_refused(
    bench: Bench, law: str, schedule: Callable[[], Schedule], x: tuple[int, ...], y: tuple[int, ...], dtype: str
) -> None:
    bench.op("matmul", [tensor(x, dtype), tensor(y, dtype)])
    with patch.object(products, "choose", lambda p, unit: schedule()), pytest.raises(InternalError, match=law):
        bench.module  # noqa: B018 - generates the code


def test_reports_tell_the_schedule(bench: Bench) -> None:
    bench.op("matmul", [tensor((40, 20)), tensor((20, 64))])
    (kernel,) = byoc_generated_kernels(bench.functions, CompileContext("ccompiler", bench.options, bench.constants))
    assert kernel.schedule["right"] == "in place"
    assert list(kernel.schedule) == [
        *("right", "vectors", "chunk", "outer", "depth_block", "fetches", "panels_at_once"),
    ]


@pytest.mark.parametrize(
    ("unit", "rows", "columns", "streams"),
    [
        *(
            (VectorUnit(32, 16), rows, 1024, streams)
            for rows, streams in ((1, 4), (2, 3), (3, 2), (4, 3), (5, 1), (7, 1))
        ),
        *((VectorUnit(64, 32), rows, 1024, streams) for rows, streams in ((1, 2), (3, 2), (4, 4), (6, 4), (7, 1))),
        (VectorUnit(32, 16), 1, 8, 1),
        (VectorUnit(32, 16), 1, 128, 2),  # three items remain for threads
    ],
)
def test_few_rows_read_several_panels_of_constants(
    bench: Bench, unit: VectorUnit, rows: int, columns: int, streams: int
) -> None:
    weights = bench.builder().const(np.ones((1024, columns), "float32"))
    left = Matrix(Var("x", tensor((rows, 1024))), (), (), 1024, 1)
    right = Matrix(weights, (), (), columns, 1)
    p = Product("float32", (), rows, columns, 1024, left, right)
    schedule = choose(p, unit)
    assert isinstance(schedule, PanelSchedule)
    assert schedule.panels_at_once == streams
    assert all(schedule.laws(p, unit).values())
    # Columns in place are a single stream, wider for few rows; last columns not filling a vector would be packed.
    for width, vectors in ((columns, min(8, columns // 8)), (columns + 1, 2)):
        in_place = replace(right, value=Var("y", tensor((1024, width))), row_step=width)
        wide = choose(replace(p, num_columns=width, right=in_place, num_rows=1), VectorUnit(32, 16))
        assert isinstance(wide, PanelSchedule)
        assert (wide.right, wide.vectors) == (RightOperand.IN_PLACE, vectors)


@pytest.mark.parametrize("unit", [VectorUnit(32, 16), VectorUnit(64, 32), VectorUnit(16, 32)])
@pytest.mark.parametrize("columns", [24, 384, 1000, 8192])
def test_products_of_one_to_three_rows_read_the_panels_of_many_rows(
    bench: Bench, unit: VectorUnit, columns: int
) -> None:
    right = Matrix(bench.builder().const(np.ones((64, columns), "float32")), (), (), columns, 1)

    def panels_of(rows: Dim) -> int:
        left = Matrix(Var("x", tensor((rows, 64))), (), (), 64, 1)
        schedule = choose(Product("float32", (), rows, columns, 64, left, right), unit)
        assert isinstance(schedule, PanelSchedule)
        assert schedule.right is RightOperand.CONSTANT
        return schedule.vectors

    assert len({panels_of(rows) for rows in (1, 2, 3, 64, 1000, symbol("n"))}) == 1


def _rounded(bench: Bench, rows: int) -> Function:
    """Add a product of rounded operands."""
    return bench.op("matmul", [tensor((rows, 70)), tensor((70, 40))])


def _rounded_of_unknown_depth(bench: Bench, rows: int) -> Function:
    """Add a product of rounded operands with sums of unknown length."""
    return bench.op("matmul", [tensor((rows, "k")), tensor(("k", 40))])


def _of_bytes(bench: Bench, rows: int) -> Function:
    """Add a product of bytes with weights."""
    builder = bench.builder()
    left = builder.emit("cast", builder.param("x", tensor((rows, 70), "uint8")), dtype="int32")
    right = builder.const(_drawn((70, 40), "int32", 1))
    return bench.add(builder, builder.emit("matmul", builder.emit("subtract", left, builder.const(np.int32(3))), right))


def _draw_rounded(rng: random.Random) -> RoundedSchedule:
    return RoundedSchedule(rng.choice((16, 32)), rng.choice((None, STEP_ROWS, 2 * STEP_ROWS, 3 * STEP_ROWS)))


def _draw_of_bytes(rng: random.Random) -> ByteSchedule:
    vectors, tile_rows, tiles, part = (rng.randint(1, most) for most in (3, 5, 4, 20))
    return ByteSchedule(vectors, tile_rows, tile_rows * tiles, part)


@pytest.mark.parametrize(
    ("module", "add", "draw"),
    [(bfloat16_products, _rounded, _draw_rounded), (byte_products, _of_bytes, _draw_of_bytes)],
)
def test_random_schedules_of_words_give_what_the_reference_gives(
    module: ModuleType, add: Callable[[Bench, int], Function], draw: Callable[[random.Random], Any]
) -> None:
    ran = set[object]()

    @settings(max_examples=3, deadline=None, phases=PHASES)
    @given(st.randoms(use_true_random=True), st.sampled_from(["generic", "native"]))
    def check(rng: random.Random, march: str) -> None:
        bench = Bench(march=march, opt_level=MEANING, precision="bfloat16")
        functions = [add(bench, rows) for rows in (17, 40, 65, 100)]
        drawn = []

        def choose(*sizes: object) -> object:
            drawn.append(draw(rng))
            return drawn[-1]

        with patch.object(module, "choose", choose):
            bench.module  # noqa: B018 - generates the code
        assert len(drawn) == len(functions)
        for function in functions:
            inputs = [_drawn(sizes_of(param), tensor_type(param).dtype, 1) for param in function.params]
            (actual,), (expected,) = bench.run(function, *inputs), bench.reference(function, *inputs)
            np.testing.assert_array_equal(actual, expected)
        ran.update(drawn)

    check()
    assert len(ran) > 3


@pytest.mark.parametrize(
    ("law", "module", "add", "schedule"),
    [
        ("a panel has 16 or 32 columns", bfloat16_products, _rounded, lambda: RoundedSchedule(8, None)),
        ("rows are rounded in full blocks", bfloat16_products, _rounded, lambda: RoundedSchedule(16, STEP_ROWS + 1)),
        ("sizes are above 0", bfloat16_products, _rounded, lambda: RoundedSchedule(16, 0)),
        (
            "arrays on the stack have a known size",
            bfloat16_products,
            _rounded_of_unknown_depth,
            lambda: RoundedSchedule(16, None),
        ),
        ("rows divide into full tiles", byte_products, _of_bytes, lambda: ByteSchedule(1, 4, 6, 8)),
    ],
)
def test_illegal_schedules_of_words_are_refused(
    law: str,
    module: ModuleType,
    add: Callable[[Bench, int], Function],
    schedule: Callable[[], object],
) -> None:
    bench = Bench(precision="bfloat16")
    add(bench, 40)
    with patch.object(module, "choose", lambda *sizes: schedule()), pytest.raises(InternalError, match=law):
        bench.module  # noqa: B018 - generates the code
