"""Random graphs as exported C under AddressSanitizer and UBSan, compared with the reference kernels.

    python -m plugins.ccompiler.tests.exported.long_run --count 2000 --seed 0 --jobs 2
    python -m plugins.ccompiler.tests.exported.long_run --count 1 --seed 4711 --keep folder

Graph ``i`` of a run has seed ``seed + i``. The second line repeats a single graph, and keeps the sources and the
program. A run fails after a wrong result, a report of a sanitizer, or too many graphs without a form in C.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from plugins.ccompiler.tests.exported.trial import Tally, try_seeds

_MAX_WITHOUT_FORM = 0.03


def try_all(count: int, seed: int, jobs: int, batch: int) -> Tally:
    """Try the graphs of ``count`` seeds from ``seed`` on, a program for each batch, and print the progress."""
    total, start = Tally(), time.monotonic()
    batches = [range(first, min(first + batch, seed + count)) for first in range(seed, seed + count, batch)]
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(try_seeds, seeds): seeds for seeds in batches}
        for done in as_completed(futures):
            try:
                tally = done.result()
            except Exception as error:
                detail = str(getattr(error, "stderr", None) or "")[:4000]
                seeds = futures[done]
                tally = Tally(failures={seeds[0]: f"batch of seeds {seeds[0]} to {seeds[-1]}: {error}\n{detail}"})
            total.add(tally)
            for text in tally.failures.values():
                print(f"\n{text}", flush=True)
            tried = total.graphs.total()
            print(f"{tried}/{count} graphs, {len(total.failures)} failed, {time.monotonic() - start:.0f} s", flush=True)
    return total


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit status: 1 after a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, help="how many graphs (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first graph (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: all processors)")
    parser.add_argument("--batch", type=int, default=50, help="graphs in a program (default: %(default)s)")
    parser.add_argument("--keep", type=Path, help="a new folder for the program, for a count up to one batch")
    given = parser.parse_args(arguments)
    start = time.monotonic()
    if given.keep:
        given.keep.mkdir(parents=True)
        total = try_seeds(range(given.seed, given.seed + given.count), given.keep.absolute())
        print("".join(f"\n{text}\n" for text in total.failures.values()), end="")
    else:
        total = try_all(given.count, given.seed, given.jobs, given.batch)
    for kind, number in sorted(total.graphs.items()):
        print(f"{number:8} graphs: {kind}")
    for reason, number in total.without_form.most_common():
        print(f"{number:8} without a form in C: {reason}")
    print(
        f"{total.graphs.total()} graphs from seed {given.seed}: {len(total.failures)} failed, "
        f"{total.without_form.total()} without a form in C; {total.ops} ops, {total.kernels} calls of kernels, "
        f"{total.branches} branches, {total.calls} judged calls; {time.monotonic() - start:.0f} s"
    )
    if total.failures:
        print("failing seeds:", *sorted(total.failures))
    too_many = total.without_form.total() > _MAX_WITHOUT_FORM * total.graphs.total()
    return 1 if total.failures or too_many else 0


if __name__ == "__main__":
    sys.exit(main())
