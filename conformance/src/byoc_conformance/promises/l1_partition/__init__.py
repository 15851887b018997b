"""Level 1: honest partition: a backend claims everything declared, and compiles everything claimed."""

from __future__ import annotations

from byoc_conformance.promises.l1_partition import (
    capabilities,
    foreign_ops,
    independence,
    modules,
    ops,
    patterns,
    preparing,
    reasons,
    rewriting,
)

__all__ = ["PROMISES"]

PROMISES = (
    *ops.PROMISES,
    *patterns.PROMISES,
    *capabilities.PROMISES,
    *reasons.PROMISES,
    *independence.PROMISES,
    *modules.PROMISES,
    *foreign_ops.PROMISES,
    *preparing.PROMISES,
    *rewriting.PROMISES,
)
