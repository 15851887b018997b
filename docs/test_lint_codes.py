"""The table of the lint's codes agrees with the code."""

from __future__ import annotations

import re
from pathlib import Path

from byoc_core.lint import CODES

ROW = re.compile(r"^\| `([a-z-]+)` \| (error|warning) \| (.*) \|$", re.MULTILINE)


def test_the_page_lists_every_code_of_the_lint_as_the_code_does() -> None:
    rows = ROW.findall(Path(__file__).with_name("write-a-backend.md").read_text("utf-8"))
    assert rows == [(name, code.severity, code.meaning) for name, code in CODES.items()]
