"""Print the first red test as JSON: ``python -m ... FOLDER PLUGIN PACKAGE TEST...``, in a process of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from conformance.tests.planted_faults.planting import find_red


def main() -> None:
    """Print a test and what it saw; ``null`` where all tests pass."""
    folder, plugin, package, *tests = sys.argv[1:]
    print(json.dumps(find_red(Path(folder), plugin, package, tests)))


if __name__ == "__main__":
    main()
