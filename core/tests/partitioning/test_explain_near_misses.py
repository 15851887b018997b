"""Near misses: for an op left on the host, the best fitting pattern, and the mismatch."""

from __future__ import annotations

from typing import Any

import byoc_core
import pytest
from byoc_core import script as R
from byoc_core.ir import IRModule
from byoc_core.partitioning import PartitionLog, partition
from byoc_core.partitioning.reporting import near_misses
from byoc_core.pattern import CompositePattern, Rejection, is_const, is_op, wildcard

from core.tests.conftest import FakeBackend

DENSE = is_op("nn.dense")(wildcard(), wildcard())
PAIR = CompositePattern("aone.pair", is_op("nn.relu")(DENSE))
LONG = CompositePattern("aone.long", is_op("nn.relu")(is_op("add")(DENSE, wildcard())))
MODULE = R.parse("""
def main(x: R.Tensor((2, 4)), w: R.Tensor((3, 4)), v: R.Tensor((3, 3))):
    a = R.nn.dense(x, w)
    b = R.tanh(a)
    c = R.nn.relu(b)
    d = R.nn.dense(c, v)
    e = R.nn.relu(d)
    return e
""")


def near(module: IRModule, *backends: object, **options: Any) -> list[tuple[str, str, str]]:
    """Return name, pattern and text of the near misses in a report."""
    return [
        (row["name"], reason["pattern"], reason["text"])
        for row in byoc_core.explain(module, backends, **options).report_data["ops"]
        for reason in row.get("reasons", ())
        if reason["code"] == "near-miss"
    ]


def test_the_failing_part_is_named_from_both_sides(fake_backend: type[FakeBackend]) -> None:
    assert near(MODULE, fake_backend("aone", ["exp"], [PAIR])) == [
        ("a", "aone.pair", "`aone.pair` does not fit: `nn.dense` is read by `tanh`, expected `nn.relu`"),
        ("c", "aone.pair", "`aone.pair` does not fit: operand 0 of `nn.relu` is made by `tanh`, expected `nn.dense`"),
    ]


def test_the_report_shows_them_in_short(fake_backend: type[FakeBackend]) -> None:
    assert (
        byoc_core.explain(MODULE, [fake_backend("aone", ["exp"], [PAIR])]).report()
        == """
41.2% of 102 FLOPs offloaded
  aone   41.2%         42 FLOPs  2 ops in 1 region
  host   58.8%         60 FLOPs  3 ops in 1 region

why ops stayed on the host:
   47.1%      1 x nn.dense: aone: no `nn.dense` here [op]
    5.9%      1 x nn.relu: aone: no `nn.relu` here [op]
    5.9%      1 x tanh: aone: no `tanh` here [op]

near misses of patterns:
  `a` = nn.dense: `aone.pair` does not fit: `nn.dense` is read by `tanh`, expected `nn.relu`
  `c` = nn.relu: `aone.pair` does not fit: operand 0 of `nn.relu` is made by `tanh`, expected `nn.dense`
""".strip()
    )


def test_the_pattern_of_which_most_ops_fit_is_named_and_the_first_of_equals(fake_backend: type[FakeBackend]) -> None:
    module = R.parse("""
def main(x: R.Tensor((2, 4)), w: R.Tensor((3, 4)), v: R.Tensor((2, 3))):
    a = R.nn.dense(x, w)
    b = R.add(a, v)
    c = R.tanh(b)
    return c
""")
    twin = CompositePattern("aone.twin", LONG.pattern)
    for patterns, named in (((PAIR, LONG, twin), "aone.long"), ((twin, LONG), "aone.twin"), ((PAIR,), "aone.pair")):
        found = near(module, fake_backend("aone", [], patterns))
        assert next(pattern for name, pattern, _ in found if name == "a") == named


def test_there_are_none_where_a_pattern_fits_or_better_reasons_are_known(fake_backend: type[FakeBackend]) -> None:
    small = R.parse(
        "def main(x: R.Tensor((2, 4)), w: R.Tensor((3, 4))):\n"
        "    a = R.nn.dense(x, w)\n    b = R.nn.relu(a)\n    c = R.tanh(b)\n    return c"
    )
    refused = CompositePattern("aone.pair", PAIR.pattern, lambda match: Rejection("wide", "is too wide"))
    assert near(small, fake_backend("aone", [], [PAIR])) == []
    assert [name for name, *_ in near(small, fake_backend("aone", [], [refused, LONG]))] == ["a"]
    assert near(small, fake_backend("aone", [], [refused])) == []
    dynamic = R.parse('def main(x: R.Tensor(("n", 4))):\n    a = R.nn.relu(x)\n    return a')
    assert near(dynamic, fake_backend("aone", [], [PAIR], dynamic_shapes=False), specialize=False) == []


def test_each_backend_has_its_own_and_ops_of_another_have_none(fake_backend: type[FakeBackend]) -> None:
    other = CompositePattern("btwo.pair", PAIR.pattern)
    found = near(MODULE, fake_backend("aone", ["tanh"], [PAIR]), fake_backend("btwo", ["nn.dense"], [other]))
    assert [(name, pattern) for name, pattern, _ in found] == [("c", "aone.pair"), ("c", "btwo.pair")]


def test_bodies_of_control_flow_have_them_too(fake_backend: type[FakeBackend]) -> None:
    module = R.parse("""
def main(p: R.Tensor((), "bool"), x: R.Tensor((4,))):
    @R.region
    def then(y: R.Tensor((4,))):
        a = R.nn.relu(y)
        return a
    @R.region
    def other(y: R.Tensor((4,))):
        return y
    z = R.if_(p, x, regions=[then, other])
    return z
""")
    assert [name for name, *_ in near(module, fake_backend("aone", [], [PAIR]))] == ["a"]


def test_patterns_ask_for_the_values_of_constants(fake_backend: type[FakeBackend]) -> None:
    module = R.parse("def main(x: R.Tensor((4,))):\n    a = R.multiply(x, R.const(0.25))\n    return a")
    half = CompositePattern("aone.half", is_op("multiply")(wildcard(), is_const(0.5)))
    text = "`aone.half` does not fit: operand 1 of `multiply` holds 0.25, expected the constant 0.5"
    assert near(module, fake_backend("aone", [], [half])) == [("a", "aone.half", text)]


def test_how_many_are_looked_at_is_bounded(fake_backend: type[FakeBackend], monkeypatch: pytest.MonkeyPatch) -> None:
    backend = fake_backend("aone", ["exp"], [PAIR])
    assert byoc_core.explain(MODULE, [backend]).report_data["num_passed_over"] == 0
    monkeypatch.setattr(near_misses, "_MAX_EXPLAINED", 1)
    assert [name for name, *_ in near(MODULE, backend)] == ["a"]
    report = byoc_core.explain(MODULE, [backend]).report()
    assert "\n  ops at the end not reached by the bounded search: 1" in report
    both = fake_backend("aone", ["exp"], [PAIR, LONG])
    assert near(MODULE, both) == []  # one pattern of two would not tell which comes nearest
    assert byoc_core.explain(MODULE, [both]).report_data["num_passed_over"] == 2


def test_equal_near_misses_are_one_line(fake_backend: type[FakeBackend]) -> None:
    ops = ("nn.relu", "exp", "nn.relu", "exp", "nn.relu")
    lines = [f"    v{i + 1} = R.{op}(v{i})" for i, op in enumerate(ops)]
    module = R.parse("\n".join(["def main(v0: R.Tensor((2, 4))):", *lines, "    return v5"]))
    report = byoc_core.explain(module, [fake_backend("aone", [], [PAIR])]).report()
    text = "nn.relu{}: `aone.pair` does not fit: operand 0 of `nn.relu` is {}, expected `nn.dense`"
    assert report.splitlines()[-3:] == [
        "near misses of patterns:",
        f"  `v3` = {text.format(' and 1 more', 'made by `exp`')}",
        f"  `v1` = {text.format('', 'a parameter')}",
    ]


def test_partition_logs_them_where_a_log_is_given(fake_backend: type[FakeBackend]) -> None:
    log = PartitionLog()
    partition(MODULE, [fake_backend("aone", ["exp"], [PAIR])], log=log)
    assert [refusal.ops for refusal in log.refusals("main", "c")] == [(), ("b",)]
