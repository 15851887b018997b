"""Plans stored as texts, for programs without Python: ``csrc/runtime`` makes the primitives of a plan again.

The text lists the calls of oneDNN that made the objects of a plan, one a line: memory descriptions, primitives,
constants, locations and steps. :mod:`byoc_dnnl.stored.grammar` describes the lines.
"""
