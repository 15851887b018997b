"""``ByCost`` by measured seconds: known optima, the optimum of short chains by brute force, and bad numbers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from byoc_core import script as R
from byoc_core.backend import Estimate
from byoc_core.errors import OptionsError
from byoc_core.ir import IRModule
from byoc_core.partitioning import ByCost, MachineModel, partition
from byoc_core.pattern import CompositePattern, is_op, wildcard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.tests.conftest import FakeBackend
from core.tests.partitioning.conftest import Placement

US = 1e-6
BACKENDS = ("aone", "btwo")
NBYTES = 4000
"""Of each value in the chains."""


def chain(num_ops: int) -> IRModule:
    lines = ['def main(v0: R.Tensor((1000,), "float32")):']
    lines += [f"    v{i + 1} = R.{('nn.relu', 'tanh')[i % 2]}(v{i})" for i in range(num_ops)]
    return R.parse("\n".join([*lines, f"    return v{num_ops}"]))


def measured(rows: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    """Return the figures of a policy from microseconds of the ops of a chain, by backend."""
    return {backend: {f"main/v{i + 1}": seconds * US for i, seconds in enumerate(row)} for backend, row in rows.items()}


def places(module: IRModule, policy: ByCost, *backends: FakeBackend) -> dict[str, str]:
    """Return the backend of each op on a backend."""
    used = backends or tuple(FakeBackend(name, None, estimate=_never) for name in BACKENDS)
    after = partition(module, used, policy=policy)
    where = Placement(after)
    return {name: where.backend_of[region] for name, region in where.region_of.items()}


def _never(_function: object) -> Estimate:
    return Estimate(1.0, call_seconds=1.0)


def test_measured_seconds_replace_estimates() -> None:
    figures = measured({"aone": [1, 9, 1], "btwo": [9, 1, 9], "host": [20, 20, 20]})
    assert places(chain(3), ByCost(measured=figures)) == {"v1": "aone", "v2": "btwo", "v3": "aone"}


@pytest.mark.parametrize(
    ("border", "middle"),
    [
        ((0.0, 0.0), "btwo"),
        ((3.9 * US, 0.0), "btwo"),
        ((4.1 * US, 0.0), "aone"),
        ((0.0, 3.9 * US / NBYTES), "btwo"),
        ((0.0, 4.1 * US / NBYTES), "aone"),
        ((2 * US, 2.1 * US / NBYTES), "aone"),
    ],
)
def test_two_borders_outweigh_the_gain_of_eight_microseconds(border: tuple[float, float], middle: str) -> None:
    figures = measured({"aone": [1, 9, 1], "btwo": [90, 1, 90], "host": [90, 90, 90]})
    found = places(chain(3), ByCost(measured=figures, border_seconds=border, margin=0))
    assert found == {"v1": "aone", "v2": middle, "v3": "aone"}


def test_the_host_is_measured_too() -> None:
    policy = {seconds: ByCost(measured=measured({"aone": [2], "host": [seconds]})) for seconds in (1, 3)}
    backend = FakeBackend("aone", None)
    assert places(chain(1), policy[1], backend) == {}
    assert places(chain(1), policy[3], backend) == {"v1": "aone"}


def test_ops_without_measurement_are_estimated() -> None:
    backend = FakeBackend("aone", None, estimate=lambda _function: Estimate(2 * US))
    slow = ByCost(measured=measured({"aone": [50]}), machines={"host": MachineModel(1e15, 1e15, op_seconds=10 * US)})
    assert places(chain(3), slow, backend) == {"v2": "aone", "v3": "aone"}


@pytest.mark.parametrize(
    ("seconds", "is_taken"), [([0, 5], True), ([5, 0], True), ([0, 7], False), ([4, 3], False), ([2, 3], True)]
)
def test_a_composite_costs_the_sum_of_its_measured_ops(seconds: list[float], is_taken: bool) -> None:
    pattern = CompositePattern("aone.pair", is_op("tanh")(is_op("nn.relu")(wildcard())))
    backend = FakeBackend("aone", patterns=[pattern])
    policy = ByCost(measured=measured({"aone": seconds, "host": [3, 3]}))
    assert places(chain(2), policy, backend) == ({"v1": "aone", "v2": "aone"} if is_taken else {})


def test_one_measured_op_speaks_for_a_composite() -> None:
    pattern = CompositePattern("aone.pair", is_op("tanh")(is_op("nn.relu")(wildcard())))
    backend = FakeBackend("aone", patterns=[pattern], estimate=_never)
    figures = measured({"host": [3, 3]}) | {"aone": {"main/v2": 5 * US}}
    assert places(chain(2), ByCost(measured=figures), backend) == {"v1": "aone", "v2": "aone"}


def cost(labels: Sequence[str], rows: Mapping[str, Sequence[int]], constant: int, per_value: int) -> int:
    """Return the microseconds of a placement of a chain; inputs and results are the host's."""
    crossed = sum(one != other for one, other in itertools.pairwise(("host", *labels, "host")))
    return sum(rows[label][i] for i, label in enumerate(labels)) + crossed * (constant + per_value)


FIGURES = st.integers(1, 5).flatmap(
    lambda num_ops: st.fixed_dictionaries(
        {name: st.lists(st.integers(0, 30), min_size=num_ops, max_size=num_ops) for name in (*BACKENDS, "host")}
    )
)


@settings(max_examples=max(settings().max_examples // 2, 1), deadline=None)
@given(rows=FIGURES, constant=st.integers(0, 10), per_value=st.integers(0, 10))
@example(rows={"aone": [1, 9, 1], "btwo": [9, 1, 9], "host": [30, 30, 30]}, constant=3, per_value=1)
def test_short_chains_get_the_best_of_all_placements(rows: dict[str, list[int]], constant: int, per_value: int) -> None:
    num_ops = len(rows["host"])
    policy = ByCost(measured=measured(rows), border_seconds=(constant * US, per_value * US / NBYTES), margin=0)
    found = places(chain(num_ops), policy)
    labels = [found.get(f"v{i + 1}", "host") for i in range(num_ops)]
    choices = itertools.product((*BACKENDS, "host"), repeat=num_ops)
    assert cost(labels, rows, constant, per_value) == min(cost(c, rows, constant, per_value) for c in choices)


BAD = [float("nan"), float("inf"), -1e-9, True, "1", None]


@pytest.mark.parametrize("value", BAD)
def test_bad_numbers_are_refused(value: Any) -> None:
    cases: list[dict[str, Any]] = [
        {"measured": {"aone": {"main/v1": value}}},
        {"border_seconds": (value, 0.0)},
        {"border_seconds": (0.0, value)},
    ]
    for arguments in cases:
        with pytest.raises(OptionsError) as caught:
            ByCost(**arguments)
        assert str(caught.value) == "ByCost: has a bad number of seconds; expected finite numbers, 0 or more"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"measured": 3}, "ByCost, measured: is not a mapping with names as keys; got 3, "),
        ({"measured": {3: {}}}, "ByCost, measured: is not a mapping with names as keys; got {3: {}}, "),
        ({"measured": {"aone": 3}}, "ByCost, measured of `aone`: is not a mapping with names as keys; got 3, "),
        ({"border_seconds": 3}, "ByCost, border_seconds: has a bad value; got 3, expected two numbers: "),
        ({"border_seconds": (1.0,)}, "ByCost, border_seconds: has a bad value; got (1.0,), expected two numbers: "),
        ({"border_seconds": (0, 0, 0)}, "ByCost, border_seconds: has a bad value; got (0, 0, 0), expected two "),
    ],
)
def test_arguments_of_the_wrong_kind(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionsError) as caught:
        ByCost(**arguments)
    assert str(caught.value).startswith(text)
