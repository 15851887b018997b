"""The generated parts of docs/c-runtime.md, each between two marks: programs of ``rt/examples``, and a table of ops.

A program, or a part of a program between two comments ``// ---- Title ----``, stands between

    <!-- source: rt/examples/detect.cpp, part: Title -->
    <!-- end of source -->

The table of ops compares the kernels listed in ``rt/csrc/kernel_table.h`` with the ops of the core.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from byoc_core.opset.families import FAMILIES, ops_of

from docs.markdown import table

__all__ = ["ops_in_c", "with_c_runtime"]

ROOT = Path(__file__).parents[1]
_SOURCE = re.compile(r"(<!-- source: (\S+?)(?:, part: (.+?))? -->).*?(<!-- end of source -->)", re.DOTALL)
_OPS = re.compile(r"(<!-- ops: made by `python -m docs\.generate` -->).*?(<!-- end of ops -->)", re.DOTALL)
_ENTRY = re.compile(r'^\s*OP\("([\w.]+)"', re.MULTILINE)
_LANGUAGES = {".c": "c", ".cpp": "cpp", ".rs": "rust"}


def with_c_runtime(page: str) -> str:
    """Return the page with all programs and the table of ops between the marks.

    Raises:
        ValueError: the marks of the table are missing, or a part of a program.
    """
    if len(_OPS.findall(page)) != 1:
        raise ValueError("the page must contain the marks of the table of ops exactly once")
    page = _SOURCE.sub(lambda found: f"{found[1]}\n\n{_fenced(found[2], found[3])}\n\n{found[4]}", page)
    return _OPS.sub(lambda found: f"{found[1]}\n\n{_ops_table()}\n\n{found[2]}", page)


def ops_in_c() -> set[str]:
    """Return the names of the ops with a kernel in C."""
    return set(_ENTRY.findall((ROOT / "rt" / "csrc" / "kernel_table.h").read_text("utf-8")))


def _fenced(path: str, part: str | None) -> str:
    text = (ROOT / path).read_text("utf-8")
    if part is not None:
        _, found, rest = text.partition(f"// ---- {part} ----\n")
        if not found:
            raise ValueError(f"{path}: has no part `{part}`")
        text = rest.partition("// ---- ")[0]
    return f"```{_LANGUAGES[Path(path).suffix]}\n{text.strip()}\n```"


def _ops_table() -> str:
    """Return the ops without a kernel, and a table of the ops with a kernel by family."""
    present = ops_in_c()
    families = {family.replace("_", " "): list(ops_of(family)) for family in FAMILIES}
    missing = [name for names in families.values() for name in names if name not in present]
    kernels = {family: [name for name in names if name in present] for family, names in families.items()}
    rows = [(family, _list_names(names)) for family, names in kernels.items() if names]
    lines = ["Ops of the core without a kernel in C: " + (_list_names(missing) or "none") + ".", ""]
    return "\n".join([*lines, *table(("family", "ops with a kernel in C"), rows)])


def _list_names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
