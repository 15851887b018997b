"""Signatures of functions as rows of a table, for ``byoc inspect``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_core.cli.console import new_table

if TYPE_CHECKING:
    from rich.table import Table

    from byoc_core.runtime.module import Signature

__all__ = ["add_signature", "new_signature_table"]


def new_signature_table() -> Table:
    """Return an empty table of functions."""
    return new_table("Functions", "function", "", "name", "dtype", "shape")


def add_signature(table: Table, name: str, signature: Signature) -> None:
    """Add a row for every input and output of a function."""
    roles = [("in", spec) for spec in signature.inputs] + [("out", spec) for spec in signature.outputs]
    for role, spec in roles:
        table.add_row(name, role, spec.name, spec.dtype, f"({', '.join(map(str, spec.shape))})")
        name = ""
