"""The kernel families: what is accepted of each op, and the C that computes it."""
