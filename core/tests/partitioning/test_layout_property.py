"""Layouts of values between regions of random graphs: the same program, whatever orders the backends state."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

from byoc_core.backend import AxisOrders
from byoc_core.ir import Binding, Function, IRModule, TensorType, verify
from byoc_core.partitioning import MergeCompositeFunctions, PlanLayouts, partition
from byoc_core.partitioning.layouts.orders import Order, OrderProblem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.tests.conftest import FakeBackend
from core.tests.partitioning.graphs import Case, Plan, grow, plan_of_seed, plans
from core.tests.partitioning.trial import check_same_run

_SETTINGS = settings(
    max_examples=settings().max_examples * 2 // 5,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


def backends_of(case: Case, seed: int) -> list[Any]:
    """Return backends with a case's names stating random orders; the last of several may state nothing."""

    def state(function: Function) -> Sequence[AxisOrders] | None:
        (binding,) = function.bindings
        rng = random.Random(f"{seed} {binding.op.name}")
        return None if rng.random() < 0.1 else [_random_orders(binding, rng) for _ in range(rng.randint(1, 2))]

    return [FakeBackend(name, layouts=state) for name in case.backends]


def _random_orders(binding: Binding, rng: random.Random) -> AxisOrders:
    def order(type_: object) -> Order:
        rank = (type_.rank or 0) if isinstance(type_, TensorType) else 0
        axes = [*reversed(range(rank))]
        if rng.random() < 0.2:
            rng.shuffle(axes)
        return tuple(axes) if rank > 1 and rng.random() < 0.9 else None

    return AxisOrders(
        tuple(order(operand.type) for operand in binding.operands),
        tuple(order(result.type) for result in binding.results),
    )


def check_planned(case: Case, carved: IRModule, seed: int) -> int:
    """Plan the layouts of a carved module, check the result, and return the number of permuted values."""
    planning = PlanLayouts(backends_of(case, seed))
    plan = planning.plan(carved)
    verify(plan.module)
    assert str(planning(carved)) == str(plan.module)
    assert (plan.module is carved) == (not plan.values)
    check_same_run(case, plan.module)
    for name, function in carved.functions.items():
        if "Codegen" not in function.attrs:
            assert plan.module[name].result_types == function.result_types
        else:
            assert dict(plan.module[name].attrs) == dict(function.attrs)
    assert plan.conversions.keys() == _transposes(plan.module) - _transposes(carved)
    symbols = {str(function.attrs.get("global_symbol")) for function in carved.functions.values()}
    for value in plan.values:
        assert value.readers
        assert {value.producer, *value.readers} <= symbols
    return len(plan.values)


def _transposes(module: IRModule) -> set[tuple[str, str]]:
    return {
        (function.name, binding.results[0].name)
        for function in module.functions.values()
        for binding in function.bindings
        if binding.op.name == "permute_dims"
    }


@_SETTINGS
@given(plan=plans(), seed=st.integers(0, 99))
def test_planned_layouts_keep_the_program(plan: Plan, seed: int) -> None:
    case = grow(plan)
    check_planned(case, partition(case.module, case.plugins(FakeBackend)), seed)


@_SETTINGS
@given(plan=plans(), seed=st.integers(0, 99))
def test_planned_layouts_keep_the_program_of_any_claims(plan: Plan, seed: int) -> None:
    case = grow(plan)
    check_planned(case, MergeCompositeFunctions(sideways=True)(case.claimed()), seed)


def test_graphs_of_seeds_hold_values_to_permute() -> None:
    """Guards the properties."""
    total = 0
    for seed in range(60):
        case = grow(plan_of_seed(seed))
        total += check_planned(case, MergeCompositeFunctions()(case.claimed()), seed)
    assert total > 100


ORDERS: tuple[Order, ...] = (None, (1, 0), (0, 1))
_WISHES = st.lists(st.sampled_from(ORDERS), min_size=1, max_size=2, unique=True)


@given(data=st.data())
def test_the_chosen_orders_convert_the_fewest_bytes(data: st.DataObject) -> None:
    """Compare with all assignments of orders to groups, counted by another formula."""
    problem = OrderProblem()
    count = data.draw(st.integers(1, 5))
    nbytes = [data.draw(st.integers(0, 9)) for _ in range(count)]
    for value, size in enumerate(nbytes):
        problem.add(value, size)
    pairs = data.draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=3))
    for first, second in pairs:
        problem.bind(first, second)
    written = {value: data.draw(_WISHES) for value in range(count) if data.draw(st.booleans())}
    read = {value: data.draw(st.lists(_WISHES, max_size=3)) for value in range(count)}
    for value, orders in written.items():
        problem.want_written(value, orders)
    for value, wishes in read.items():
        for orders in wishes:
            problem.want_read(value, orders)

    def cost(orders: Sequence[Order]) -> int:
        total = 0
        for value, order in enumerate(orders):
            total += nbytes[value] * (value in written and order not in written[value])
            total += nbytes[value] * len({wish[0] for wish in read[value] if order not in wish})
        return total

    chosen = problem.choose()
    assert all(chosen[first] == chosen[second] for first, second in pairs)
    legal = (
        orders
        for orders in itertools.product(ORDERS, repeat=count)
        if all(orders[first] == orders[second] for first, second in pairs)
    )
    assert cost([chosen[value] for value in range(count)]) == min(map(cost, legal))
