"""A layer of attention, and its schedules: blocks of queries, panels, and how many queries do without panels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from byoc_core.dims import Dim
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.attributes import float_of
from byoc_ccompiler.kernels.axes import MAX_WORKERS
from byoc_ccompiler.steps import Step, dtype_of, shape_of
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["AttentionLayer", "AttentionSchedule", "choose_schedule", "offered_schedules"]

_VECTORS, _LINE_NBYTES = 2, 2048
"""Vectors in a row of a panel, and bytes of the scores of a query at hand at once."""

_MAX_SIZE = 512
"""The largest size of a head with the arrays of a block on the stack."""

_FEW_QUERIES = 16
"""Queries of a group reading keys in their places faster than packing keys for more queries."""


@dataclass(frozen=True, slots=True)
class AttentionLayer:
    """The computation: queries ``(batch, heads, steps, size)`` see ``length`` keys of groups of heads.

    Values have ``width`` elements. The scores of a ``stage``, if not empty, are a result. ``has_mask_of_keys`` is
    whether a mask has a number for each key, without a ``stage`` and without a cap on scores.
    """

    dtype: str
    batch: Dim
    heads: Dim
    steps: Dim
    size: Dim
    groups: Dim
    length: Dim
    width: Dim
    stage: str
    has_mask_of_keys: bool

    @property
    def group_queries(self) -> Dim:
        """The queries of a group of heads."""
        return (self.heads // self.groups if self.groups != 0 else 1) * self.steps

    @classmethod
    def of(cls, step: Step) -> AttentionLayer:
        """Return the layer computed by a step."""
        query, (_, groups, length, _), (*_, width), *masks = map(shape_of, step.operands)
        batch, heads, steps, size = query
        stage, is_capped = str(step.binding.attrs["scores"] or ""), bool(float_of(step.binding, "softcap"))
        is_per_key = any((1, 1, 1, *mask)[-3:] == (1, 1, length) for mask in masks)
        has_mask = is_per_key and not stage and not is_capped
        dtype = dtype_of(step.operands[0])
        return cls(dtype, batch, heads, steps, size, groups, length, width, stage, has_mask)


@dataclass(frozen=True, slots=True)
class AttentionSchedule:
    """The schedule of attention: blocks of queries of a single head, shared by threads.

    All numbers above 0 give the same result, but for the order of the sums. The writer does not check the limits named
    below.

    Attributes:
        panel_vectors: vectors in a row of a panel of keys or values.
        queries: queries of a block.
        keys: keys with scores at hand at once, whole panels; all keys if scores are a result.
        folds_mask: whether a mask with a number for each key is a further element of the keys, with 1 in the queries.
            Only for layers with ``has_mask_of_keys``.
        is_on_stack: whether the arrays of a block lie on the stack, not in scratch memory; their sizes are then
            known.
        workers: maximum blocks at once with arrays in scratch memory.
        few_queries: maximum queries of a group of heads reading keys and values in their places, without panels; 0:
            all queries read panels. Only with arrays on the stack.
    """

    panel_vectors: int
    queries: int
    keys: int
    folds_mask: bool
    is_on_stack: bool
    workers: int
    few_queries: int


def choose_schedule(layer: AttentionLayer, unit: VectorUnit) -> AttentionSchedule:
    """Return the schedule of a layer: scores of a block stay in the nearest cache, like arrays of small heads."""
    vectors = _VECTORS if unit.has_vectors else unit.panel_vectors
    is_small = all(isinstance(size, int) and size <= _MAX_SIZE for size in (layer.size, layer.width))
    is_on_stack = unit.has_vectors and is_small and not layer.stage
    return AttentionSchedule(
        panel_vectors=vectors,
        queries=unit.panel_rows(vectors),
        keys=_LINE_NBYTES // dtype_info(layer.dtype).itemsize,
        folds_mask=layer.has_mask_of_keys,
        is_on_stack=is_on_stack,
        workers=MAX_WORKERS if unit.has_vectors else 1,
        few_queries=_FEW_QUERIES if is_on_stack else 0,
    )


def offered_schedules(layer: AttentionLayer, unit: VectorUnit, near: AttentionSchedule) -> Iterator[AttentionSchedule]:
    """Yield schedules near a schedule: more or fewer keys at hand, other tiles, a mask apart from the keys."""

    def with_keys(vectors: int, keys: int) -> AttentionSchedule:
        columns = vectors * unit.lanes(layer.dtype)
        whole_panels = max(1, keys // columns) * columns
        return replace(near, panel_vectors=vectors, queries=unit.panel_rows(vectors), keys=whole_panels)

    yield from (with_keys(near.panel_vectors, keys) for keys in (near.keys * 2, near.keys // 2) if not layer.stage)
    yield from (with_keys(vectors, near.keys) for vectors in (4, 1, 2))
    if layer.has_mask_of_keys:
        yield replace(near, folds_mask=not near.folds_mask)
    if near.few_queries:
        yield replace(near, few_queries=0)
