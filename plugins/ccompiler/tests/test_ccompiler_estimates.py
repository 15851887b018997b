"""Costs of ops from the shipped table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import byoc_core
import pytest
from byoc_ccompiler.measured_costs import measured_costs
from byoc_core.authoring.cost_table import CostTable
from byoc_core.backend import Estimate
from byoc_core.ir import Function, FunctionBuilder, IRModule, tensor
from byoc_core.ops import default_ops

_LIKELY = ("nn.conv2d", "matmul", "nn.max_pool2d", "nn.batch_norm", "permute_dims")


def _estimate(function: Function, **options: Any) -> Estimate | None:
    handle = byoc_core.backends.get("ccompiler")
    return handle.estimate(function, handle.context(IRModule({"main": function}), options))


def _product(rows: int, **attrs: str) -> Function:
    builder: Any = FunctionBuilder("main", ops=default_ops())
    x, y = builder.param("x", tensor((rows, 300))), builder.param("y", tensor((300, 200)))
    function: Function = builder.finish(builder.emit("matmul", x, y))
    return replace(function, attrs=attrs)


@pytest.mark.parametrize(("nbytes", "is_amd"), [(32, True), (64, False), (64, True)])
@pytest.mark.parametrize("op", _LIKELY)
def test_the_other_rows_of_a_table_predict_a_row(op: str, nbytes: int, *, is_amd: bool) -> None:
    """Half of the rows are predicted within a factor of 1.6, and four of five within a factor of 3."""
    table = measured_costs(nbytes, is_amd=is_amd)
    rows = [row for row in table.rows if row.op == op]
    assert len(rows) >= 20
    ratios = []
    for row in rows[:: max(1, len(rows) // 40)]:
        others = CostTable(table.flops, table.bandwidth, tuple(other for other in rows if other is not row))
        expected = others.seconds(row)
        assert expected is not None
        ratios.append(max(expected / row.seconds, row.seconds / expected))
    ratios.sort()
    assert ratios[len(ratios) // 2] < 1.6
    assert ratios[len(ratios) * 4 // 5] < 3


def test_a_larger_product_costs_more() -> None:
    small, large = _estimate(_product(16)), _estimate(_product(512))
    assert small is not None
    assert large is not None
    assert 5 < large.seconds / small.seconds < 100
    assert small.call_seconds > 0


def test_other_code_has_no_measurements() -> None:
    assert _estimate(_product(16), tutorial=True) is None
    assert _estimate(_product(16), portable=True) is None


def test_an_activation_behind_a_convolution_is_free() -> None:
    builder: Any = FunctionBuilder("main", ops=default_ops())
    function: Function = builder.finish(builder.emit("nn.relu", builder.param("x", tensor((1, 64, 56, 56)))))
    alone = _estimate(function)
    along = _estimate(replace(function, attrs={"maker": "nn.bias_add", "reader": "nn.conv2d"}))
    assert alone is not None
    assert along is not None
    assert along.seconds < 0.1 * alone.seconds


def test_processors_with_and_without_avx512_and_of_amd_have_tables_of_their_own() -> None:
    tables = [measured_costs(32), measured_costs(64), measured_costs(64, is_amd=True)]
    assert len({table.to_text() for table in tables}) == 3
    assert measured_costs(32, is_amd=True).to_text() == tables[0].to_text()
