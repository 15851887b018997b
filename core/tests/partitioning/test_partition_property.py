"""The law of partition on random graphs: legal, minimal, maximal, deterministic, idempotent, and the same numbers.

``BYOC_PROPERTY_EXAMPLES`` sets how many graphs each property tries.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from byoc_core.ir import Binding, Constant, Function, IRModule, is_pure, verify
from byoc_core.partitioning import FuseOpsByPattern, MergeCompositeFunctions, RunCodegen, check_partition, partition
from byoc_core.pattern import Rejection, Support
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

_EXAMPLES = int(os.environ.get("BYOC_PROPERTY_EXAMPLES", "40"))
_SETTINGS = settings(
    max_examples=_EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


def _fakes(case: Any, fake_backend: Callable[..., Any]) -> list[Any]:
    """Gives backends that take what the case says."""

    def decide(name: str) -> Callable[[Binding], Support | Rejection]:
        def supports(binding: Binding) -> Support | Rejection:
            wanted = case.claims.get(binding.results[0].name)
            return Support() if wanted == name else Rejection("drawn", f"is for {wanted}")

        return supports

    return [
        fake_backend(name, patterns=[p for p in case.patterns if p.backend == name], supports=decide(name))
        for name in case.backends
    ]


@_SETTINGS
@given(data=st.data())
def test_partition_is_lawful(data: st.DataObject, cases: Any, placement: Any, fake_backend: Any) -> None:
    case = data.draw(cases())
    fakes = _fakes(case, fake_backend)
    after = partition(case.module, fakes)
    _check_laws(case, after, placement(after))
    assert str(partition(case.module, fakes)) == str(after)
    again = partition(after, fakes)
    assert again == after
    assert str(again) == str(after)


@_SETTINGS
@given(data=st.data())
def test_merging_any_claims_is_lawful(data: st.DataObject, cases: Any, placement: Any) -> None:
    case = data.draw(cases())
    before = case.claimed()
    after = MergeCompositeFunctions()(before)
    where = placement(after)
    _check_laws(case, after, where)
    assert {name: where.backend_of[region] for name, region in where.region_of.items()} == case.claims
    assert MergeCompositeFunctions()(after) is after


@_SETTINGS
@given(data=st.data())
def test_composites_that_return_inner_values_are_lawful(data: st.DataObject, cases: Any, placement: Any) -> None:
    case = data.draw(cases())
    fused = FuseOpsByPattern([replace(pattern, leaked="return") for pattern in case.patterns])(case.module)
    verify(fused)
    check_partition(case.module, fused)
    after = MergeCompositeFunctions()(fused)
    _check_laws(case, after, placement(after))


@_SETTINGS
@given(data=st.data())
def test_each_composite_alone_is_lawful(data: st.DataObject, cases: Any) -> None:
    case = data.draw(cases(40))
    after = FuseOpsByPattern(case.patterns, annotate_codegen=True)(case.module)
    verify(after)
    check_partition(case.module, after)
    _check_same(case, after)


@_SETTINGS
@given(data=st.data())
def test_codegen_gives_the_same_numbers(data: st.DataObject, cases: Any, fake_backend: Any, run_compiled: Any) -> None:
    case = data.draw(cases(40))
    fakes = _fakes(case, fake_backend)
    compiled = RunCodegen(backends=fakes)(partition(case.module, fakes))
    verify(compiled)
    assert not any("Codegen" in function.attrs for function in compiled.functions.values())
    if not any(b.op.name == "call_packed" for f in case.module.functions.values() for b in f.walk()):
        inputs = [np.array(True), np.linspace(-2.0, 2.0, 4), np.array([0.5, -1.0, 3.0, 0.0])]
        with np.errstate(all="ignore"):
            found = run_compiled(compiled, "main", inputs)
        for have, want in zip(found, case.evaluate(case.module)[0], strict=True):
            np.testing.assert_array_equal(have, want)


def _check_same(case: Any, after: IRModule) -> None:
    """Checks that two modules give the same results bit for bit, and the same effects in the same order."""
    (results, effects), (expected_results, expected_effects) = case.evaluate(after), case.evaluate(case.module)
    for have, want in zip(results, expected_results, strict=True):
        assert have.dtype == want.dtype
        np.testing.assert_array_equal(have, want)
    assert repr(effects) == repr(expected_effects)


def _check_laws(case: Any, after: IRModule, where: Any) -> None:
    """Checks the laws without the product's checker, by brute force over names, and then with it."""
    verify(after)
    check_partition(case.module, after)
    for name, function in case.module.functions.items():
        for body in _bodies(function):
            _check_groups(body, where, case.module, name)
    for name in where.backend_of:
        _check_interface(after, name)
    _check_same(case, after)


def _bodies(function: Function) -> Iterator[Function]:
    yield function
    for binding in function.bindings:
        for region in binding.regions:
            yield from _bodies(region)


def _check_groups(body: Function, where: Any, module: IRModule, source: str) -> None:
    """Checks that the regions of one body are acyclic and convex, and that no two neighbours could still be merged."""
    group_of: dict[int, str] = {}
    epoch_of: dict[str, int] = {}
    edges: dict[str, set[str]] = {}
    epoch = 0
    for binding in body.bindings:
        pure = is_pure(binding, module.functions)
        epoch += not pure
        own = binding.results[0].name
        group = where.region_of.get(own, own)
        assert pure or group == own, "an impure op stands in a region"
        assert epoch_of.setdefault(group, epoch) == epoch, "a region crosses an impure op"
        edges.setdefault(group, set()).update(group_of[id(o)] for o in binding.operands if id(o) in group_of)
        edges[group].discard(group)
        group_of.update((id(result), group) for result in binding.results)
        epoch += not pure
    reach = _reachable(edges)
    for group, sources in edges.items():
        for before in sources:
            backend = where.backend_of.get(group)
            if backend is None or where.backend_of.get(before) != backend or epoch_of[before] != epoch_of[group]:
                continue
            others = sources - {before}
            assert any(before in reach[other] for other in others), f"{before} and {group} could be one region"


def _reachable(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """Gives all groups that each group depends on.

    Raises:
        AssertionError: the groups depend on one another in a cycle (a group that is not convex is such a cycle).
    """
    done: dict[str, set[str]] = {}
    while len(done) < len(edges):
        ready = [group for group, sources in edges.items() if group not in done and sources <= done.keys()]
        assert ready, "the regions form a cycle"
        for group in ready:
            done[group] = edges[group].union(*(done[source] for source in edges[group]))
    return done


def _check_interface(after: IRModule, name: str) -> None:
    """Checks that a region takes and gives no more than it must."""
    region = after[name]
    (caller, call) = next(
        (body, binding)
        for function in after.functions.values()
        for body in _bodies(function)
        for binding in body.bindings
        if binding.op.name == "call" and binding.attrs["callee"] == name
    )
    read = {id(operand) for binding in region.bindings for operand in binding.operands}
    assert all(id(param) in read for param in region.params)
    assert len(set(map(id, call.operands))) == len(call.operands)
    assert not any(isinstance(operand, Constant) for operand in call.operands)
    outside: Sequence[object] = [o for b in caller.bindings for o in b.operands] + list(caller.results)
    readers = set(map(id, outside))
    assert len(call.results) == 1 or all(id(result) in readers for result in call.results)
    made = [result for binding in region.bindings for result in binding.results]
    order = [next(i for i, value in enumerate(made) if value is result) for result in region.results]
    assert order == sorted(set(order)), "outputs do not stand in the order of definition, each once"
