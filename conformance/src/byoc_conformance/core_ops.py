"""The ops that every backend is asked about: the core's ops that have canonical cases."""

from __future__ import annotations

from byoc_core.ops import default_ops
from byoc_core.ops.cases import canonical_cases

__all__ = ["core_op_names"]


def core_op_names() -> tuple[str, ...]:
    """Return the names of the core's ops that have canonical cases: what the kit's tests of single ops are named by."""
    return tuple(canonical_cases(default_ops()))
