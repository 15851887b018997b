"""The passes that every compilation runs first."""

from __future__ import annotations

from byoc_core.transform.dead_code import RemoveDeadCode
from byoc_core.transform.fold_batch_norm import FoldBatchNorm
from byoc_core.transform.fold_constants import FoldConstants
from byoc_core.transform.fold_pad import FoldPad
from byoc_core.transform.fold_shapes import FoldShapes
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.simplify import Simplify

__all__ = ["default_passes"]


def default_passes(*, keep_quantised: bool = False, max_fold_cost: int | None = None) -> tuple[Pass, ...]:
    """Gives the passes that prepare a module for any backends, in order.

    Args:
        keep_quantised: whether quantised constants stay what they are, for a backend that computes on integers.
        max_fold_cost: the most that constant folding may cost; see :class:`FoldConstants`.

    They keep every bit of every result, save for :class:`FoldBatchNorm`, which is exact in real numbers. What makes
    ops that a backend may not know (:class:`RecogniseComposites`) is not among them: a backend that has such ops asks
    for it when it prepares the module. Nor is :class:`MoveTransposes`, which finds something to do only where a
    converter put transposes around ops to change a layout.
    """
    return (
        FoldShapes(),
        FoldConstants(kept=("dequantize",) if keep_quantised else (), max_cost=max_fold_cost),
        Simplify(),
        FoldPad(),
        FoldBatchNorm(),
        RemoveDeadCode(),
    )
