"""Tables of costs: estimates at and between measured ops, settings, and files."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from byoc_core.authoring.cost_table import CostRow, CostTable, Setting
from byoc_core.errors import ArtifactError
from byoc_core.ir import COMPOSITE, Function, FunctionBuilder, tensor
from byoc_core.ops import default_ops
from byoc_core.profiling import Peaks
from hypothesis import given, settings
from hypothesis import strategies as st

LIMITS = (1e11, 2e10)
_TIMES = st.floats(1e-8, 10.0)
_SIZES = st.integers(1, 512)
_OPS = ("matmul", "nn.relu", "tanh", "permute_dims")


def function_of(op: str, rows: int, columns: int, **attrs: str) -> Function:
    """Return a function of one op on a matrix."""
    builder: Any = FunctionBuilder("f", ops=default_ops())
    operands = [builder.param("x", tensor((rows, columns)))]
    if op == "matmul":
        operands.append(builder.param("y", tensor((columns, rows))))
    (result,) = builder.bind(op, operands, {"axes": (1, 0)} if op == "permute_dims" else {}).results
    function: Function = builder.finish(result)
    return replace(function, attrs=attrs)


def row_of(op: str, rows: int, columns: int, seconds: float) -> CostRow:
    """Return a measured op on a matrix."""
    row = CostRow.of(function_of(op, rows, columns).bindings[0], seconds)
    assert row is not None
    return row


@st.composite
def tables(draw: st.DrawFn) -> CostTable:
    keys = draw(st.lists(st.tuples(st.sampled_from(_OPS), _SIZES, _SIZES), min_size=1, max_size=12, unique=True))
    rows = tuple(row_of(*key, draw(_TIMES.map(lambda x: float(f"{x:.4g}")))) for key in keys)
    shares = draw(
        st.dictionaries(
            st.tuples(*[st.sampled_from(["*", *_OPS])] * 3),
            st.tuples(st.integers(0, 9), st.integers(9, 20)),
            max_size=5,
        )
    )
    return CostTable(*LIMITS, rows, shares, draw(_TIMES), draw(st.dictionaries(st.sampled_from(_OPS), _TIMES)))


def seconds_of(table: CostTable, function: Function) -> float:
    estimate = table.estimate(function)
    assert estimate is not None
    return estimate.seconds


@settings(max_examples=60, deadline=None)
@given(tables())
def test_a_measured_op_gets_its_measured_time(table: CostTable) -> None:
    for row in table.rows:
        assert table.seconds(replace(row, seconds=0.0)) == pytest.approx(row.seconds, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(tables(), st.sampled_from(_OPS), _SIZES, _SIZES)
def test_estimates_are_finite_and_between_the_efficiencies_of_the_rows(
    table: CostTable, op: str, rows: int, columns: int
) -> None:
    estimate = table.estimate(function_of(op, rows, columns))
    kinds = {row.kind for row in table.rows}
    asked = row_of(op, rows, columns, 0.0)
    assert (estimate is None) == (asked.kind not in kinds)
    if estimate is None:
        return
    assert 0 < estimate.seconds < math.inf
    similar = [row for row in table.rows if row.op == op] or [row for row in table.rows if row.kind == asked.kind]

    def work(row: CostRow) -> float:
        return max(row.flops / LIMITS[0], row.nbytes / LIMITS[1], 1e-7)

    found = estimate.seconds / work(asked)
    assert min(row.seconds / work(row) for row in similar) <= found * (1 + 1e-9)
    assert max(row.seconds / work(row) for row in similar) >= found * (1 - 1e-9)


@settings(max_examples=60, deadline=None)
@given(_TIMES, _SIZES, _SIZES, _SIZES)
def test_a_single_measurement_grows_with_the_work(seconds: float, rows: int, columns: int, more: int) -> None:
    table = CostTable(*LIMITS, (row_of("matmul", 64, 64, seconds),))
    smaller, larger = function_of("matmul", rows, columns), function_of("matmul", rows + more, columns)
    assert seconds_of(table, smaller) <= seconds_of(table, larger) * (1 + 1e-12)


@settings(max_examples=60, deadline=None)
@given(tables(), st.sampled_from(_OPS), _SIZES, _SIZES)
def test_files_keep_the_estimates(table: CostTable, op: str, rows: int, columns: int) -> None:
    text = table.to_text()
    read = CostTable.from_text(text)
    assert read.to_text() == text
    assert read == table
    function = function_of(op, rows, columns, maker="tanh")
    assert read.estimate(function) == table.estimate(function)


def test_ops_computed_along_with_neighbours_cost_their_share() -> None:
    shares = {
        ("nn.relu", "matmul", ""): (0, 5),
        ("nn.relu", "matmul", "*"): (1, 4),
        ("nn.relu", "*", "tanh"): (1, 2),
        ("nn.relu", "", "exp"): (0, 1),
    }
    table = CostTable(*LIMITS, (row_of("nn.relu", 64, 64, 8e-6),), shares)

    def seconds(**attrs: str) -> float:
        return seconds_of(table, function_of("nn.relu", 64, 64, **attrs))

    assert seconds() == pytest.approx(8e-6)
    assert seconds(maker="matmul") == 0
    assert seconds(maker="matmul", reader="exp") == pytest.approx(2e-6)
    assert seconds(maker="exp", reader="tanh") == pytest.approx(4e-6)
    assert seconds(reader="exp") == 0
    assert seconds(maker="tanh") == pytest.approx(8e-6), "the other neighbour is elsewhere"
    assert seconds(reader="tanh") == pytest.approx(8e-6), "the other neighbour is elsewhere"


def test_a_composite_costs_as_much_as_its_heaviest_op() -> None:
    builder: Any = FunctionBuilder("inner", ops=default_ops())
    x, y = (builder.param(name, tensor((64, 64))) for name in "xy")
    product = builder.emit("matmul", x, y)
    inner = builder.finish(builder.emit("nn.relu", product))
    outer: Any = FunctionBuilder("f", ops=default_ops())
    operands = tuple(outer.param(name, tensor((64, 64))) for name in "xy")
    (result,) = outer.bind(COMPOSITE, operands, {"name": "product"}, regions=(inner,)).results
    rows = (row_of("matmul", 64, 64, 5e-6), row_of("nn.relu", 64, 64, 3e-6))
    function = outer.finish(result)
    assert seconds_of(CostTable(*LIMITS, rows), function) == pytest.approx(5e-6)
    along = CostTable(*LIMITS, rows, {("matmul", "exp", "nn.relu"): (1, 4)})
    assert seconds_of(along, replace(function, attrs={"maker": "exp"})) == pytest.approx(1.25e-6)
    assert seconds_of(along, replace(function, attrs={"maker": "tanh"})) == pytest.approx(5e-6)


def test_constants_of_a_composite_are_constants_inside() -> None:
    def alone(is_constant: bool) -> Any:
        builder: Any = FunctionBuilder("f", ops=default_ops())
        x = builder.param("x", tensor((64, 64)))
        y = np.ones((64, 64), np.float32) if is_constant else builder.param("y", tensor((64, 64)))
        return builder.finish(builder.emit("matmul", x, y))

    rows = [CostRow.of(alone(flag).bindings[0], seconds) for flag, seconds in ((True, 3e-6), (False, 7e-6))]
    table = CostTable(*LIMITS, tuple(row for row in rows if row))
    inner: Any = FunctionBuilder("inner", ops=default_ops())
    x, y = (inner.param(name, tensor((64, 64))) for name in "xy")
    body = inner.finish(inner.emit("nn.relu", inner.emit("matmul", x, y)))
    for is_constant, seconds in ((True, 3e-6), (False, 7e-6)):
        outer: Any = FunctionBuilder("f", ops=default_ops())
        first = outer.param("x", tensor((64, 64)))
        second = outer.const(np.ones((64, 64), np.float32)) if is_constant else outer.param("y", tensor((64, 64)))
        (result,) = outer.bind(COMPOSITE, (first, second), {"name": "product"}, regions=(body,)).results
        assert seconds_of(table, outer.finish(result)) == pytest.approx(seconds)
        assert seconds_of(table, alone(is_constant)) == pytest.approx(seconds)


def test_borders_belong_to_ops_with_layouts() -> None:
    rows = (row_of("matmul", 64, 64, 5e-6), row_of("nn.relu", 64, 64, 3e-6))
    table = CostTable(*LIMITS, rows, call_seconds=2e-6, borders={"matmul": 5e-10})
    product, relu = (table.estimate(function_of(op, 8, 8)) for op in ("matmul", "nn.relu"))
    assert product is not None
    assert relu is not None
    assert product.call_seconds == relu.call_seconds == 2e-6
    assert product.layout_bytes_per_second == pytest.approx(2e9)
    assert relu.layout_bytes_per_second == product.bytes_per_second == 0


def test_a_faster_machine_has_a_smaller_estimate() -> None:
    table = CostTable(*LIMITS, (row_of("matmul", 256, 256, 1e-3), row_of("tanh", 512, 512, 1e-3)))
    faster = table.scaled(Peaks(2 * LIMITS[0], 4 * LIMITS[1]))
    assert seconds_of(faster, function_of("matmul", 256, 256)) == pytest.approx(0.5e-3)
    assert seconds_of(faster, function_of("tanh", 512, 512)) == pytest.approx(0.25e-3)


def test_sizes_known_only_at_run_time_have_no_estimate() -> None:
    builder: Any = FunctionBuilder("f", ops=default_ops())
    function = builder.finish(builder.emit("nn.relu", builder.param("x", tensor(("n", 4)))))
    assert CostTable(*LIMITS, (row_of("nn.relu", 8, 8, 1e-6),)).estimate(function) is None


def test_the_setting_is_read_from_the_function() -> None:
    assert Setting.of(function_of("tanh", 2, 2, maker="matmul")) == Setting("matmul", "")
    assert Setting.of(function_of("tanh", 2, 2)) == Setting()


GOOD = CostTable(*LIMITS, (row_of("matmul", 8, 8, 1e-6),), {("tanh", "exp", "*"): (1, 2)}, 1e-6, {"matmul": 1e-10})


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"flops": 0},
        {"flops": "many"},
        {"bandwidth": math.inf},
        {"call_seconds": -1},
        {"call_seconds": math.nan},
        {"kinds": {}},
        {"texts": []},
        {"rows": [[1]]},
        {"rows": {"a": 1}},
        {"rows": [["matmul", 0, 0, -1, 0, [[1], [1], [1]], 1.0, ""]]},
        {"rows": [["matmul", 0, 0, 1, 0, [[1], [1]], 1.0, ""]]},
        {"rows": [["matmul", 0, 0, 1, 0, [[1], [1], ["n"]], 1.0, ""]]},
        {"rows": [["matmul", 0, 0, 1, 0, [[1], [1], [1]], True, ""]]},
        {"shares": [["a", "b", "c", 3, 2]]},
        {"shares": None},
        {"borders": []},
    ],
    ids=str,
)
def test_a_bad_file_is_an_error(change: dict[str, Any]) -> None:
    data = json.loads(GOOD.to_text())
    assert CostTable.from_text(json.dumps(data)) == GOOD
    with pytest.raises(ArtifactError, match=r"^cost table here: is no table of costs: "):
        CostTable.from_text(json.dumps(data | change), "here")


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_garbage_is_an_error(data: st.DataObject) -> None:
    text = GOOD.to_text()
    start, stop = sorted(data.draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
    damaged = text[:start] + data.draw(st.text(max_size=3)) + text[stop:]
    try:
        table = CostTable.from_text(damaged)
    except ArtifactError:
        return
    assert CostTable.from_text(table.to_text()).to_text() == table.to_text()


def test_rows_behind_a_dequantize_are_of_other_numbers() -> None:
    """A backend computes such products with integers: eight times faster here, whatever the shapes around."""
    floats = [row_of("matmul", 64, size, size * 8e-8) for size in (32, 64, 128)]
    integers = replace(row_of("matmul", 64, 128, 128e-8), maker="dequantize")
    table = CostTable(*LIMITS, (*floats, integers))
    row = row_of("matmul", 64, 64, 0.0)
    found, found_integers = table.seconds(row), table.seconds(replace(row, maker="dequantize"))
    assert found is not None
    assert found_integers is not None
    assert found == pytest.approx(64 * 8e-8, rel=0.1)
    assert found_integers < found / 2


def test_an_elementwise_op_never_measured_behind_a_maker_is_like_the_others_there() -> None:
    shares = {
        ("nn.relu", "matmul", "*"): (0, 6),
        ("clip", "matmul", "*"): (1, 4),
        ("nn.softmax", "matmul", "*"): (9, 9),
        ("nn.relu", "nn.softmax", "*"): (3, 3),
    }
    table = CostTable(*LIMITS, (), shares)
    assert table.share("nn.swish", Setting("matmul", "tanh")) == pytest.approx(0.1)
    assert table.share("nn.swish", Setting("nn.softmax", "tanh")) == 1
    assert table.share("nn.swish", Setting("nn.max_pool2d", "tanh")) == 1
    assert table.share("clip", Setting("matmul", "tanh")) == pytest.approx(0.25)
    assert table.share("nn.layer_norm", Setting("matmul", "tanh")) == 1
