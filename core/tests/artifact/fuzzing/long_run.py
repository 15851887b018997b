"""Many mutants of artifacts, loaded and run.

    python -m core.tests.artifact.fuzzing.long_run --mutants 20000 --seed 1
    python -m core.tests.artifact.fuzzing.long_run --mutants 1 --seed 4711 --keep mutant.byoc

Mutant ``i`` of a run has seed ``seed + i``: the second line repeats a single mutant and writes the mutant to a file.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from core.tests.artifact.fuzzing.child import artifacts
from core.tests.artifact.fuzzing.folder import Folder
from core.tests.artifact.fuzzing.parent import fuzz, new_corpus


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=2000, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="the first one (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: all processors)")
    parser.add_argument("--keep", type=Path, help="write the first mutant to this file")
    given = parser.parse_args()
    start = time.monotonic()
    with new_corpus() as folder:
        corpus = Folder.read(folder)
        if given.keep:
            given.keep.write_bytes(artifacts(corpus, given.seed, 0)[1])
        tally = fuzz(folder, range(-len(corpus.attacks), given.mutants), seed=given.seed, jobs=given.jobs)
    for name, count in sorted(tally.origins.items()):
        print(f"{count:8} of {name}")
    for name, count in sorted(tally.outcomes.items()):
        print(f"{count:8} {name}")
    for number, text in sorted(tally.faults.items()):
        what = f"seed {given.seed + number}" if number >= 0 else f"attack {-1 - number}"
        print(f"\n{what}: " + text.strip("'").replace("\\n", "\n"))
    print(f"{tally.count} mutants, {len(tally.faults)} faults, {time.monotonic() - start:.0f} s")
    sys.exit(bool(tally.faults))


if __name__ == "__main__":
    main()
