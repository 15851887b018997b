"""From where to where in the code each register is needed."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.vm.instructions import Call, Goto, If, Instruction, Ret

__all__ = ["live_intervals", "uses"]


def live_intervals(code: Sequence[Instruction], owners: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Gives the first and last instruction between which each register that owns memory must keep its place.

    A register that holds a value when a loop is entered and is used inside keeps its place until the loop's end,
    because the next round may use it again. What a loop's body writes before it reads is needed within a round only.
    Loops are the jumps backwards, and they nest. Registers that do not occur are left out.

    Args:
        code: of a function.
        owners: by register, the one that owns its memory.

    Cost: linear in the code, plus registers times loops.
    """
    intervals: dict[int, tuple[int, int]] = {}
    for position, instruction in enumerate(code):
        for register in uses(instruction):
            start, _ = intervals.get(owners[register], (position, position))
            intervals[owners[register]] = (start, position)
    # Inner loops end first, so an interval that an inner loop extends is seen by the outer one.
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
    """Gives the registers that an instruction reads, writes or defines."""
    match instruction:
        case Call(args=args, results=results):
            return (*args, *results)
        case Ret(values=values):
            return values
        case If(condition=condition):
            return (condition,)
        case Goto():
            return ()
