"""Printing C alone does not import the reference kernels."""

from __future__ import annotations

from core.tests.fresh_process import answer_of

SCRIPT = """
import json, sys
from byoc_core.authoring import c
before = sorted(name for name in sys.modules if name.startswith(("byoc_core.kernels", "byoc_core.opset")))
c.interpret
after = [name for name in sys.modules if name.startswith("byoc_core.opset")]
print(json.dumps([before, bool(after)]))
"""


def test_the_kernels_are_imported_with_the_interpreter() -> None:
    assert answer_of(SCRIPT) == [[], True]
