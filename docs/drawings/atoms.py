"""The atoms of a buffer with views: the buffer of a partitioned function, cut by its views as the verifier does."""

from __future__ import annotations

from collections.abc import Iterable

import byoc_core
from byoc_core.vm.footprints import Footprints
from byoc_core.vm.instructions import Call

from docs.drawings.partition import Npu
from docs.drawings.svg import COLOURS, Box, Canvas

__all__ = ["draw_atoms"]

LEFT, CELL, ROW = 150, 120, 24

MODEL = """
def main(x: R.Tensor((1, 8, 8)), w: R.Tensor((8, 8))):
    d = R.nn.dense(x, w)
    q = R.nn.relu(d)
    a, b = R.split(q, sections=(3, 5), axis=1)
    e = R.exp(a)
    c, f = R.split(b, sections=(2, 3), axis=1)
    g = R.multiply(c, c)
    h = R.exp(g)
    k = R.add(f, f)
    m = R.tanh(k)
    r = R.concat(e, h, m, axis=1)
    return r
"""


def draw_atoms() -> str:
    """Return the drawing, as SVG."""
    program = byoc_core.build(byoc_core.parse(MODEL), [Npu()]).program
    (function,) = program.functions
    footprints = Footprints(program, function)
    registers = program.registers(function)
    canvas = Canvas(
        "Atoms of buffers with views", "Buffers cut by their views, and the atoms read and written by each call."
    )
    y = 16.0
    cut = [number for number in range(function.first_view) if len(footprints.of(number)) > 1]
    for owner in cut:
        atoms = footprints.of(owner)
        views = [number for number, base in enumerate(footprints.owners) if base == owner != number]
        for number in (owner, *views):
            register = registers[number]
            shape = "x".join(map(str, register.shape))
            canvas.text(LEFT - 10, y + ROW / 2, (f"{register} {shape}",), anchor="end", is_bold=number == owner)
            for column, atom in enumerate(atoms):
                cell = Box(LEFT + column * CELL, y, CELL, ROW)
                if atom in footprints.of(number):
                    canvas.rectangle(cell, COLOURS[0] if number == owner else COLOURS[1], radius=0)
                    canvas.text(cell.centre, cell.middle, (f"atom {atom}",))
            y += ROW + 4
        y += 14
    canvas.text(LEFT - 10, y + 8, ("call",), anchor="end", is_bold=True)
    canvas.text(LEFT, y + 8, ("reads",), anchor="start", is_bold=True)
    canvas.text(LEFT + 2 * CELL, y + 8, ("defines",), anchor="start", is_bold=True)
    for call in function.code:
        if isinstance(call, Call):
            y += ROW
            canvas.text(LEFT - 10, y + 8, (program.externs[call.callee],), anchor="end")
            canvas.text(LEFT, y + 8, (_atoms(footprints.of(n) for n in call.args),), anchor="start")
            written = _atoms(footprints.defined_by(n) for n in call.results)
            canvas.text(LEFT + 2 * CELL, y + 8, (written,), anchor="start")
    y += ROW + 8
    canvas.text(
        20,
        y + 8,
        ("Every read atom is defined by an earlier call or is an input: no call reads garbage.",),
        anchor="start",
    )
    return canvas.to_svg()


def _atoms(numbers: Iterable[Iterable[int]]) -> str:
    return ", ".join(map(str, sorted({atom for atoms in numbers for atom in atoms})))
