"""Lowerings of ops to primitives: a function for each family, and a table.

A lowering gives each read result a location in the planner, defers the value, or marks the call as computed together
with a follower. The page of ops for users prints the first sentence of each lowering's docstring, and the paragraphs
beginning with ``Not taken:`` (``docs/dnnl_ops.py``).
"""

from __future__ import annotations

from byoc_dnnl.lowerings.table import LOWERINGS, declines, is_decided, lower

__all__ = ["LOWERINGS", "declines", "is_decided", "lower"]
