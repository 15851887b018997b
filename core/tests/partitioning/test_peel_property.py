"""Views leave the regions of random graphs: the same program, lawful regions, and a second run changes nothing."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import byoc_core
import numpy as np
import pytest
from byoc_core.ir import CALL, CALL_PACKED, IRModule, verify
from byoc_core.ir.sizes import type_symbols
from byoc_core.partitioning import MergeCompositeFunctions, PeelViews, check_partition, partition
from byoc_core.partitioning.op_sites import walk_bodies
from byoc_core.partitioning.peeling.views import is_view
from byoc_core.transform.capture_sizes import CaptureSizes
from hypothesis import HealthCheck, assume, given, settings

from core.tests.conftest import FakeBackend
from core.tests.partitioning.graphs import Case, Plan, grow, plan_of_seed, plans
from core.tests.partitioning.trial import check_same_run

_SETTINGS = settings(
    max_examples=settings().max_examples * 2 // 5,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


def backends_of(case: Case) -> list[FakeBackend]:
    """Return backends with a case's names, every second supporting strided views."""
    return [FakeBackend(name, strided=index % 2 == 1) for index, name in enumerate(case.backends)]


def check_peeled(case: Case, carved: IRModule) -> IRModule:
    """Peel a carved module, check all laws of the result, and return the result.

    The checker of partition, without shared code, proves a lawful partition of the case: each op in a single place,
    acyclic, minimal and ordered interfaces.
    """
    peel = PeelViews(backends_of(case))
    peeled = peel(carved)
    verify(peeled)
    assert peel(peeled) is peeled
    assert str(peel(carved)) == str(peeled)
    if peeled is not carved:
        check_partition(CaptureSizes()(case.module), peeled)
        check_same_run(case, peeled)
        for name, function in carved.functions.items():
            if "Codegen" not in function.attrs:
                assert peeled[name].result_types == function.result_types
            elif name in peeled.functions:
                assert dict(peeled[name].attrs) == dict(function.attrs)
        check_moved_are_views(carved, peeled)
    return peeled


def check_moved_are_views(carved: IRModule, peeled: IRModule) -> None:
    """Check for views of planned memory among all ops leaving a region."""
    free, free_before = (_standing_free(module) for module in (peeled, carved))
    for name, function in peeled.functions.items():
        sizes = type_symbols(function.params)
        for body in walk_bodies(function) if "Codegen" not in function.attrs else ():
            for binding in body.bindings:
                key = name, binding.results[0].name
                if key in free.keys() - free_before.keys():
                    assert is_view(binding)
                    assert type_symbols((*binding.operands, *binding.results)) <= sizes


def _standing_free(module: IRModule) -> Counter[tuple[str, str]]:
    return Counter(
        (name, binding.results[0].name)
        for name, function in module.functions.items()
        if "Codegen" not in function.attrs
        for body in walk_bodies(function)
        for binding in body.bindings
        if binding.op is not CALL
    )


@_SETTINGS
@given(plan=plans())
def test_peeling_keeps_the_laws(plan: Plan) -> None:
    case = grow(plan)
    check_peeled(case, partition(case.module, case.plugins(FakeBackend)))


@_SETTINGS
@given(plan=plans())
@pytest.mark.parametrize("sideways", [False, True])
def test_views_leave_regions_of_any_claims(sideways: bool, plan: Plan) -> None:
    case = grow(plan)
    check_peeled(case, MergeCompositeFunctions(sideways=sideways)(case.claimed()))


def test_graphs_of_seeds_hold_views_that_leave() -> None:
    """Guards the properties: many views of these graphs leave, in front and behind, and regions become empty."""
    counts = Counter[str]()
    for seed in range(75):
        case = grow(plan_of_seed(seed))
        rng = random.Random(seed)
        drawn = {name: rng.choice(case.backends) for name in case.claims}
        case = replace(case, claims=drawn)
        carved = MergeCompositeFunctions(sideways=seed % 2 == 1)(case.claimed())
        peeled = check_peeled(case, carved)
        counts["regions gone"] += len(carved.functions) - len(peeled.functions)
        counts["views"] += _standing_free(peeled).total() - _standing_free(carved).total()
    assert counts["regions gone"] > 20
    assert counts["views"] > 100


@_SETTINGS
@given(plan=plans(max_size=30))
def test_programs_with_views_between_regions_give_the_same_numbers(plan: Plan) -> None:
    """All stages, on a machine checking the contract of each function; functions supporting strides get strides."""
    case = grow(replace(plan, steps=tuple(step for step in plan.steps if step[0] != "effect") or plan.steps[:1]))
    assume(not any(binding.op is CALL_PACKED for f in case.module.functions.values() for binding in f.walk()))
    expected, _ = case.evaluate(case.module)
    backends = case.plugins(FakeBackend, strided=len(case.patterns) % 2 == 1)
    found = byoc_core.VirtualMachine(byoc_core.build(case.module, backends))["main"](*case.inputs)
    for have, want in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        assert have.dtype == want.dtype
        assert np.array_equal(have, want)
