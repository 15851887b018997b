"""Placement without IR: against brute force, against known results, and its growth."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import pytest
from byoc_core.partitioning.policies.forest import label_forest
from byoc_core.partitioning.policies.labelling import Labelling, find_labelling
from byoc_core.partitioning.policies.placement import Cost, Flow, PlacementProblem
from hypothesis import given, settings
from hypothesis import strategies as st


def random_problem(rng: random.Random, num_items: int, num_labels: int, most_operands: int) -> PlacementProblem:
    """Return a problem with the host as last label.

    Every item reads up to ``most_operands`` of the four items before; with 1 any earlier item is read, for a tree with
    several readers of a flow. Some neighbours are units of a label.
    """
    host = num_labels - 1
    costs = [[rng.choice([math.inf, rng.randint(0, 20)]) for _ in range(host)] for _ in range(num_items)]
    readers: list[list[int]] = [[] for _ in range(num_items)]
    for item in range(1, num_items):
        first = 0 if most_operands == 1 else max(0, item - 4)
        for operand in sorted({rng.randrange(first, item) for _ in range(rng.randint(1, most_operands))}):
            readers[operand].append(item)
    units: list[dict[int, tuple[int, ...]]] = [{} for _ in range(num_labels)]
    for label, (producer, items) in itertools.product(range(host), enumerate(readers)):
        for reader in items:
            if rng.random() < 0.3 and not {producer, reader} & units[label].keys():
                for member in (producer, reader):
                    units[label][member] = (producer, reader)
                    costs[member][label] = rng.randint(0, 20)
    flows = [Flow(item, tuple(items), _moves(rng, num_labels)) for item, items in enumerate(readers) if items]
    return PlacementProblem([[*row, rng.randint(5, 40)] for row in costs], [host] * num_items, flows, units)


def _moves(rng: random.Random, num_labels: int) -> list[list[Cost]]:
    """Return the costs of a value's moves: out of a device, into the other, and a call."""
    out, into, call = ([rng.randint(0, 9) for _ in range(num_labels)] for _ in range(3))
    labels = range(num_labels)
    return [[0 if a == b else out[a] + into[b] + call[b] for b in labels] for a in labels]


def optimum(problem: PlacementProblem) -> Cost:
    labels = range(problem.num_labels)
    return min(problem.cost(labelling) for labelling in itertools.product(labels, repeat=len(problem.costs)))


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 7), st.integers(2, 4))
def test_a_forest_gets_its_optimum(rng: random.Random, num_items: int, num_labels: int) -> None:
    problem = random_problem(rng, num_items, num_labels, 1)
    labels, is_optimal = label_forest(problem)
    assert is_optimal
    assert problem.cost(labels) == find_labelling(problem).cost == optimum(problem)


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(2, 8), st.integers(2, 3))
def test_no_known_labelling_is_better(rng: random.Random, num_items: int, num_labels: int) -> None:
    problem = random_problem(rng, num_items, num_labels, 2)
    starts = [problem.repaired(rng.choices(range(num_labels), k=num_items)) for _ in range(3)]
    found = find_labelling(problem, starts)
    assert found.cost == problem.cost(found.labels) < math.inf
    assert found.cost >= optimum(problem)
    assert all(found.cost <= problem.cost(start) for start in (problem.homes, *starts))
    assert find_labelling(problem, starts).labels == found.labels


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(2, 12), st.integers(2, 4))
def test_no_single_move_is_left_and_differences_are_exact(rng: random.Random, num_items: int, num_labels: int) -> None:
    problem = random_problem(rng, num_items, num_labels, 2)
    labelling = Labelling(problem, rng.choices(range(num_labels), k=num_items))
    labelling.improve()
    for item, label in itertools.product(range(num_items), range(num_labels)):
        changes = labelling.changes([item], label)
        changed = [changes.get(other, now) for other, now in enumerate(labelling.labels)]
        assert labelling.difference(changes) == problem.cost(changed) - labelling.cost >= 0


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(2, 12))
def test_a_repaired_labelling_is_allowed(rng: random.Random, num_items: int) -> None:
    problem = random_problem(rng, num_items, 3, 2)
    labels = problem.repaired(rng.choices(range(3), k=num_items))
    assert problem.cost(labels) < math.inf
    assert problem.repaired(labels) == labels


def chain(costs: Sequence[Sequence[Cost]], crossing: int) -> PlacementProblem:
    """A chain on two labels, the second is home; every crossing costs the same."""
    moves = [[0, crossing], [crossing, 0]]
    flows = [Flow(item, (item + 1,), moves) for item in range(len(costs) - 1)]
    return PlacementProblem(costs, [1] * len(costs), flows, [{}, {}])


FIXED: Sequence[Cost] = [math.inf, 0]


def test_a_cheap_op_goes_with_its_neighbours_and_a_dear_border_keeps_all_at_home() -> None:
    ops: list[Sequence[Cost]] = [FIXED, [1, 9], [5, 4], [1, 9], FIXED]
    assert find_labelling(chain(ops, 2)).labels == [1, 0, 0, 0, 1]
    assert find_labelling(chain(ops, 8)).labels == [1, 1, 1, 1, 1]
    assert find_labelling(chain(ops, 0)).labels == [1, 0, 1, 0, 1]


def test_a_value_moves_once_to_each_label() -> None:
    moves = [[0, 5], [5, 0]]
    costs: list[Sequence[Cost]] = [FIXED, *[[0, 2]] * 3]
    flow = Flow(0, (1, 2, 3), moves)
    assert find_labelling(PlacementProblem(costs, [1] * 4, [flow], [{}, {}])).labels == [1, 0, 0, 0]
    alone = [Flow(0, (item,), moves) for item in (1, 2, 3)]
    assert find_labelling(PlacementProblem(costs, [1] * 4, alone, [{}, {}])).labels == [1, 1, 1, 1]


def test_equal_costs_go_to_the_earlier_label() -> None:
    assert find_labelling(PlacementProblem([[3, 3, 3]], [2], [], [{}, {}, {}])).labels == [0]


def test_a_region_moves_where_no_op_would_alone() -> None:
    """A cycle of ops, each a little dearer at home: every border costs more than one op saves, but less than all."""
    moves = [[0, 10], [10, 0]]
    flows = [Flow(item, ((item + 1) % 6,), moves) for item in range(6)]
    problem = PlacementProblem([[0, 3]] * 6, [1] * 6, flows, [{}, {}])
    labelling = Labelling(problem, problem.homes)
    assert all(labelling.difference(labelling.changes([item], 0)) > 0 for item in range(6))
    labelling.improve()
    assert labelling.labels == [0] * 6


def test_a_unit_moves_whole_and_what_it_breaks_goes_home() -> None:
    units: list[dict[int, tuple[int, ...]]] = [{0: (0, 1), 1: (0, 1)}, {1: (1, 2), 2: (1, 2)}, {}]
    free = [[0] * 3] * 3
    flows = [Flow(0, (1,), free), Flow(1, (2,), free)]
    problem = PlacementProblem([[1, math.inf, 5], [1, 1, 5], [math.inf, 1, 5]], [2] * 3, flows, units)
    labelling = Labelling(problem, [2, 1, 1])
    assert labelling.changes([0], 0) == {0: 0, 1: 0, 2: 2}
    assert problem.cost([2, 1, 2]) == math.inf
    assert Labelling(problem, [0, 1, 1]).labels == [2, 1, 1]
    assert find_labelling(problem).cost == 7


@pytest.mark.parametrize("most_operands", [1, 2])
def test_the_work_grows_with_the_ops(most_operands: int) -> None:
    """The moves look at 4 to 17 flows for each op, whatever the number of ops."""
    for num_items in (100, 1000, 4000):
        problem = random_problem(random.Random(num_items), num_items, 3, most_operands)
        labelling = Labelling(problem, label_forest(problem)[0])
        labelling.improve()
        assert labelling.num_steps <= 20 * num_items


def test_a_value_with_thousands_of_readers_is_no_square() -> None:
    moves = [[0, 5], [5, 0]]
    readers = tuple(range(1, 4001))
    costs: list[Sequence[Cost]] = [FIXED, *([[1, 3]] * 4000)]
    problem = PlacementProblem(costs, [1] * 4001, [Flow(0, readers, moves), Flow(1, (2,), moves)], [{}, {}])
    labelling = Labelling(problem, problem.homes)
    labelling.improve()
    assert labelling.labels == [1, *[0] * 4000]
    assert labelling.num_steps <= 4 * 4001
