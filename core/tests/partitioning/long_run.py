"""The laws of partition on many random graphs.

    python -m core.tests.partitioning.long_run --graphs 20000 --seed 1
    python -m core.tests.partitioning.long_run --seed 4711

The second line tries a single graph, and prints the graph on failure. Graph ``i`` of a run has seed ``seed + i``. A
sixteenth of the graphs are also partitioned under constraints, and a sixteenth by cost.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field

from core.tests.partitioning.graphs import SIZES, grow, plan_of_seed
from core.tests.partitioning.trial import (
    check_case,
    check_claims_merged,
    check_composites_alone,
    check_constrained,
    check_placed_by_cost,
)

CHUNK = 50


@dataclass
class Tally:
    """The results of a run.

    Attributes:
        graphs: how many.
        ops: by op name.
        largest: the most ops of a graph.
        regions: how many there were.
        cpu_s: seconds of processor time.
        failures: the failures, by seed.
    """

    graphs: int = 0
    ops: Counter[str] = field(default_factory=Counter)
    largest: int = 0
    regions: int = 0
    cpu_s: float = 0.0
    failures: dict[int, str] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        """Add the results of another process."""
        self.graphs += other.graphs
        self.ops += other.ops
        self.largest = max(self.largest, other.largest)
        self.regions += other.regions
        self.cpu_s += other.cpu_s
        self.failures.update(other.failures)


def try_seeds(seeds: Sequence[int]) -> Tally:
    """Try the graph of each seed."""
    tally, start = Tally(), time.process_time()
    for seed in seeds:
        case = grow(plan_of_seed(seed))
        count = case.count()
        tally.graphs += 1
        tally.ops += count
        tally.largest = max(tally.largest, count.total())
        try:
            tally.regions += check_case(case)
            tally.regions += check_claims_merged(case, sideways=seed % 2 == 0)
            tally.regions += check_composites_alone(case)
            if seed % 16 == 1:
                tally.regions += check_constrained(case, seed)
            elif seed % 16 == 3:
                tally.regions += check_placed_by_cost(case, seed)
        except Exception as error:
            tally.failures[seed] = f"{type(error).__name__}: {error}"
    tally.cpu_s = time.process_time() - start
    return tally


def try_all(graphs: int, seed: int, workers: int) -> Tally:
    """Try the graphs of ``graphs`` seeds from ``seed`` on, in several processes, and print the progress."""
    total = Tally()
    last = time.monotonic()
    chunks = [range(first, min(first + CHUNK, seed + graphs)) for first in range(seed, seed + graphs, CHUNK)]
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(try_seeds, chunk) for chunk in chunks]):
            tally = done.result()
            total.add(tally)
            for failed, problem in sorted(tally.failures.items()):
                print(f"seed {failed}: {problem}", flush=True)
            if time.monotonic() - last > 10:
                last = time.monotonic()
                print(f"{total.graphs}/{graphs} graphs, {len(total.failures)} failed", flush=True)
    return total


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit status: 1 after a broken law."""
    parser = argparse.ArgumentParser(prog="python -m core.tests.partitioning.long_run", description=__doc__)
    parser.add_argument("--graphs", type=int, default=1, help="how many (default: 1)")
    parser.add_argument("--seed", type=int, default=1, help="of the first graph (default: 1)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: cores)")
    options = parser.parse_args(arguments)
    start = time.monotonic()
    if options.graphs == 1:
        total = try_seeds([options.seed])
        if total.failures:
            print(grow(plan_of_seed(options.seed)).claimed())
            print(total.failures[options.seed])
    else:
        shares = ", ".join(f"{percent} % of {low} to {high}" for percent, low, high in SIZES)
        print(f"ops of main: {shares}")
        total = try_all(options.graphs, options.seed, options.workers)
        print("ops:", ", ".join(f"{name} {number}" for name, number in sorted(total.ops.items())))
    print(
        f"{total.graphs} graphs from seed {options.seed}: {len(total.failures)} failed; {total.ops.total()} ops "
        f"(at most {total.largest} in a graph), {total.regions} regions; {time.monotonic() - start:.0f} s, "
        f"{total.cpu_s:.0f} s of CPU time"
    )
    if total.failures:
        print("failing seeds:", *sorted(total.failures))
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
