"""Estimates from tables on several threads."""

from __future__ import annotations

import pytest
from byoc_core import script as R
from byoc_core.authoring.cost_table import CostRow, CostTable
from byoc_core.ir import Function


def product(size: int) -> Function:
    return R.parse(f"""
def main(x: R.Tensor(({size}, 64)), w: R.Tensor((64, 64))):
    a = R.matmul(x, w)
    return a
""")["main"]


def row(size: int, seconds: float, parallel: float = 0.0) -> CostRow:
    found = CostRow.of(product(size).bindings[0], seconds)
    assert found is not None
    return CostRow(**{**{name: getattr(found, name) for name in found.__slots__}, "parallel_seconds": parallel})


def seconds(table: CostTable, size: int, num_threads: int) -> float:
    estimate = table.estimate(product(size), num_threads)
    assert estimate is not None
    return estimate.seconds


@pytest.mark.parametrize(
    ("parallel", "expected"),
    [
        (5e-4, {1: 1e-3, 2: 5e-4, 4: 2.5e-4}),  # all of the time is shared
        (1e-3, {1: 1e-3, 2: 1e-3, 4: 1e-3}),  # nothing is shared
        (7.5e-4, {1: 1e-3, 2: 7.5e-4, 4: 6.25e-4}),  # half of the time is shared
        (2e-3, {1: 1e-3, 2: 2e-3, 4: 2.5e-3}),  # threads are in the way
        (1e-4, {1: 1e-3, 2: 5e-4, 4: 2.5e-4}),  # never faster than by the number of threads
    ],
)
def test_the_shared_part_shrinks_with_the_threads(parallel: float, expected: dict[int, float]) -> None:
    table = CostTable(1e9, 1e9, (row(256, 1e-3, parallel),))
    for num_threads, time in expected.items():
        assert seconds(table, 256, num_threads) == pytest.approx(time)


def test_rows_without_a_time_on_two_threads_follow_the_others() -> None:
    table = CostTable(1e9, 1e9, (row(256, 1e-3, 6e-4), row(4, 1e-5)))
    assert seconds(table, 4, 2) == pytest.approx(6e-6)
    assert seconds(CostTable(1e9, 1e9, (row(4, 1e-5),)), 4, 2) == pytest.approx(1e-5)


def test_times_on_two_threads_are_kept() -> None:
    table = CostTable(1e9, 1e9, (row(4, 1e-5), row(256, 1e-3, 6e-4)))
    read = CostTable.from_text(table.to_text())
    assert read == table
    assert [found.parallel_seconds for found in read.rows] == [0.0, 6e-4]
