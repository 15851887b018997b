"""The law of partition on random graphs: legal, minimal, maximal, deterministic, stable, and the same numbers.

``nox -s thorough`` draws more graphs, ``nox -s partition-laws`` tries many more, of up to 300 ops.
"""

from __future__ import annotations

import operator
from collections import Counter

import pytest
from byoc_core.ir import TensorType, verify
from byoc_core.partitioning import MergeCompositeFunctions
from byoc_core.partitioning.merging import grouping
from hypothesis import HealthCheck, given, settings

from core.tests.partitioning import long_run
from core.tests.partitioning.graphs import PATTERNS, Case, Plan, grow, plan_of_seed, plans
from core.tests.partitioning.laws import check_laws
from core.tests.partitioning.trial import check_case, check_claims_merged, check_composites_alone

_EXAMPLES = settings().max_examples * 2 // 5
_SETTINGS = settings(
    max_examples=_EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


@_SETTINGS
@given(plan=plans())
def test_partition_is_lawful(plan: Plan) -> None:
    check_case(grow(plan))


@_SETTINGS
@given(plan=plans())
@pytest.mark.parametrize("sideways", [False, True])
def test_merging_any_claims_is_lawful(sideways: bool, plan: Plan) -> None:
    check_claims_merged(grow(plan), sideways=sideways)


def test_a_spent_budget_of_searches_leaves_more_regions_and_breaks_no_law(
    sample: list[Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regions left apart by an aborted search: legal, acyclic and reproducible, if not maximal."""
    merge = MergeCompositeFunctions()
    claimed = [case.claimed() for case in sample[:80]]
    full = [len(merge(module).functions) for module in claimed]
    monkeypatch.setattr(grouping, "_FREE_VISITS", 1)
    monkeypatch.setattr(grouping, "_SEARCH_BUDGET", 0)
    monkeypatch.setattr(grouping, "_SEARCH_BUDGET_PER_BINDING", 0)
    bounded = [merge(module) for module in claimed]
    for case, before, after in zip(sample, claimed, bounded, strict=False):
        check_laws(before, after, case.claims, maximal=False)
        assert str(merge(before)) == str(after)
    counts = [len(module.functions) for module in bounded]
    assert sum(map(operator.gt, counts, full)) > 10
    assert all(map(operator.ge, counts, full))


@_SETTINGS
@given(plan=plans())
def test_each_composite_alone_is_lawful(plan: Plan) -> None:
    check_composites_alone(grow(plan))


@pytest.mark.parametrize("first", range(0, 125, 25))
def test_graphs_of_the_long_run(first: int) -> None:
    tally = long_run.try_seeds(range(first, first + 25))
    assert tally.failures == {}
    assert tally.regions > 100


@pytest.fixture(scope="module")
def sample() -> list[Case]:
    return [grow(plan_of_seed(seed)) for seed in range(200)]


def test_graphs_are_valid_and_a_function_of_their_seed(sample: list[Case]) -> None:
    for seed, case in enumerate(sample[:50]):
        verify(case.module)
        regrown = grow(plan_of_seed(seed))
        assert str(regrown.claimed()) == str(case.claimed())
        assert [pattern.name for pattern in regrown.patterns] == [pattern.name for pattern in case.patterns]


def test_graphs_hold_what_the_laws_speak_of(sample: list[Case]) -> None:
    """A law never tested by any graph would be worthless."""
    counts = [case.count() for case in sample]
    total = sum(counts, Counter[str]())
    assert max(count.total() for count in counts) > 290
    assert all(total[op] > 100 for op in ("split", "if", "loop", "call", "call_packed"))
    assert total["nonzero"] > 30
    assert {len(case.backends) for case in sample} == {1, 2, 3, 4}
    assert {p.name.partition(".")[2] for case in sample for p in case.patterns} == set(PATTERNS)
    assert {p.leaked for case in sample for p in case.patterns} == {"decline", "return"}
    assert any(case.lifted for case in sample)
    nested = [
        inner
        for case in sample
        for function in case.module.functions.values()
        for binding in function.walk()
        for region in binding.regions
        for inner in region.bindings
    ]
    assert any(binding.op.name == "call_packed" for binding in nested)
    assert any(binding.op.name in ("if", "loop") for binding in nested)
    assert any(binding.codegen for case in sample for f in case.claimed().functions.values() for binding in f.walk())
    mains = [case.module["main"] for case in sample]
    assert any(len(set(map(id, main.results))) < len(main.results) for main in mains)  # a duplicate
    assert any(result is param for main in mains for result in main.results for param in main.params)  # an alias
    assert any(
        "m" in param.type.symbols for main in mains for param in main.params if isinstance(param.type, TensorType)
    )


def test_runs_tell_graphs_apart(sample: list[Case]) -> None:
    """Equal numbers would prove nothing if all graphs gave, say, zeros."""
    outputs = [tuple(map(str, case.evaluate(case.module)[0])) for case in sample]
    assert len(set(outputs)) > 190
