"""The child process importing a copy of a plugin: ``python -m ... WHAT FOLDER PLUGIN PACKAGE ...``.

``kit TEST...`` prints the first red test, ``witness FAULT`` the mistake shown by a witness; both as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from byoc_conformance import Level, Runner, SubjectSpec, all_items
from byoc_conformance.choices import choose_items

from conformance.tests.planted_faults.planting import check_origin
from conformance.tests.planted_faults.witness import find_mistake
from conformance.tests.planted_faults.witnesses import WITNESSES


def _find_red(plugin: str, tests: Sequence[str]) -> tuple[str, str] | None:
    """Return the first red test, and the first line of the text; tests run in the order of their patterns."""
    items = {item.id: item for pattern in tests for item in choose_items(all_items(), tuple(Level), [pattern])}
    with Runner(SubjectSpec(plugin)) as runner:
        for item in items.values():
            outcome = runner.run(item).outcome
            if outcome.status.is_broken:
                return item.id, outcome.text.partition("\n")[0]
    return None


def main() -> None:
    """Print a test and the finding, ``null`` if all tests pass; or the mistake of a witness."""
    task, folder, plugin, package, *rest = sys.argv[1:]
    check_origin(Path(folder), package)
    print(json.dumps(_find_red(plugin, rest) if task == "kit" else find_mistake(plugin, WITNESSES[rest[0]])))


if __name__ == "__main__":
    main()
