"""Attention as one tiled kernel: scores, scale, mask, softmax and values of a few queries at a time.

No tensor of scores exists, except as a result. For many queries, keys and values are packed into panels first, once for
all queries. Few queries read keys and values in their places. If the number of queries is known only in a call, the
kernel has both forms.
"""

from __future__ import annotations

from byoc_core.authoring import c
from byoc_core.authoring.csource import FunctionScope
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim, ceildiv, dim_min, product
from byoc_core.ir import Binding

from byoc_ccompiler.family import KernelFamily, any_access
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.attention_in_place import InPlaceAttention, is_readable_in_place
from byoc_ccompiler.kernels.attention_layer import (
    AttentionLayer,
    AttentionSchedule,
    choose_schedule,
    offered_schedules,
)
from byoc_ccompiler.kernels.attention_panels import PanelAttention
from byoc_ccompiler.kernels.copies import loops_around
from byoc_ccompiler.kernels.named_schedules import schedule_as_chosen
from byoc_ccompiler.rejections import operand_shape, reject_non_floats
from byoc_ccompiler.size_checks import require_equal_sizes
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["FAMILY"]


def _reject(binding: Binding) -> Rejection | None:
    """Reject numbers of heads and groups not known to divide."""
    heads, groups = operand_shape(binding, 0)[1], operand_shape(binding, 1)[1]
    are_known = isinstance(heads, int) and isinstance(groups, int)
    # Recognised attention may have any number of heads, with equally many groups, or a known fraction.
    if not are_known and (groups == 0 or heads % groups != 0):
        return Rejection("dynamic-shape", "nn.attention is compiled for a known number of heads only")
    return reject_non_floats(binding)


def _write(kernel: Kernel) -> None:
    """Write the kernel of ``nn.attention``."""
    (step,) = kernel.group.steps
    layer = AttentionLayer.of(step)
    default = choose_schedule(layer, kernel.unit)
    kernel.schedule = schedule = schedule_as_chosen(
        kernel, step, default, lambda: offered_schedules(layer, kernel.unit, default)
    )
    few = schedule.few_queries if is_readable_in_place(kernel, layer, step) else 0
    queries = layer.group_queries
    if few == 0:
        block = _by_panels(kernel, layer, schedule)
    elif isinstance(queries, int):
        block = _in_place(kernel, layer, schedule) if queries <= few else _by_panels(kernel, layer, schedule)
    else:
        # Few queries need no panels, and no memory for panels.
        panels = _by_panels(kernel, layer, schedule, share=dim_min(queries // (few + 1), 1))
        block = (c.If(c.Size(queries).compare(">", few), panels, _in_place(kernel, layer, schedule)),)
    kernel.finish_block(block)


def _by_panels(kernel: Kernel, layer: AttentionLayer, schedule: AttentionSchedule, share: Dim = 1) -> c.Block:
    """Return the loop packing keys and values, and the loop over blocks of queries of a head.

    Args:
        kernel: the kernel of attention.
        layer: the layer.
        schedule: the schedule.
        share: 1, or 0 in calls without panels.
    """
    writer, blocks = PanelAttention(kernel, layer, schedule), ceildiv(layer.steps, schedule.queries)
    items = layer.batch, layer.heads, blocks
    count = product(items)
    packed, workers = product((layer.batch, layer.groups, writer.panels)), dim_min(count, schedule.workers)
    packed = 1 if packed == 0 else packed  # distinct addresses for panels and arrays
    arrays_size = 0 if schedule.is_on_stack else writer.arrays_size
    memory = kernel.scratch_memory(share * (packed + workers * arrays_size), layer.dtype)
    item, worker = c.Variable("item"), c.Variable("worker")
    pair = writer.b * layer.groups + writer.h // (layer.heads // layer.groups if layer.groups != 0 else 1)
    arrays = None if schedule.is_on_stack else c.Address(memory, worker * arrays_size + packed)
    call = writer.call(c.Address(memory, pair * writer.panels), arrays)
    coordinates = zip((writer.b, writer.h, writer.block), c.unravelled(item, items), strict=True)
    body: c.Block = (*(c.Let(*coordinate) for coordinate in coordinates), call)
    index, rounds = item, count
    if not schedule.is_on_stack:
        body = (c.For(item, worker, c.Size(count), body, step=schedule.workers),)
        index, rounds = worker, workers
    return (*writer.packing(memory), *loops_around(body, [index], [rounds], part=0))


def _in_place(kernel: Kernel, layer: AttentionLayer, schedule: AttentionSchedule) -> c.Block:
    """Return the loop over blocks of queries of a group of heads."""
    writer, item = InPlaceAttention(kernel, layer, schedule), c.Variable("item")
    items = layer.batch, layer.groups, ceildiv(layer.group_queries, schedule.queries)
    coordinates = zip((writer.b, writer.g, writer.block), c.unravelled(item, items), strict=True)
    body = (*(c.Let(*coordinate) for coordinate in coordinates), writer.call())
    return loops_around(body, [item], [product(items)], part=0)


def _require(scope: FunctionScope, step: Step) -> None:
    """Require the sizes hidden from the type rules by symbols."""
    query, key, value, *masks = map(shape_of, step.operands)
    require_equal_sizes(scope, step, 1, key, (query[0], *key[1:3], query[3]))
    require_equal_sizes(scope, step, 2, value, (query[0], *key[1:3], value[3]))
    names = step.binding.op.operand_names(len(step.operands))
    for name, mask in zip(names[3:], masks, strict=True):
        scope.require_broadcast(step.op, name, mask, (*query[:3], key[2]))


FAMILY = KernelFamily(
    frozenset({"nn.attention"}), _reject, _write, require=_require, reads=any_access, writes=any_access
)
"""Attention."""
