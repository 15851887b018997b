"""Placement by cost: the distance of the labelling from the optimum, and the growth of the time.

Labellings of random problems, without IR; and partitions of synthetic models with the backends of this repository.
"""

from __future__ import annotations

import itertools
import math
import random
import resource
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import byoc_core
from byoc_core.ir import IRModule
from byoc_core.partitioning import ByCost
from byoc_core.partitioning.policies.labelling import find_labelling
from byoc_core.partitioning.policies.placement import Flow, PlacementProblem

from benchmarks.pairing import measure
from benchmarks.scale import tabulate_growth
from benchmarks.synthetic import GRAPHS, make_model

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


BACKENDS = ("ccompiler", "dnnl")


def run_backends(num_rounds: int, sizes: Sequence[int]) -> dict[str, Any]:
    """Return CPU seconds of partition by cost, and the peak memory of the process, by kind of model and number of ops.

    A first partition, not timed, loads the backends and the tables of measured ops.
    """
    figures: dict[str, Any] = {"unit": "s"}
    for kind in GRAPHS:
        contestants = {}
        for size in sorted(sizes):
            contestants[size] = partial(_time_partition, byoc_core.from_onnx(make_model(kind, size)))
        figures[kind] = tabulate_growth(kind, contestants, num_rounds)
        figures[kind]["peak MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(f"  peak memory of the process: {figures[kind]['peak MiB']} MiB")
    return figures


def _time_partition(module: IRModule) -> dict[str, float]:
    start = time.process_time()
    partitioned = byoc_core.partition(module, BACKENDS, policy=ByCost())
    seconds = time.process_time() - start
    if len(partitioned.functions) == len(module.functions):
        raise RuntimeError("nothing was offloaded")
    return {"partition by cost": seconds}
