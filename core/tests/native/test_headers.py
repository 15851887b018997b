"""The headers included by generated C and the extension."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from byoc_core.native.toolchain import include_directory

EXTENSION = Path(__file__).parents[2] / "csrc"


def guards(*folders: Path) -> Counter[str]:
    """Return how many headers of some folders define each include guard."""
    texts = (header.read_text("utf-8") for folder in folders for header in sorted(folder.glob("*.h")))
    return Counter(name for text in texts for name in re.findall(r"^#define (BYOC_\w+_H_)$", text, re.MULTILINE))


def test_no_two_headers_have_one_guard() -> None:
    """The second of two headers with the same guard would be empty."""
    found = guards(Path(include_directory()), EXTENSION)
    assert len(found) > 10
    assert [name for name, count in found.items() if count > 1] == []
