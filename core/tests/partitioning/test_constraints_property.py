"""Constraints hold on random graphs: what the user wishes is done, the program stays the same, and twice is once.

``BYOC_PROPERTY_EXAMPLES`` sets how many graphs are tried.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pytest
from byoc_core.dims import evaluate
from byoc_core.ir import COMPOSITE, STRUCTURAL_OPS, Function, IRModule
from byoc_core.partitioning import (
    ByCost,
    GreedyByOrder,
    MachineModel,
    PartitionOptions,
    Policy,
    check_partition,
    partition,
)
from byoc_core.pattern import Rejection, Support
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

_SETTINGS = settings(
    max_examples=int(os.environ.get("BYOC_PROPERTY_EXAMPLES", "40")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
_GLOBS = ("add", "m*", "nn.*", "*")


def _ops(module: IRModule) -> dict[tuple[str, str], str]:
    """Gives the op of each name, control flow and calls left out."""
    return {
        (function.name, binding.results[0].name): binding.op.name
        for function in module.functions.values()
        for binding in function.walk()
        if binding.op not in STRUCTURAL_OPS
    }


def _draw_options(data: st.DataObject, case: Any) -> PartitionOptions:
    ops = sorted(_ops(case.module))
    assume(ops)  # there is something to name
    names = st.sampled_from(ops).map("/".join)
    claims = sorted(case.claims.items())
    force: dict[str, str] = data.draw(st.dictionaries(names, st.just("host"), max_size=3))
    if claims and len(force) < 3:
        name, backend = data.draw(st.sampled_from(claims))
        others = {entry: place for entry, place in force.items() if not entry.endswith(f"/{name}")}
        force = {**others, name: backend}  # which that backend supports
    return PartitionOptions(
        force=force,
        stop_at=data.draw(st.lists(names, max_size=2, unique=True)),
        allow=data.draw(
            st.dictionaries(st.sampled_from(case.backends), st.lists(st.sampled_from(_GLOBS), max_size=2), max_size=2)
        ),
        min_ops=data.draw(st.integers(0, 4)),
        min_flops=data.draw(st.sampled_from((0, 6, 12))),
        min_bytes=data.draw(st.sampled_from((0, 64, 300))),
        sideways=data.draw(st.booleans()),
    )


def _fakes(case: Any, fake_backend: Any) -> list[Any]:
    def decide(name: str) -> Any:
        def supports(binding: Any) -> Support | Rejection:
            wanted = case.claims.get(binding.results[0].name)
            return Support() if wanted == name else Rejection("drawn", f"is for {wanted}")

        return supports

    return [
        fake_backend(name, patterns=[p for p in case.patterns if p.backend == name], supports=decide(name))
        for name in case.backends
    ]


_POLICIES: Mapping[str, Policy] = {
    "greedy": GreedyByOrder(),
    "cost": ByCost(machines={"host": MachineModel(1e15, 1e15, op_seconds=4e-6)}),  # a slow host: much is offloaded
}


@pytest.mark.parametrize("policy", _POLICIES.values(), ids=_POLICIES)
@_SETTINGS
@given(data=st.data())
def test_constraints_hold(policy: Policy, data: st.DataObject, cases: Any, placement: Any, fake_backend: Any) -> None:
    case = data.draw(cases(60))
    options = _draw_options(data, case)
    fakes = _fakes(case, fake_backend)
    after = partition(case.module, fakes, policy=policy, partition_options=options)
    check_partition(case.module, after)
    (results, effects), (expected, expected_effects) = case.evaluate(after), case.evaluate(case.module)
    assert repr(effects) == repr(expected_effects)
    for have, want in zip(results, expected, strict=True):
        np.testing.assert_array_equal(have, want)
    assert str(partition(case.module, fakes, policy=policy, partition_options=options)) == str(after)
    again = partition(after, fakes, policy=policy, partition_options=options)
    assert again == after
    assert str(again) == str(after)
    where = placement(after)
    event(f"regions: {min(len(where.backend_of), 3)}")
    taken = {name: where.backend_of[region] for name, region in where.region_of.items()}
    _check_force_and_allow(case, options, taken)
    _check_sizes(after, options)
    stops = {entry.partition("/")[2] for entry in options.stop_at}
    for function in case.module.functions.values():
        _check_stops(function, stops, options, taken)


def _check_force_and_allow(case: Any, options: PartitionOptions, taken: Mapping[str, str]) -> None:
    forced = {entry.rpartition("/")[2]: backend for entry, backend in options.force.items()}
    for name, backend in forced.items():
        assert taken.get(name, "host") == backend
    for (_, name), op in _ops(case.module).items():
        if name in taken and name not in forced and taken[name] in options.allow:
            assert any(fnmatchcase(op, glob) for glob in options.allow[taken[name]])


def _check_sizes(after: IRModule, options: PartitionOptions) -> None:
    forced = {entry.rpartition("/")[2] for entry in options.force}
    for function in after.functions.values():
        if "Codegen" in function.attrs:
            ops = [b for b in function.walk() if b.op is not COMPOSITE]
            if forced.isdisjoint(b.results[0].name for b in ops):
                assert len(ops) >= options.min_ops
                flops = [evaluate(b.op.flops(b.cost_context()), {}) for b in ops]
                nbytes = [evaluate(b.op.nbytes(b.cost_context()), {}) for b in ops]
                assert sum(flops) >= options.min_flops
                assert sum(nbytes) >= options.min_bytes


def _check_stops(body: Function, stops: set[str], options: PartitionOptions, taken: Mapping[str, str]) -> None:
    """Checks one body by itself: nothing is offloaded that reads, by whatever way in it, what a stop gives."""
    forced = {entry.rpartition("/")[2] for entry in options.force}
    dependent: set[int] = set()
    for binding in body.bindings:
        names = {inner.results[0].name for region in binding.regions for inner in region.walk()}
        names.add(binding.results[0].name)
        if not dependent.isdisjoint(map(id, binding.operands)):
            assert taken.keys().isdisjoint(names - forced)
            dependent.update(map(id, binding.results))
        if not stops.isdisjoint(names):
            dependent.update(map(id, binding.results))
        for region in binding.regions:
            _check_stops(region, stops, options, taken)
