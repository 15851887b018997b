"""The ops asked of every backend: the core's ops with canonical cases."""

from __future__ import annotations

from byoc_core.ops import default_ops
from byoc_core.ops.cases import canonical_cases

__all__ = ["core_op_names"]


def core_op_names() -> tuple[str, ...]:
    """Return the names of the core's ops with canonical cases: the case names of the kit's tests of single ops."""
    return tuple(canonical_cases(default_ops()))
