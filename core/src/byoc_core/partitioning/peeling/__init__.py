"""Peeling: ops without data movement (views of memory) move from regions to the callers."""
