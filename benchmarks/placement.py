"""Placement by cost: the distance of the labelling from the optimum, and the growth of the time, on random graphs."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Sequence
from typing import Any

from byoc_core.partitioning.policies.labelling import find_labelling
from byoc_core.partitioning.policies.placement import Flow, PlacementProblem

from benchmarks.pairing import measure

NUM_LABELS = 3
NUM_ITEMS = 8
NUM_GRAPHS = 100


def make_problem(rng: random.Random, num_items: int) -> PlacementProblem:
    """Build a placement problem: random ops for the host and two backends, each backend taking half of the ops.

    Each op reads one or two of the four ops before it.
    """
    host = NUM_LABELS - 1
    costs = [[rng.choice((math.inf, rng.randint(0, 20))) for _ in range(host)] for _ in range(num_items)]
    readers: list[list[int]] = [[] for _ in range(num_items)]
    for item in range(1, num_items):
        for operand in sorted({rng.randrange(max(0, item - 4), item) for _ in range(rng.randint(1, 2))}):
            readers[operand].append(item)
    flows = []
    for item, items in enumerate(readers):
        if items:
            crossing = rng.randint(1, 12)
            moves = [[0 if a == b else crossing for b in range(NUM_LABELS)] for a in range(NUM_LABELS)]
            flows.append(Flow(item, tuple(items), moves))
    return PlacementProblem([[*row, rng.randint(5, 40)] for row in costs], [host] * num_items, flows, [{}] * NUM_LABELS)


def run(num_rounds: int, sizes: Sequence[int]) -> dict[str, Any]:
    """Return the share of optimal results, the worst ratio to the optimum, and CPU seconds by number of ops.

    Args:
        num_rounds: rounds of the timing; also the number of small graphs, in units of 100.
        sizes: numbers of ops.
    """
    rng = random.Random(0)
    ratios = []
    for _ in range(num_rounds * NUM_GRAPHS):
        problem = make_problem(rng, NUM_ITEMS)
        best = min(map(problem.cost, itertools.product(range(NUM_LABELS), repeat=NUM_ITEMS)))
        ratios.append(find_labelling(problem).cost / best)
    optimal = sum(ratio == 1 for ratio in ratios) / len(ratios)
    print(
        f"  optimal: {optimal:.1%} of {len(ratios)} graphs of {NUM_ITEMS} ops, "
        f"the worst {max(ratios):.2f} times the optimum"
    )
    seconds = {str(size): _time_placement(make_problem(rng, size)) for size in sizes}
    samples = measure(seconds, num_rounds=num_rounds)
    for name, found in samples.items():
        print(f"  {name} ops: {found} s")
    growth = {name: found.to_json() for name, found in samples.items()}
    return {"unit": "s", "optimal": optimal, "worst ratio": max(ratios), **growth}


def _time_placement(problem: PlacementProblem) -> Any:
    def seconds() -> float:
        start = time.process_time()
        find_labelling(problem)
        return time.process_time() - start

    return seconds
