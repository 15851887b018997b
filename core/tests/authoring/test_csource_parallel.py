"""Parallel loops as C text: the threshold for threads, and the C constructs."""

from __future__ import annotations

import pytest
from byoc_core.authoring.csource_parallel import (
    COLD_BYTE_PS,
    PARALLEL_WORK_PS,
    SHARED_WORK_PS,
    ParallelLoop,
    team_function,
)
from byoc_core.authoring.size_names import SizeNames
from byoc_core.dims import Dim, parse_dim

LINES = ("  for (int64_t i = first_item; i < end_item; ++i) out[i] = x[i] + dim_n;",)


@pytest.mark.parametrize(
    ("count", "item_ps", "expected"),
    [
        (PARALLEL_WORK_PS, 1, True),
        (PARALLEL_WORK_PS - 1, 1, False),
        (2, PARALLEL_WORK_PS // 2, True),
        (1, PARALLEL_WORK_PS, False),
        (0, PARALLEL_WORK_PS, False),
        (parse_dim("n"), 1, True),
        (3, parse_dim("n"), True),
        (1, parse_dim("n"), False),
    ],
)
def test_a_loop_of_enough_work_in_more_than_one_item_is_worth_threads(count: Dim, item_ps: Dim, expected: bool) -> None:
    assert ParallelLoop(LINES, count, item_ps).is_worth_waking is expected


@pytest.mark.parametrize(
    ("count", "item_ps", "expected"),
    [
        (SHARED_WORK_PS, 1, True),
        (SHARED_WORK_PS - 1, 1, False),
        (1, SHARED_WORK_PS, False),
        (0, SHARED_WORK_PS, False),
        (2, PARALLEL_WORK_PS, True),
        (parse_dim("n"), 1, True),
        (1, parse_dim("n"), False),
    ],
)
def test_less_work_is_worth_sharing_with_a_team_that_is_awake(count: Dim, item_ps: Dim, expected: bool) -> None:
    assert ParallelLoop(LINES, count, item_ps).is_worth_sharing is expected


def test_a_loop_that_is_worth_sharing_only_wakes_nobody() -> None:
    loop = ParallelLoop(LINES, 64, SHARED_WORK_PS // 64 + 1)
    _, calls = loop.functions("f_0", ["const float *x", "float *out", "int64_t dim_n"])
    assert calls == ["  byoc_share_for(64, 1, f_0_part, &(const struct f_0){x, out, dim_n});"]


def test_alone_it_is_an_ordinary_loop() -> None:
    loop = ParallelLoop(LINES, parse_dim("n"), 1)
    assert loop.serial_lines() == ["  for (int64_t i = 0; i < dim_n; ++i) out[i] = x[i] + dim_n;"]


def test_it_hands_over_the_variables_that_its_lines_read() -> None:
    parameters = ["const float *x", "const float *unread", "float *restrict out", "int64_t dim_n"]
    definitions, calls = ParallelLoop(LINES, 64, PARALLEL_WORK_PS, 4).functions("f_0", parameters)
    assert definitions.splitlines()[0] == "struct f_0 { const float *x; float *out; int64_t dim_n; };"
    assert "unread" not in definitions
    assert calls == ["  byoc_parallel_for(64, 4, f_0_part, &(const struct f_0){x, out, dim_n});"]
    _, calls = ParallelLoop(LINES, parse_dim("n"), 100).functions("f_0", parameters)
    loop = "(dim_n, 1, f_0_part, &(const struct f_0){x, out, dim_n});"
    assert calls == [
        f"  if ((100.0 * dim_n) >= {PARALLEL_WORK_PS}) byoc_parallel_for{loop}",
        f"  else if ((100.0 * dim_n) >= {SHARED_WORK_PS}) byoc_share_for{loop}",
        "  else f_0_items(x, out, dim_n, 0, dim_n);",
    ]


def test_estimates_of_any_size_are_compared() -> None:
    """Sizes times picoseconds overflow ``int64_t`` long before the sizes do."""
    work = parse_dim("(n+3)//4*m*n-m") * 2**70
    text = f"({2**70}.0 * dim_m * dim_n * byoc_floordiv((dim_n + 3), 4) + -{2**70}.0 * dim_m)"
    _, calls = ParallelLoop(LINES, 8, work).functions("f", ["int64_t dim_n"])
    eight = text.replace(str(2**70), str(2**73))
    assert calls[0].startswith(f"  if ({eight} >= {PARALLEL_WORK_PS}) byoc_parallel_for(8, ")
    head, parameters = "int32_t f_(const float *x, int64_t dim_n)", ["const float *x", "int64_t dim_n"]
    lines = team_function("f", head, parameters, work, parse_dim("n") * 4, SizeNames(["n"]))
    named = f"({2**70}.0 * dim_m * dim_n * dim_size_0 + -{2**70}.0 * dim_m)"
    assert "  const int64_t dim_size_0 = byoc_floordiv((dim_n + 3), 4);" in lines
    assert f"  if ({named} < {PARALLEL_WORK_PS}) {{" in lines
    cold_text = named.replace(" + -", f" + {4 * COLD_BYTE_PS}.0 * dim_n + -")
    (team,) = (line for line in lines if "byoc_with_team(" in line)
    terms = team.partition("&byoc_call, ")[2].strip("();").split(" + ")
    assert sorted(terms) == sorted(cold_text.strip("()").split(" + "))
    known = team_function("f", head, parameters, 5, 7, SizeNames(["n"]))
    (team,) = (line for line in known if "byoc_with_team(" in line)
    assert team == f"  byoc_with_team(f_in_team, &byoc_call, {5 + 7 * COLD_BYTE_PS}.0);"
