"""Code for view ops: mostly none, else copies."""

from __future__ import annotations

from collections.abc import Collection

from byoc_core.ir.module import Binding, Value
from byoc_core.lower.buffers import Buffers
from byoc_core.lower.placement_hints import Sharing
from byoc_core.opset.layout import Layout
from byoc_core.opset.views import ViewRule
from byoc_core.vm.program import RegisterKind

__all__ = ["emit_view_op"]


def emit_view_op(
    binding: Binding, rule: ViewRule, buffers: Buffers, compact: Collection[Value], sharing: Sharing
) -> bool:
    """Give the results of a view op a place, with copies for results in need of a separate place.

    Args:
        binding: the op.
        rule: the view rule of the op.
        buffers: the places of the operands.
        compact: values with a reader requiring C-contiguous memory.
        sharing: whether results may be views of the operand.

    Returns:
        Whether the machine can do this: not if a size is not provably the declared size, or is known too late.
    """
    if rule.joins:
        return _emit_concat(binding, buffers)
    source = buffers.register(binding.operands[0], buffers.domains.home(binding.results[0]))
    layout = buffers.registers.layout(source)
    owner = buffers.registers.owner(source)
    # A register without a planned place has no views, except itself.
    may_share = buffers.registers[owner].kind is RegisterKind.DYNAMIC
    may_share = may_share or sharing >= (Sharing.SAME_SIZE if rule.is_whole else Sharing.PARTS)
    for result, found in zip(binding.results, rule.result_layouts(binding.context(), layout), strict=True):
        view = None if found is None else buffers.registers.view(owner, found, is_written=False)
        may_alias = may_share and found is not None and (found.is_compact or result not in compact)
        if view is not None and may_alias and not buffers.reserve(result):
            buffers.register_of[result] = view
            continue
        target = buffers.buffer(result)
        if view is not None:
            buffers.copy(view, target)
        elif not rule.is_whole or not _copy_as_operand(binding, rule, buffers, source, target):
            return False
    return True


def _emit_concat(binding: Binding, buffers: Buffers) -> bool:
    target = buffers.buffer(binding.result)
    for operand, layout in zip(binding.operands, buffers.operand_layouts(binding, target), strict=True):
        part = _part_view(buffers, target, layout)
        if layout is None or part is None:
            return False
        if not layout.is_empty or 0 in buffers.registers[target].shape:
            buffers.copy(buffers.register(operand, buffers.registers[target].domain), part)
    return True


def _copy_as_operand(binding: Binding, rule: ViewRule, buffers: Buffers, source: int, target: int) -> bool:
    """Copy the operand into the matching elements of the result, through a C-contiguous buffer if necessary."""
    part = _part_view(buffers, target, buffers.operand_layouts(binding, target)[0])
    if part is not None:
        buffers.copy(source, part)
        return True
    operand = binding.operands[0]
    domain = buffers.registers[target].domain
    compact_copy = buffers.allocate(buffers.tensor_type(operand.type, "an operand"), "an operand", domain)
    (layout,) = rule.result_layouts(binding.context(), buffers.registers.layout(compact_copy))
    view = None if layout is None else buffers.registers.view(compact_copy, layout, is_written=False)
    if view is None:
        return False
    buffers.copy(source, compact_copy)
    buffers.copy(view, target)
    return True


def _part_view(buffers: Buffers, register: int, layout: Layout | None) -> int | None:
    if layout is None:
        return None
    return buffers.registers.view(buffers.registers.owner(register), layout, is_written=True)
