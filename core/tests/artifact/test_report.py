"""The offload report as text."""

from __future__ import annotations

from typing import Any

from byoc_core.artifact.report import render_report


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


def test_symbolic_work_counts_with_sizes_of_one() -> None:
    data = {
        "backends": [{"name": "ccompiler", "regions": 1, "ops": 1, "flops": "8*n", "share": 0.8}],
        "total_flops": "10*n",
        "offloaded_share": 0.8,
        "ops": [op("exp", "host", "2*n", "forced", "", share=0.2)],
    }
    assert render_report(data) == (
        "80.0% of 10*n FLOPs offloaded\n"
        "  ccompiler   80.0%        8*n FLOPs  1 op in 1 region\n\n"
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
        "sizes that no input determines:",
        "  k: op `nonzero` (`lv3`) of m.onnx:/find, axis 1",
        "  ?: nobody knows where",
    ]
