"""How ops become primitives: one function for each family, and one table."""

from __future__ import annotations

from byoc_dnnl.lowerings.table import LOWERINGS, declines, is_decided, lower

__all__ = ["LOWERINGS", "declines", "is_decided", "lower"]
