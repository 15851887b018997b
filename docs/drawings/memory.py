"""The arena of a program: planned tensors by instruction and offset, from the storage plan of a compiled function."""

from __future__ import annotations

import byoc_core
from byoc_core.dims import Dim
from byoc_core.vm.instructions import Call
from byoc_core.vm.program import VMFunction, nbytes_of

from docs.drawings.partition import Npu
from docs.drawings.svg import COLOURS, GREY, Box, Canvas

__all__ = ["draw_memory"]

MODEL = """
def main(x: R.Tensor((64, 32)), w1: R.Tensor((128, 32)), w2: R.Tensor((64, 128)), w3: R.Tensor((64, 64))):
    d1 = R.nn.dense(x, w1)
    r1 = R.nn.relu(d1)
    t1 = R.tanh(r1)
    d2 = R.nn.dense(t1, w2)
    r2 = R.nn.relu(d2)
    t2 = R.tanh(r2)
    d3 = R.nn.dense(t2, w3)
    r3 = R.nn.relu(d3)
    t3 = R.tanh(r3)
    s = R.add(t3, t2)
    c = R.concat(s, r2, axis=1)
    e = R.exp(c)
    m = R.multiply(e, t1)
    return m
"""
LEFT, TOP, COLUMN, HEIGHT = 90, 60, 92, 420
KIB = 1024


def draw_memory() -> str:
    """Return the drawing, as SVG."""
    program = byoc_core.build(byoc_core.parse(MODEL), [Npu()]).program
    (function,) = program.functions
    arena = _static(function.storages[0])
    canvas = Canvas(
        "The arena of a program", "Each tensor of the arena by its live range and offset: tensors share bytes."
    )
    calls = [instruction for instruction in function.code if isinstance(instruction, Call)]
    canvas.text(LEFT + len(calls) * COLUMN / 2, 16, ("calls of the function, in order",))
    for number, call in enumerate(calls):
        x = LEFT + number * COLUMN
        canvas.text(x + COLUMN / 2, TOP - 18, (program.externs[call.callee].replace("_main", ""),))
        canvas.line((x, TOP), (x, TOP + HEIGHT), colour=GREY)
    scale = HEIGHT / arena
    for offset in range(0, arena + 1, arena // 4):
        canvas.text(LEFT - 8, TOP + offset * scale, (f"{offset // KIB} KiB",), anchor="end")
        canvas.line((LEFT, TOP + offset * scale), (LEFT + len(calls) * COLUMN, TOP + offset * scale), colour=GREY)
    for index, (first, last) in _live_ranges(function).items():
        tensor = function.tensors[index]
        nbytes = _static(nbytes_of(tensor.shape, tensor.dtype))
        area = Box(
            LEFT + first * COLUMN + 3, TOP + tensor.offset * scale, (last - first + 1) * COLUMN - 6, nbytes * scale
        )
        is_workspace = tensor.dtype == "uint8"
        canvas.rectangle(area, COLOURS[0] if is_workspace else COLOURS[1])
        lines = (f"t{index}", "workspace" if is_workspace else f"{nbytes // KIB} KiB")
        canvas.text(area.centre, area.middle - 8, lines)
    total = sum(_static(nbytes_of(t.shape, t.dtype)) for t in function.tensors)
    canvas.text(
        LEFT,
        TOP + HEIGHT + 26,
        (f"The arena has {arena // KIB} KiB for {total // KIB} KiB of tensors.",),
        anchor="start",
    )
    return canvas.to_svg()


def _live_ranges(function: VMFunction) -> dict[int, tuple[int, int]]:
    """Return the first and the last instruction using each planned tensor."""
    start = len(function.params) + len(function.results) + len(function.constants)
    ranges: dict[int, tuple[int, int]] = {}
    for position, call in enumerate(function.code):
        if isinstance(call, Call):
            for register in (*call.args, *call.results):
                if 0 <= register - start < len(function.tensors):
                    first, _ = ranges.get(register - start, (position, position))
                    ranges[register - start] = first, position
    return ranges


def _static(size: Dim) -> int:
    assert isinstance(size, int)
    return size
