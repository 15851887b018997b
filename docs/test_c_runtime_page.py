"""The generated parts of the page of the C runtime."""

from __future__ import annotations

import re

import pytest
from byoc_core.ir import STRUCTURAL_OPS
from byoc_core.ops import default_ops

from docs.c_runtime_page import ROOT, ops_in_c, with_c_runtime

NAME = re.compile(r"`([\w.]+)`")
OPS = "<!-- ops: made by `python -m docs.generate` -->\n<!-- end of ops -->"


def test_ops_with_a_kernel_in_c_are_ops_of_the_core() -> None:
    assert {"add", "topk", "nn.non_max_suppression"} < ops_in_c() <= default_ops().keys()


def test_each_op_has_a_kernel_or_not() -> None:
    page = with_c_runtime(OPS)
    assert with_c_runtime(page) == page
    (missing,) = [line for line in page.splitlines() if line.startswith("Ops of the core without a kernel in C: ")]
    rows = [line.split(" | ")[1] for line in page.splitlines() if line.startswith("| ")][2:]
    in_table = [name for row in rows for name in NAME.findall(row)]
    assert sorted(in_table) == sorted(ops_in_c())
    of_families = default_ops().keys() - {op.name for op in STRUCTURAL_OPS}
    assert sorted([*in_table, *NAME.findall(missing)]) == sorted(of_families)


def test_a_program_is_copied_in_full_or_in_part() -> None:
    full = with_c_runtime(f"{OPS}\n<!-- source: rt/examples/classify.c -->\nOUTDATED\n<!-- end of source -->\n")
    assert f"```c\n{(ROOT / 'rt/examples/classify.c').read_text('utf-8').strip()}\n```" in full
    assert "OUTDATED" not in full
    part = with_c_runtime(f"{OPS}\n<!-- source: rt/examples/ramp.rs, part: The program -->\n<!-- end of source -->\n")
    assert "```rust\nconst BOOL" in part
    assert "extern" not in part


def test_missing_marks_and_parts_are_refused() -> None:
    with pytest.raises(ValueError, match="the page must contain the marks of the table of ops exactly once"):
        with_c_runtime("no marks")
    with pytest.raises(ValueError, match=r"rt/examples/ramp\.rs: has no part `Elsewhere`"):
        with_c_runtime(f"{OPS}\n<!-- source: rt/examples/ramp.rs, part: Elsewhere -->\n<!-- end of source -->")
