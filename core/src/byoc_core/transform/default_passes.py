"""The first passes of every compilation."""

from __future__ import annotations

from byoc_core.transform.copy_dequantised import CopyDequantised
from byoc_core.transform.dead_code import RemoveDeadCode
from byoc_core.transform.fold_batch_norm import FoldBatchNorm
from byoc_core.transform.fold_constants import FoldConstants
from byoc_core.transform.fold_pad import FoldPad
from byoc_core.transform.fold_shapes import FoldShapes
from byoc_core.transform.fuse_text_counts import FuseTextCounts
from byoc_core.transform.hoist_seeds import HoistSeeds
from byoc_core.transform.lower_einsum import LowerEinsum
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.select_integers import SelectIntegers
from byoc_core.transform.simplify import Simplify
from byoc_core.transform.take_integers import TakeIntegers

__all__ = ["default_passes"]


def default_passes(*, keep_quantised: bool = False, max_fold_cost: int | None = None) -> tuple[Pass, ...]:
    """Return the passes to prepare a module for any backend, in order.

    Args:
        keep_quantised: whether quantised constants stay quantised, with a ``dequantize`` for each reader, and elements
            are selected among integers, for a backend with integer arithmetic.
        max_fold_cost: the upper bound of the cost of constant folding; see :class:`FoldConstants`.

    The passes keep every bit of every result, save for :class:`FoldBatchNorm` and :class:`LowerEinsum`, which are exact
    in real numbers. :class:`RecogniseComposites` is not included because backends may not know the ops made by this
    pass: a backend with these ops requests the pass when preparing the module. :class:`MoveTransposes` is not included
    either: the pass has an effect only if a converter put transposes around ops to change a layout.
    """
    fold_constants = FoldConstants(kept=("dequantize",) if keep_quantised else (), max_cost=max_fold_cost)
    return (
        FoldShapes(),
        fold_constants,
        TakeIntegers(),
        *((SelectIntegers(), fold_constants) if keep_quantised else ()),
        LowerEinsum(),
        Simplify(),
        FoldPad(),
        FuseTextCounts(),
        FoldBatchNorm(),
        RemoveDeadCode(),
        *((CopyDequantised(),) if keep_quantised else ()),
        HoistSeeds(),
    )
