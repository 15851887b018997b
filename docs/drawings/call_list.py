"""The call list of a program: each instruction, and whether the C extension or Python runs the instruction."""

from __future__ import annotations

import byoc_core
from byoc_core.vm.instructions import Call

from docs.drawings.road import BACKENDS, make_model
from docs.drawings.svg import COLOURS, GREY, Box, Canvas

__all__ = ["draw_call_list"]

LEFT, WIDTH, ROW = 60, 300, 34


def draw_call_list() -> str:
    """Return the drawing, as SVG."""
    executable = byoc_core.build(byoc_core.from_onnx(make_model()), BACKENDS)
    (function,) = executable.program.functions
    owners = {name: module for module in executable.modules for name in module.function_names}
    canvas = Canvas("A call list", "The instructions of a program, run by the C extension or by Python.")
    x = {True: LEFT, False: LEFT + WIDTH + 80}
    canvas.box(x[True] + WIDTH / 2, 12, ("C extension, one native call",), width=WIDTH)
    canvas.box(x[False] + WIDTH / 2, 12, ("Python, called back",), width=WIDTH)
    previous: Box | None = None
    for number, instruction in enumerate(function.code):
        text, is_native = "return", True
        if isinstance(instruction, Call):
            name = executable.program.externs[instruction.callee]
            text, is_native = f"call {name}", owners[name].find_function(name).native is not None
        box = Box(x[is_native], 60 + number * (ROW + 14), WIDTH, ROW)
        canvas.rectangle(box, COLOURS[1] if is_native else GREY)
        canvas.text(box.centre, box.middle, (text,))
        canvas.text(LEFT - 20, box.middle, (f"{number}",))
        if previous is not None:
            canvas.arrow((previous.centre, previous.bottom), (box.centre, box.y))
        previous = box
    return canvas.to_svg()
