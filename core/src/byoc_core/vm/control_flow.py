"""Basic blocks of a function's code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from byoc_core.vm.instructions import Call, Goto, If, Instruction, Ret

__all__ = ["BasicBlock", "basic_blocks", "reverse_postorder"]


@dataclass(frozen=True, slots=True)
class BasicBlock:
    """Instructions ``start <= i < stop`` executed in sequence, and the possible successor blocks.

    Attributes:
        successors: indexes of blocks; for an ``if``: the successor for true, then the successor for false.
    """

    start: int
    stop: int
    successors: tuple[int, ...]


def basic_blocks(code: Sequence[Instruction]) -> tuple[BasicBlock, ...]:
    """Return the blocks of code with jump targets in range and a last instruction ``ret`` or ``goto``.

    Block 0 starts at instruction 0. Cost: linear in the code.
    """
    leaders = {0}
    for index, instruction in enumerate(code):
        match instruction:
            case Goto(target=target):
                leaders |= {target, index + 1}
            case If(otherwise=target):
                leaders |= {target, index + 1}
            case Ret():
                leaders.add(index + 1)
            case Call():
                pass
    starts = sorted(leaders - {len(code)})
    block_at = {start: number for number, start in enumerate(starts)}
    blocks = []
    for start, stop in zip(starts, [*starts[1:], len(code)], strict=True):
        match code[stop - 1]:
            case Goto(target=target):
                successors: tuple[int, ...] = (block_at[target],)
            case If(otherwise=target):
                successors = (block_at[stop], block_at[target])
            case Ret():
                successors = ()
            case Call():
                successors = (block_at[stop],)
        blocks.append(BasicBlock(start, stop, successors))
    return tuple(blocks)


def reverse_postorder(blocks: Sequence[BasicBlock]) -> tuple[int, ...]:
    """Return the blocks reachable from block 0, each before its successors as far as loops permit."""
    order: list[int] = []
    seen = {0}
    stack = [(0, iter(blocks[0].successors))]
    while stack:
        number, successors = stack[-1]
        following = next((s for s in successors if s not in seen), None)
        if following is None:
            stack.pop()
            order.append(number)
        else:
            seen.add(following)
            stack.append((following, iter(blocks[following].successors)))
    return tuple(reversed(order))
