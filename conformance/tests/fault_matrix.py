"""Every fault against the whole kit: ``python -m conformance.tests.fault_matrix --jobs 2``.

Each broken backend must be caught by the promises named in the fault, and by no others than allowed by the fault. A run
of the kit takes some seconds, and there are over a hundred faults, so the matrix is not part of the ordinary tests.
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
from byoc_conformance.runner import new_fork_server
from byoc_core.isolation import ForkServer

from conformance.tests.fakenpu_install import FAKES, install_fakenpu

sys.path.insert(0, str(FAKES))

from fakenpu.faults import FAULTS
from fakenpu.faults.fault import Fault

__all__ = ["broken_promises"]

EXAMPLES = 5


def promise_of(item: Item) -> str:
    """Return the name of an item's promise, as cited by faults."""
    return f"{item.promise.level}-{item.promise.name}"


def broken_promises(items: Sequence[Item], fork_server: ForkServer) -> dict[str, str]:
    """Test the installed ``fakenpu``; return the broken promises, each with the text of the first failure."""
    found: dict[str, str] = {}
    with Runner(SubjectSpec("fakenpu", examples=EXAMPLES), fork_server=fork_server) as runner:
        for item in items:
            promise = promise_of(item)
            outcome = None if promise in found else runner.run(item).outcome
            if outcome is not None and outcome.status.is_broken:
                found[promise] = f"{item.id} {outcome.status} {outcome.text}"
    return found


def _run_one(fault: str) -> tuple[str, dict[str, str] | None]:
    """Return a fault and its broken promises, found by a process with the broken backend; ``None`` after a failure."""
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
    """Print a line for each fault, and exit with 1 if a fault is caught by other promises than named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("faults", nargs="*", help="names of faults; all by default")
    options = parser.parse_args()
    if options.inner:
        with new_fork_server() as fork_server:
            print(json.dumps(broken_promises(all_items(), fork_server)))
        return
    names = options.faults or ["", *FAULTS]
    num_wrong = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for fault, broken in pool.map(_run_one, names):
            planted = FAULTS[fault] if fault else Fault(frozenset())
            is_right = broken is not None and planted.is_caught_by(broken)
            num_wrong += not is_right
            print(f"{'ok   ' if is_right else 'WRONG'} {fault or 'no fault'}: {', '.join(sorted(broken or ())) or '-'}")
            for name in sorted((broken or {}).keys() - planted.caught_by):
                print(f"      {'besides' if is_right else 'not expected'}: {(broken or {})[name]}")
            for name in sorted(planted.caught_by - (broken or {}).keys()):
                print(f"      missed by: {name}")
            sys.stdout.flush()
    print(f"{len(names)} runs of {len(all_items())} tests, {num_wrong} wrong")
    sys.exit(num_wrong > 0)


if __name__ == "__main__":
    main()
