"""Lowerings of ops to primitives: a function for each family, and a table."""

from __future__ import annotations

from byoc_dnnl.lowerings.table import LOWERINGS, declines, is_decided, lower

__all__ = ["LOWERINGS", "declines", "is_decided", "lower"]
