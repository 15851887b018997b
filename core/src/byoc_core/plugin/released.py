"""Distributions released together with byoc-core: the only distributions recommended by byoc itself.

``released.json`` is written by the repository's ``python -m release.metadata`` from the entry points of the packages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

__all__ = ["RELEASED_FILE", "released_distributions"]

RELEASED_FILE = Path(__file__).with_name("released.json")


def released_distributions(group: str) -> Mapping[str, str]:
    """Return the distributions of an entry-point group, by the name of the entry point. Reads a file."""
    groups: dict[str, dict[str, str]] = json.loads(RELEASED_FILE.read_text("utf-8"))
    return groups.get(group, {})
