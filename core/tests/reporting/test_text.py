"""The offload report: as text, with recomputed shares, and as a gate."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from byoc_core.dims import parse_dim
from byoc_core.errors import OptionsError, PartitionError
from byoc_core.reporting.gate import check_offload
from byoc_core.reporting.shares import apportion, decisive_reasons
from byoc_core.reporting.text import flops_text, percent, render_report
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.asks_for_plugins

KEYS = (
    *("schema", "backends", "total_flops", "offloaded_share", "counted_sizes", "summary", "regions", "borders", "ops"),
    *("sizes", "name", "op", "outcome", "region", "code", "text", "flops", "share", "reasons", "backend", "before"),
    *("function", "kind", "where", "size"),
)


def op(name: str, outcome: str, flops: int | str, code: str = "", text: str = "", share: float = 0.0) -> dict[str, Any]:
    return {
        "function": "main", "op": name, "name": "lv", "outcome": outcome, "region": None, "code": code, "text": text,
        "flops": flops, "share": share,
    }  # fmt: skip


TEXT = """
93.5% of 1.55G FLOPs offloaded
  ccompiler   93.5%      1.45G FLOPs  6 ops in 2 regions
  host         6.5%       100M FLOPs  4 ops in 1 region

why ops stayed on the host:
    6.5%      1 x nn.conv2d: groups are not supported [groups]
    0.0%      2 x nn.softmax, take: no rule [no-rule]
    0.0%      1 x reshape: no reason was given
"""


def test_reasons_are_grouped_and_ordered_by_cost() -> None:
    data = {
        "backends": [
            {"name": "ccompiler", "regions": 2, "ops": 6, "flops": 1_450_000_000, "share": 0.93548},
            {"name": "host", "regions": 1, "ops": 4, "flops": 100_000_500, "share": 0.06452},
        ],
        "total_flops": 1_550_000_500,
        "offloaded_share": 0.93548,
        "ops": [
            op("nn.relu", "ccompiler", 1_450_000_000),
            op("take", "host", 0, "no-rule", "no rule"),
            op("reshape", "host", 0),
            op("nn.softmax", "host", 500, "no-rule", "no rule", share=3e-7),
            op("nn.conv2d", "host", 100_000_000, "groups", "groups are not supported", share=0.0645),
        ],
    }
    assert render_report(data) == TEXT.strip()


def test_coarse_arithmetic_is_told() -> None:
    rows: list[dict[str, Any]] = [
        {"name": "ccompiler", "regions": 1, "ops": 2, "flops": 8, "share": 1.0, "unit_roundoff": {"float32": 2.0**-8}},
        {"name": "host", "regions": 0, "ops": 0, "flops": 0, "share": 0.0, "unit_roundoff": {"float32": "anything"}},
    ]
    text = """
100.0% of 8 FLOPs offloaded
  ccompiler  100.0%          8 FLOPs  2 ops in 1 region, computes float32 within 0.0039 (unit roundoff)
  host         0.0%          0 FLOPs  0 ops
"""
    assert render_report({"backends": rows, "total_flops": 8, "offloaded_share": 1.0}) == text.strip()


def test_symbolic_work_counts_with_sizes_of_one() -> None:
    data = {
        "backends": [{"name": "ccompiler", "regions": 1, "ops": 1, "flops": "8*n", "share": 0.8}],
        "total_flops": "10*n",
        "offloaded_share": 0.8,
        "ops": [op("exp", "host", "2*n", "forced", "", share=0.2)],
    }
    assert render_report(data) == (
        "80.0% of 10 FLOPs offloaded, counting n = 1\n"
        "  ccompiler   80.0%          8 FLOPs  1 op in 1 region\n\n"
        "why ops stayed on the host:\n"
        "   20.0%      1 x exp: forced"
    )


def test_a_report_from_anywhere_is_rendered() -> None:
    assert render_report({}) == "no offload report"
    assert render_report({"backends": 3, "ops": {"a": 1}}) == "no offload report"
    odd = {"backends": [{"name": "x", "flops": 10**400, "ops": None}, 7], "total_flops": -1, "ops": [None, {}]}
    assert render_report(odd) == "an unknown share of ? FLOPs offloaded\n  x       ?          ? FLOPs  None ops"


def test_many_ops_are_named_in_part() -> None:
    ops = [op(name, "host", 1, "c", "t") for name in "abcdef"]
    assert "a, b, c, d and 2 more: t [c]" in render_report({"ops": ops, "total_flops": 6})


def test_sizes_that_no_input_determines_are_named() -> None:
    sizes = [
        {"function": "main", "size": "n", "kind": "input", "where": "input `x`, axis 0"},
        {"function": "main", "size": "k", "kind": "unknown", "where": "op `nonzero` (`lv3`) of m.onnx:/find, axis 1"},
        {"kind": "unknown"},
        "no size",
    ]
    data = {"backends": [{"name": "host"}], "total_flops": 0, "sizes": sizes}
    assert render_report(data).splitlines()[2:] == [
        "",
        "sizes not determined by any input:",
        "  k: op `nonzero` (`lv3`) of m.onnx:/find, axis 1",
        "  ?: unknown origin",
    ]


def reason(backend: str, code: str, text: str, **more: object) -> dict[str, Any]:
    return {"backend": backend, "code": code, "text": text, **more}


NEAR_MISS = reason("aone", "near-miss", "`aone.pair` does not fit: operand 0: is `exp`", pattern="aone.pair", ops=["e"])
FULL: dict[str, Any] = {
    "schema": 2,
    "backends": [{"name": "aone", "regions": 3, "ops": 3, "flops": "30*n"}, {"name": "host", "regions": 1, "ops": 4}],
    "total_flops": "30*n+15",
    "counted_sizes": {"n": 1},
    "summary": [{"backend": "aone", "code": "op", "text": "not here"}, {"backend": "btwo", "code": "size"}],
    "regions": [{"name": "r0"}, {"name": "r1"}],
    "borders": [
        {"before": "r0", "after": "r1", "code": "would-close-cycle", "ops": ["t"], "text": "they would, through `t`"},
        {"before": "r1", "after": None},
    ],
    "ops": [
        {**op("tanh", "aone", "20*n"), "region": "r0"},
        {**op("tanh", "aone", "10*n"), "region": "r1"},
        {**op("sin", "host", 10, "op", "..."), "reasons": [NEAR_MISS, reason("aone", "op", "no sin")]},
        {
            **op("cos", "host", 5, "op", "..."),
            "reasons": [reason("aone", "op", "no"), reason("btwo", "size", "too big")],
        },
    ],
}
FULL_TEXT = """
66.7% of 45 FLOPs offloaded, counting n = 1
  aone   66.7%         30 FLOPs  3 ops in 3 regions
  host   33.3%          ? FLOPs  4 ops in 1 region

why ops stayed on the host:
   22.2%      1 x sin: aone: no sin [op]
   11.1%      1 x cos: aone: no [op]
   11.1%      1 x cos: btwo: too big [size]

near misses of patterns:
  `lv` = sin: `aone.pair` does not fit: operand 0: is `exp`

separate regions of the same backend:
  r0 and r1 stay apart: they would, through `t`
  r1 and ? stay apart: no reason was given
"""


def test_a_report_with_reasons_of_several_backends() -> None:
    assert render_report(apportion(FULL)) == FULL_TEXT.strip()


def test_shares_count_symbolic_sizes_as_asked() -> None:
    data = apportion(FULL, {"n": 3})
    assert data["counted_sizes"] == {"n": 3}
    assert data["offloaded_share"] == 90 / 105
    assert [row["share"] for row in data["regions"]] == [0.571429, 0.285714]
    assert [row["share"] for row in data["summary"]] == [0.142857, 0.047619]
    with pytest.raises(OptionsError) as caught:
        apportion(FULL, {"m": 3})
    assert str(caught.value) == "size `m`: no op's FLOPs depend on this size; expected n"


def test_sizes_not_asked_for_leave_no_negative_flops() -> None:
    """Of a signal of one sample, two layers without padding leave less than nothing."""
    data = {"ops": [op("nn.conv1d", "aone", "30*n-60"), op("exp", "host", "m*n-3*m"), op("sin", "host", 10)]}
    assert apportion(data)["counted_sizes"] == {"m": 4, "n": 4}
    assert apportion(data)["offloaded_share"] == 60 / 74
    assert apportion(data, {"n": 5})["counted_sizes"] == {"m": 1, "n": 5}
    assert apportion(data, {"n": 1, "m": 1})["offloaded_share"] == 0
    never = {"ops": [op("exp", "aone", "0-n"), op("sin", "host", 10)]}
    assert apportion(never)["counted_sizes"] == {"n": 1}


def test_an_expression_that_is_too_long_to_read_counts_if_it_is_known() -> None:
    long = "+".join(f"symbol{number}" for number in range(2100))
    data = {"ops": [op("exp", "aone", long), op("sin", "host", 2100)]}
    assert apportion(data)["offloaded_share"] == 0
    assert apportion(data, parsed={long: parse_dim(long)})["offloaded_share"] == 0.5


def test_a_reason_of_a_region_comes_before_one_of_an_op_and_both_before_patterns() -> None:
    no_rule, check = reason("a", "no-rule", "."), reason("a", "wide", ".", pattern="a.p")
    dtype, region = reason("a", "dtype", "."), reason("a", "too-large", ".")
    for reasons, chosen in (
        ([no_rule, NEAR_MISS | {"backend": "a"}], "near-miss"),
        ([NEAR_MISS | {"backend": "a"}, check, reason("a", "later", ".", pattern="a.q"), no_rule], "wide"),
        ([check, dtype], "dtype"),
        ([dtype, check, region], "too-large"),
    ):
        assert decisive_reasons(reasons)["a"]["code"] == chosen


def test_long_reports_are_cut() -> None:
    ops = [op("exp", "host", 1, f"code{number:02}", "t", share=0.01) for number in range(20)]
    borders = [{"before": "a", "after": f"b{number}", "code": "barrier"} for number in range(10)]
    lines = render_report({"ops": ops, "borders": borders, "total_flops": 20}).splitlines()
    assert lines[2:5] == [
        "why ops stayed on the host:",
        "    1.0%      1 x exp: t [code00]",
        "    1.0%      1 x exp: t [code01]",
    ]
    assert lines[15:19] == [
        "  and 8 more reasons",
        "",
        "separate regions of the same backend:",
        "  a and b0 stay apart: barrier",
    ]
    assert lines[-1] == "  and 2 more pairs"


def test_reasons_with_many_texts_are_one() -> None:
    ops = [op(name, "host", 1, "op", f"no `{name}`", share=0.1) for name in "abcde"]
    assert "50.0%      5 x a, b, c, d and 1 more: no `a`, and 4 similar reasons [op]" in render_report({"ops": ops})
    rows = [{**row, "reasons": [reason("aone", "op", row["text"])]} for row in ops]
    data = {"ops": rows, "summary": [{"backend": "aone", "code": "op", "text": "there is no kernel"}]}
    assert "50.0%      5 x a, b, c, d and 1 more: aone: there is no kernel [op]" in render_report(data)


def test_long_lines_are_broken_where_a_width_is_given() -> None:
    data = {
        "ops": [op("exp", "host", 1, "c", "why this stays is a long story that does not fit on one line", share=1.0)]
    }
    assert render_report(data | {"total_flops": 1}, 60).splitlines()[2:] == [
        "why ops stayed on the host:",
        "  100.0%      1 x exp: why this stays is a long story that",
        "      does not fit on one line [c]",
    ]


def test_a_report_of_an_older_form_is_explained() -> None:
    """Reports of artifacts made before ``reasons``, ``regions``, ``borders`` and ``summary`` existed."""
    old = {
        "backends": [{"name": "aone", "regions": 1, "ops": 1, "flops": "3*n", "share": 0.75}, {"name": "host"}],
        "total_flops": "4*n",
        "offloaded_share": 0.75,
        "ops": [op("tanh", "aone", "3*n", share=0.75), op("sin", "host", "n", "op", "aone: no `sin`", share=0.25)],
    }
    text = "why ops stayed on the host:\n   25.0%      1 x sin: aone: no `sin` [op]"
    assert text in render_report(old)
    again = apportion(old, {"n": 8})
    assert (again["offloaded_share"], again["counted_sizes"]) == (0.75, {"n": 8})
    assert again.keys() - old.keys() == {"counted_sizes"}
    assert text in render_report(again)
    check_offload(old, 0.75)
    with pytest.raises(PartitionError) as caught:
        check_offload(old, 0.8)
    assert str(caught.value) == (
        "offload: the offloaded share of the FLOPs is too small, counting n = 1; got 75.0%, expected at least 80%\n"
        + text
    )


def test_the_gate_rounds_down_what_it_found() -> None:
    with pytest.raises(PartitionError, match=r"; got 89\.9%, expected at least 90%"):
        check_offload({"offloaded_share": 0.89999999}, 0.9)
    with pytest.raises(PartitionError) as caught:
        check_offload({"offloaded_share": "all"}, 0.9)
    assert str(caught.value) == "offload: the report has no valid offloaded share; expected at least 90%"
    for share in (-0.1, 1.5, float("nan")):
        with pytest.raises(OptionsError, match="required offload: is not a share"):
            check_offload({"offloaded_share": 1.0}, share)


TEXTS = st.text(max_size=6) | st.sampled_from(["host", "aone", "near-miss", "2*n", "n//m", "n*(m+"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*KEYS]), inner, max_size=5),
    max_leaves=30,
)


@given(st.dictionaries(st.sampled_from([*KEYS]), JSON, max_size=9))
def test_any_json_is_rendered_and_counted(data: dict[str, Any]) -> None:
    for given_data in (data, apportion(data)):
        assert isinstance(render_report(given_data, 80), str)
        with contextlib.suppress(PartitionError):
            check_offload(given_data, 0.5)
    assert 0 <= apportion(data)["offloaded_share"] <= 1


def test_what_moves_a_terminal_is_not_printed() -> None:
    escape = "\x1b[2J\ud800"
    row = {"op": escape, "name": escape, "outcome": "host", "code": escape, "text": escape, "share": 1.0}
    size = {"size": escape, "where": escape, "kind": "unknown"}
    data = {"ops": [row], "backends": [{"name": escape}], "total_flops": escape, "sizes": [size], "offloaded_share": 0}
    for text in (render_report(data), render_report(data, 80)):
        assert "\ufffd[2J" in text
        assert all(line.isprintable() for line in text.splitlines())
    with pytest.raises(PartitionError) as caught:
        check_offload(data, 0.5)
    assert all(line.isprintable() for line in str(caught.value).splitlines())


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (1.0, "100.0%"),
        (0.99999, "99.9%"),
        (1 - 2**-53, "99.9%"),
        (0.9989, "99.9%"),
        (0.5, "50.0%"),
        (0, "0.0%"),
        (7, "?"),
    ],
)
def test_only_the_whole_is_a_hundred_percent(share: float, text: str) -> None:
    assert percent(share) == text


@given(flops=st.lists(st.integers(1, 10**12), min_size=2, max_size=5))
def test_no_share_reads_as_the_whole_while_others_have_flops(flops: list[int]) -> None:
    ops = [{"flops": count, "outcome": f"b{index}"} for index, count in enumerate(flops)]
    data = apportion({"ops": ops, "backends": [{"name": f"b{index}"} for index in range(len(ops))]})
    assert all(percent(item["share"]) != "100.0%" for item in data["backends"])


def test_ops_of_the_host_are_named_where_the_share_does_not_tell_of_them() -> None:
    ops = [{"op": "matmul", "flops": 100, "outcome": "x"}]
    ops += [{"op": name, "flops": 0, "outcome": "host"} for name in ("arange", "strided_slice", "arange")]
    data = apportion({"ops": ops, "backends": [{"name": "x", "flops": 100}], "total_flops": 100})
    first = render_report(data).partition("\n")[0]
    assert first == (
        "100.0% of 100 FLOPs offloaded, but 3 ops without FLOPs stay on the host: 2 x arange, strided_slice"
    )
    data["ops"] = data["ops"][:2]
    assert render_report(data).partition("\n")[0].endswith(", but 1 op without FLOPs stays on the host: arange")


def test_expressions_are_numbers_at_the_counted_sizes() -> None:
    text = "+".join(f"{number}*n*m" for number in range(1000, 1100))
    data = apportion({"ops": [{"op": "matmul", "flops": text, "outcome": "x"}], "total_flops": text}, {"n": 10})
    (line,) = render_report(data).splitlines()[:1]
    assert line == "100.0% of 1.05M FLOPs offloaded, counting m = 1, n = 10"
    assert flops_text("8*n", data) == "80"
    assert flops_text("n" * 10**6, {}) == "?"
    assert flops_text("1**" * 20, {"counted_sizes": {"n": "x"}}) == "?"
