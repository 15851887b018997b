"""Live ranges of registers in the code."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.vm.instructions import Call, Goto, If, Instruction, Ret

__all__ = ["live_intervals", "uses"]


def live_intervals(code: Sequence[Instruction], owners: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Return the live range (first and last instruction) of each register with memory of its own.

    A register with a value at loop entry and a use inside the loop keeps its place until the end of the loop, because
    the next round may use the value again. A register written by the loop's body before any read is live within a
    round only. Loops are the backward jumps, and loops nest. Registers absent from the code are left out.

    Args:
        code: the instructions of a function.
        owners: for each register, the owner of the memory.

    Cost: linear in the code, plus registers times loops.
    """
    intervals: dict[int, tuple[int, int]] = {}
    for position, instruction in enumerate(code):
        for register in uses(instruction):
            start, _ = intervals.get(owners[register], (position, position))
            intervals[owners[register]] = (start, position)
    # Inner loops end first: the outer loop sees intervals extended by inner loops.
    loops = [
        (instruction.target, position)
        for position, instruction in enumerate(code)
        if isinstance(instruction, Goto) and instruction.target <= position
    ]
    if loops:
        for register, (start, end) in intervals.items():
            for head, tail in loops:
                if start < head <= end < tail:
                    end = tail
            intervals[register] = (start, end)
    return intervals


def uses(instruction: Instruction) -> tuple[int, ...]:
    """Return the registers read, written or defined by an instruction."""
    match instruction:
        case Call(args=args, results=results):
            return (*args, *results)
        case Ret(values=values):
            return values
        case If(condition=condition):
            return (condition,)
        case Goto():
            return ()
