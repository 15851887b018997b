"""Every fault against the whole kit: ``python -m conformance.tests.fault_matrix --jobs 2``.

Each broken backend must be caught by the promises that its fault names, and by no others than the fault allows. A run
of the kit takes some seconds, and there are over a hundred faults, so this is no part of the ordinary tests.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from byoc_conformance import Item, Runner, SubjectSpec, all_items

from conformance.tests.fakenpu_install import FAKES, install_fakenpu

sys.path.insert(0, str(FAKES))

from fakenpu.faults import FAULTS
from fakenpu.faults.fault import Fault

__all__ = ["broken_promises"]

EXAMPLES = 5


def promise_of(item: Item) -> str:
    """Gives the name of an item's promise, as faults cite it."""
    return f"{item.promise.level}-{item.promise.name}"


def broken_promises(items: Sequence[Item]) -> dict[str, str]:
    """Holds ``fakenpu``, as it is installed, to tests; gives the promises that are broken, each with the first text."""
    found: dict[str, str] = {}
    with Runner(SubjectSpec("fakenpu", examples=EXAMPLES)) as runner:
        for item in items:
            outcome = runner.run(item).outcome
            if outcome.status.is_broken:
                found.setdefault(promise_of(item), f"{item.id} {outcome.status} {outcome.text}")
    return found


def _run_one(fault: str) -> tuple[str, dict[str, str] | None]:
    """Gives a fault and what it broke, found by a process that has the broken backend; ``None`` where that failed."""
    with tempfile.TemporaryDirectory(prefix="fakenpu-") as folder:
        site = install_fakenpu(Path(folder), **(FAULTS[fault].metadata if fault else {}))
        paths = [str(site), str(FAKES), *filter(None, sys.path)]
        environment = {**os.environ, "FAKENPU_FAULT": fault, "PYTHONPATH": os.pathsep.join(paths)}
        command = [sys.executable, "-m", "conformance.tests.fault_matrix", "--inner"]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        print(run.stderr, file=sys.stderr)
        return fault, None
    found: dict[str, str] = json.loads(run.stdout)
    return fault, found


def main() -> None:
    """Prints a line for each fault, and exits with 1 where one is caught by other promises than it names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("faults", nargs="*", help="names of faults; all by default")
    given = parser.parse_args()
    if given.inner:
        print(json.dumps(broken_promises(all_items())))
        return
    chosen = given.faults or ["", *FAULTS]
    num_wrong = 0
    with ThreadPoolExecutor(given.jobs) as pool:
        for fault, broken in pool.map(_run_one, chosen):
            known = FAULTS[fault] if fault else Fault(frozenset())
            is_right = broken is not None and known.is_caught_by(broken)
            num_wrong += not is_right
            print(f"{'ok   ' if is_right else 'WRONG'} {fault or 'no fault'}: {', '.join(sorted(broken or ())) or '-'}")
            for name in sorted((broken or {}).keys() - known.caught_by):
                print(f"      {'besides' if is_right else 'not expected'}: {(broken or {})[name]}")
            for name in sorted(known.caught_by - (broken or {}).keys()):
                print(f"      missed by: {name}")
            sys.stdout.flush()
    print(f"{len(chosen)} runs of {len(all_items())} tests, {num_wrong} wrong")
    sys.exit(num_wrong > 0)


if __name__ == "__main__":
    main()
