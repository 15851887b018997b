"""Plant faults and test the broken plugins with the kit: ``python -m conformance.tests.planted_faults --jobs 2``.

A fault not caught by any test is a gap of the kit; ``--witness`` shows the inputs missing from the kit. A run of a
single fault takes some seconds, so this is not part of the ordinary tests.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from conformance.tests.planted_faults import FAULTS, PlantedFault
from conformance.tests.planted_faults.planting import copy_plugin, find_catch, hold_copy, show_witness
from conformance.tests.planted_faults.witnesses import WITNESSES

_MAX_TEXT = 150


def _select(names: Sequence[str]) -> list[PlantedFault]:
    """Return the faults of some names or plugins; all where none is named."""
    unknown = set(names) - {name for fault in FAULTS for name in (fault.name, fault.plugin)}
    if unknown:
        sys.exit(f"no such fault or plugin: {', '.join(sorted(unknown))}")
    return [fault for fault in FAULTS if not names or {fault.name, fault.plugin} & set(names)]


def _print_row(word: str, fault: PlantedFault, text: str) -> None:
    print(f"{word} {fault.name:<44} {fault.plugin:<10} {text}")
    sys.stdout.flush()


def _plant(faults: Sequence[PlantedFault], num_parallel: int) -> bool:
    """Print the catching test of each fault; return whether all are caught."""
    num_missed = 0
    with ThreadPoolExecutor(num_parallel) as pool:
        for fault, caught in zip(faults, pool.map(find_catch, faults), strict=True):
            if caught is None:
                _print_row("MISSED", fault, fault.description)
            else:
                _print_row("caught", fault, f"{caught.test}: {caught.text[:_MAX_TEXT]}")
            num_missed += caught is None
    print(f"{len(faults)} faults, {num_missed} not caught")
    return num_missed == 0


def _show(faults: Sequence[PlantedFault], num_parallel: int) -> bool:
    """Print the mistake shown by the witness of each fault; return whether all show a mistake."""
    shown = [fault for fault in faults if fault.name in WITNESSES]
    num_blind = 0
    with ThreadPoolExecutor(num_parallel) as pool:
        for fault, text in zip(shown, pool.map(show_witness, shown), strict=True):
            _print_row("shown " if text else "BLIND ", fault, text.partition("\n")[0][:_MAX_TEXT])
            num_blind += not text
    print(f"{len(shown)} witnesses, {num_blind} without a mistake")
    return num_blind == 0


def _hold_sound(faults: Sequence[PlantedFault]) -> bool:
    """Run all tests named by faults on copies without any fault; return whether all pass."""
    is_sound = True
    for plugin, package in dict.fromkeys((fault.plugin, fault.package) for fault in faults):
        tests = sorted({test for fault in faults if fault.plugin == plugin for test in fault.tests})
        with tempfile.TemporaryDirectory(prefix="planted-") as folder:
            copy_plugin(package, Path(folder))
            red = hold_copy(Path(folder), plugin, package, tests)
        print(f"{plugin} without a fault: {f'{red.test}: {red.text}' if red else 'passes'}")
        is_sound = is_sound and red is None
    return is_sound


def main() -> None:
    """Print a line for each fault, and exit with 1 after an uncaught fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--sound", action="store_true", help="run the named tests on plugins without a fault")
    parser.add_argument("--witness", action="store_true", help="run the witnesses of faults in place of the kit")
    parser.add_argument("names", nargs="*", help="names of faults, or of plugins; all by default")
    options = parser.parse_args()
    faults = _select(options.names)
    if options.sound:
        sys.exit(not _hold_sound(faults))
    sys.exit(not (_show(faults, options.jobs) if options.witness else _plant(faults, options.jobs)))


if __name__ == "__main__":
    main()
