"""Constraints hold on random graphs: the user's wishes are met, the program stays the same, and twice is once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from byoc_core.ir import COMPOSITE, IRModule
from byoc_core.partitioning import (
    ByCost,
    GreedyByOrder,
    MachineModel,
    PartitionOptions,
    Policy,
    check_partition,
    partition,
)
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from core.tests.conftest import FakeBackend
from core.tests.partitioning.conftest import Cases, Placement
from core.tests.partitioning.constraint_laws import GLOBS, check_constraints, ops_of
from core.tests.partitioning.graphs import Case

_SETTINGS = settings(
    max_examples=settings().max_examples * 2 // 5,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


def _draw_options(data: st.DataObject, case: Case) -> PartitionOptions:
    ops = sorted(ops_of(case.module))
    assume(ops)  # there is something to name
    names = st.sampled_from(ops).map("/".join)
    claims = sorted(case.claims.items())
    force: dict[str, str] = data.draw(st.dictionaries(names, st.just("host"), max_size=3))
    if claims and len(force) < 3:
        name, backend = data.draw(st.sampled_from(claims))
        other_entries = {
            entry: other_backend for entry, other_backend in force.items() if not entry.endswith(f"/{name}")
        }
        force = {**other_entries, name: backend}  # which that backend supports
    return PartitionOptions(
        force=force,
        stop_at=data.draw(st.lists(names, max_size=2, unique=True)),
        allow=data.draw(
            st.dictionaries(st.sampled_from(case.backends), st.lists(st.sampled_from(GLOBS), max_size=2), max_size=2)
        ),
        devices=data.draw(st.dictionaries(names, st.integers(0, 2), max_size=6)),
        devices_from=data.draw(st.dictionaries(names, st.integers(0, 2), max_size=2)),
        min_ops=data.draw(st.integers(0, 4)),
        min_flops=data.draw(st.sampled_from((0, 6, 12))),
        min_bytes=data.draw(st.sampled_from((0, 64, 300))),
        sideways=data.draw(st.booleans()),
    )


_POLICIES: Mapping[str, Policy] = {
    "greedy": GreedyByOrder(),
    "cost": ByCost(machines={"host": MachineModel(1e15, 1e15, op_seconds=4e-6)}),  # a slow host: much is offloaded
}


def _check_devices(case: Case, after: IRModule, options: PartitionOptions) -> None:
    """Check the device of each region against the last op of each member: a composite follows its last op."""
    exact = dict(options.devices)
    for region in after.functions.values():
        if "Codegen" not in region.attrs:
            continue
        for member in region.bindings:
            last = member.regions[0].bindings[-1] if member.op is COMPOSITE else member
            name = f"{region.attrs.get('source', region.name)}/{last.results[0].name}"
            if name in exact:
                assert region.attrs.get("device", 0) == exact[name], str(after)
            elif not options.devices_from:
                assert "device" not in region.attrs, str(after)
    if not options.devices_from and not any(exact.values()):
        assert all("device" not in function.attrs for function in after.functions.values())


@pytest.mark.parametrize("policy", _POLICIES.values(), ids=_POLICIES)
@_SETTINGS
@given(data=st.data())
def test_constraints_hold(
    policy: Policy, data: st.DataObject, cases: Cases, placement: type[Placement], fake_backend: type[FakeBackend]
) -> None:
    drawn = data.draw(cases(60))
    case = drawn.with_claims_by_kind() if isinstance(policy, ByCost) else drawn
    possible = {name: backend for name, backend in case.claims.items() if name in drawn.claims}
    options = _draw_options(data, replace(case, claims=possible))
    fakes = case.plugins(fake_backend)
    after = partition(case.module, fakes, policy=policy, partition_options=options)
    check_partition(case.module, after)
    (results, effects), (expected, expected_effects) = case.evaluate(after), case.evaluate(case.module)
    assert repr(effects) == repr(expected_effects)
    for have, want in zip(results, expected, strict=True):
        np.testing.assert_array_equal(have, want)
    assert str(partition(case.module, fakes, policy=policy, partition_options=options)) == str(after)
    repeated = partition(after, fakes, policy=policy, partition_options=options)
    assert repeated == after
    assert str(repeated) == str(after)
    where = placement(after)
    event(f"regions: {min(len(where.backend_of), 3)}")
    _check_devices(case, after, options)
    backend_of = {name: where.backend_of[region] for name, region in where.region_of.items()}
    check_constraints(case, after, options, backend_of)
