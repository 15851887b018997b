"""Flags and test programs for exported C under sanitizers."""

from __future__ import annotations

from pathlib import Path

__all__ = ["SANITIZERS", "WARNINGS", "fill_workspace"]

WARNINGS = "-std=c11 -O1 -Wall -Wextra -Werror -pedantic -ffp-contract=off"
SANITIZERS = "-fsanitize=address,undefined -fno-sanitize-recover=all"


def fill_workspace(main: Path) -> None:
    """Make a test program fill the workspace with NaN before each run."""
    text, head = main.read_text(), "static int32_t run(void) {\n"
    assert text.count(head) == 1
    main.write_text(text.replace(head, f"{head}  memset(workspace, 0xff, sizeof workspace);\n"))
