"""Trial data for backends: cases of ops, values and graphs, drawn from seeds."""

from byoc_conformance.drawing.blocks import BLOCK_ROOTS, draw_blocks
from byoc_conformance.drawing.byte_blocks import BYTE_ROOTS, draw_byte_blocks
from byoc_conformance.drawing.graphs import DrawnGraph, draw_graph, graph_ops
from byoc_conformance.drawing.onnx_cases import NodeCase, node_cases, node_groups
from byoc_conformance.drawing.seeds import generator_of
from byoc_conformance.drawing.trials import Trial, canonical_trials, drawn_trials, near_trials
from byoc_conformance.drawing.values import POSITIVE_OPERANDS, REGIMES, draw_array, draw_operands, to_positive

__all__ = [
    "BLOCK_ROOTS",
    "BYTE_ROOTS",
    "POSITIVE_OPERANDS",
    "REGIMES",
    "DrawnGraph",
    "NodeCase",
    "Trial",
    "canonical_trials",
    "draw_array",
    "draw_blocks",
    "draw_byte_blocks",
    "draw_graph",
    "draw_operands",
    "drawn_trials",
    "generator_of",
    "graph_ops",
    "near_trials",
    "node_cases",
    "node_groups",
    "to_positive",
]
