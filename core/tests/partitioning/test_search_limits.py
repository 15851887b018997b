"""A search reaching a bound is logged: no possible match is skipped silently."""

from __future__ import annotations

import byoc_core
import pytest
from byoc_core.ir import IRModule, Value, tensor
from byoc_core.ops import FunctionBuilder
from byoc_core.partitioning import FuseOpsByPattern, PartitionLog
from byoc_core.pattern import CompositePattern, FunctionIndex, Pattern, any_number, explain_mismatch, is_op, wildcard
from byoc_core.pattern import search as search_module
from byoc_core.pattern.reachability import MAX_VISITS

from core.tests.conftest import FakeBackend

TOO_MANY_FITS = "a part of the pattern has more than 256 fits, and further fits were not examined"
VISITS = f"the search for a path from the match to an input stopped after {MAX_VISITS} ops"


def limits_and_ops(module: IRModule, pattern: CompositePattern) -> tuple[list[str], list[str]]:
    """Gives what is said of bounds at the last op of ``main``, and the ops after fusion."""
    log = PartitionLog()
    fused = FuseOpsByPattern([pattern], log=log)(module)
    refusals = log.refusals("main", module["main"].bindings[-1].results[0].name)
    limits = [refusal.rejection.text for refusal in refusals if refusal.rejection.code == "search-limit"]
    assert {refusal.pattern for refusal in refusals} <= {pattern.name}
    return limits, [binding.op.name for binding in fused["main"].bindings]


def join(count: int) -> IRModule:
    """Return a concat of ``count`` values, each matched in two ways by a pattern of :func:`choice`."""
    builder = FunctionBuilder("main")
    x = builder.param("x", tensor((4,)))
    parts = [builder.bind("tanh", (builder.bind("exp", (x,), {}).result,), {}).result for _ in range(count)]
    return IRModule({"main": builder.finish(builder.bind("concat", parts, {}).result)}, builder.constants)


def choice() -> Pattern:
    return is_op("tanh")(is_op("exp")(wildcard())) | is_op("tanh")(wildcard())


@pytest.mark.parametrize(("count", "limits"), [(8, []), (9, [TOO_MANY_FITS])])
def test_ways_that_are_not_looked_at(count: int, limits: list[str]) -> None:
    pattern = CompositePattern("aone.join", is_op("concat")(any_number(choice())))
    assert limits_and_ops(join(count), pattern) == (limits, ["composite"])


def test_orders_of_a_commutative_op_that_are_one_way_meet_no_bound() -> None:
    """Both orders of the sum of two joins with 2 ** 7 ways fit, and are equal."""
    builder = FunctionBuilder("main")
    x = builder.param("x", tensor((4,)))
    parts = [builder.bind("tanh", (builder.bind("exp", (x,), {}).result,), {}).result for _ in range(7)]
    total = builder.bind("add", (builder.bind("concat", parts, {}).result, builder.param("y", tensor((28,)))), {})
    module = IRModule({"main": builder.finish(total.result)}, builder.constants)
    pattern = CompositePattern("aone.sum", is_op("add")(is_op("concat")(any_number(choice())), wildcard()))
    assert limits_and_ops(module, pattern) == ([], ["composite"])


def test_a_search_of_too_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = CompositePattern("aone.join", is_op("concat")(any_number(choice())))
    monkeypatch.setattr(search_module, "MAX_STEPS", 20)
    limits, left = limits_and_ops(join(8), pattern)
    assert limits == ["the search stopped after 20 steps"]
    assert "composite" not in left


def beside_a_tower(height: int) -> IRModule:
    """Return ``add(tanh(x), tower)``, with ``tanh`` read outside, before the end of a tower of other ops."""
    builder = FunctionBuilder("main")
    first = builder.bind("tanh", (builder.param("x", tensor((4,))),), {}).result
    reader = builder.bind("exp", (first,), {}).result
    tower: Value = builder.param("y", tensor((4,)))
    for _ in range(height):
        tower = builder.bind("exp", (tower,), {}).result
    total = builder.bind("add", (first, tower), {}).result
    return IRModule({"main": builder.finish(total, reader)}, builder.constants)


def residual() -> CompositePattern:
    return CompositePattern("aone.sum", is_op("add")(is_op("tanh")(wildcard()), wildcard()), leaked="return")


@pytest.mark.parametrize(("height", "limits"), [(MAX_VISITS - 1, []), (MAX_VISITS + 1, [VISITS])])
def test_a_way_back_that_is_not_found_out(height: int, limits: list[str]) -> None:
    found_limits, left = limits_and_ops(beside_a_tower(height), residual())
    assert found_limits == limits
    assert ("composite" in left) == (not limits)


def test_the_report_and_the_near_miss_say_it_too(fake_backend: type[FakeBackend]) -> None:
    """The near miss of the inner op claims no unproven dependence."""
    module, pattern = beside_a_tower(MAX_VISITS + 1), residual()
    main = module["main"]
    for op in (main.bindings[0], main.bindings[-1]):
        near = explain_mismatch(pattern.pattern, op, FunctionIndex(main))
        assert near is not None
        assert near.text == f"the search reached the limit: {VISITS}"
    report = byoc_core.explain(module, [fake_backend("aone", [], [pattern])]).report_data
    reasons = next(row["reasons"] for row in report["ops"] if row["op"] == "add")
    assert [reason["code"] for reason in reasons if "pattern" in reason] == ["search-limit"]
