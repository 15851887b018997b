"""Blocks of networks, compared with their single ops: fusion keeps the meaning."""

from __future__ import annotations

from byoc_conformance.drawing import BLOCK_ROOTS, BYTE_ROOTS, draw_blocks, draw_byte_blocks
from byoc_conformance.outcome import Outcome
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l2_numerics.judged_graphs import hold_to_graphs
from byoc_conformance.subject import Subject

__all__ = ["PROMISES"]


def _compute_blocks(subject: Subject, root: str) -> Outcome:
    seed = subject.spec.seed
    if root in BYTE_ROOTS:
        graphs = draw_byte_blocks(subject.ops, root, seed)
    else:
        graphs = draw_blocks(subject.ops, root, seed, is_dynamic=subject.info.dynamic_shapes)
    return hold_to_graphs(subject, {graph.function.name: graph for graph in graphs})


PROMISES = (
    Promise(
        Level.L2,
        "blocks",
        "computes an op together with typical following ops: biases, residuals, activations, floats and bytes",
        _compute_blocks,
        cases=lambda: (*BLOCK_ROOTS, *BYTE_ROOTS),
        deadline=240.0,
    ),
)
