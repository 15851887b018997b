"""A partitioned graph: the function of ``how-partition-decides.md``, its regions, and the path forbidding a join."""

from __future__ import annotations

import byoc_core
from byoc_core.authoring.graph import GraphCodegen
from byoc_core.backend.hooks import BackendInfo, CodegenResult, CompileContext, Rejection, Support, hookimpl
from byoc_core.ir import Binding, Function, IRModule, Var
from byoc_core.pattern import CompositePattern, is_op, wildcard

from docs.drawings.svg import COLOURS, GREY, Box, Canvas

__all__ = ["draw_partition"]

MODEL = """
def main(x: R.Tensor((8, 8)), w: R.Tensor((8, 8))):
    d = R.nn.dense(x, w)
    r = R.nn.relu(d)
    a = R.add(r, x)
    t = R.tanh(a)
    m = R.multiply(t, a)
    return m
"""
REASON = (
    "Red: a value read by the second region. A path leaves the first region for",
    "the host and comes back to `multiply`. If both regions were one, this region",
    "would read a result of `tanh`, and `tanh` a result of the region: a cycle.",
)
RED, BLUE = "#c1121f", "#1d6fa5"
STEP, WIDTH = 72, 144


class Npu:
    """A backend with kernels for additions, products, and a dense layer with ReLU."""

    @hookimpl
    def byoc_backend_info(self) -> BackendInfo:
        """Return the name."""
        return BackendInfo("npu")

    @hookimpl
    def byoc_patterns(self) -> list[CompositePattern]:
        """Return the pattern of the dense layer."""
        return [CompositePattern("npu.dense_relu", is_op("nn.relu")(is_op("nn.dense")(wildcard(), wildcard())))]

    @hookimpl
    def byoc_supports(self, binding: Binding) -> Support | Rejection:
        """Accept additions and products."""
        is_accepted = binding.op.name in {"add", "multiply"}
        return Support() if is_accepted else Rejection("op", f"there is no kernel for {binding.op.name}")

    @hookimpl
    def byoc_codegen(self, functions: list[Function], context: CompileContext) -> CodegenResult:
        """Compile to a graph document."""
        return GraphCodegen().compile(functions, context)


def draw_partition() -> str:
    """Return the drawing, as SVG."""
    module = byoc_core.parse(MODEL)
    main = module["main"]
    partitioned = byoc_core.partition(module, [Npu()])
    regions = _owners(partitioned)
    canvas = Canvas("A partitioned graph", "Two regions of a backend, with an op of the host between the regions.")
    boxes: dict[str, Box] = {}
    for number, param in enumerate(main.params):
        boxes[param.name] = canvas.box(170 - 110 * number, 12, (param.name,), width=60)
    for number, binding in enumerate(main.bindings):
        name = binding.results[0].name
        lines = (binding.op.name, f"result {name}")
        boxes[name] = canvas.box(140, 86 + STEP * number, lines, COLOURS[1] if name in regions else GREY, width=WIDTH)
        for operand in dict.fromkeys(value.name for value in binding.operands if isinstance(value, Var)):
            is_cut = name in regions and operand in regions and regions[name] != regions[operand]
            _connect(canvas, boxes[operand], boxes[name], is_cut=is_cut)
    for region in dict.fromkeys(regions.values()):
        members = [box for name, box in boxes.items() if regions.get(name) == region]
        outline = Box(54, members[0].y - 14, 172, members[-1].bottom - members[0].y + 28)
        canvas.rectangle(outline, stroke=BLUE, is_dashed=True)
        canvas.text(outline.right + 80, outline.middle, (f"region `{region}`",), anchor="start", colour=BLUE)
    for name, box in boxes.items():
        if name not in regions and box.width == WIDTH:
            canvas.text(box.right + 94, box.middle, ("on the host: the backend has no kernel",), anchor="start")
    canvas.text(20, max(box.bottom for box in boxes.values()) + 40, REASON, anchor="start", colour=RED)
    return canvas.to_svg()


def _owners(module: IRModule) -> dict[str, str]:
    """Return the region of each op in a region, by the name of the op's result."""
    owners: dict[str, str] = {}
    for function in module.functions.values():
        if "Codegen" in function.attrs:
            pending = list(function.bindings)
            while pending:
                binding = pending.pop()
                owners.update(dict.fromkeys((result.name for result in binding.results), function.name))
                pending += (inner for region in binding.regions for inner in region.bindings)
    return owners


def _connect(canvas: Canvas, source: Box, target: Box, *, is_cut: bool) -> None:
    if is_cut:
        x = source.right + 60
        canvas.arrow(
            (source.right, source.middle + 10),
            (x, source.middle + 10),
            (x, target.middle),
            (target.right, target.middle),
            colour=RED,
        )
    elif target.y - source.bottom > STEP:
        x = source.right + 36 if source.right > target.right else target.right + 36
        start = (source.right, source.middle)
        canvas.arrow(start, (x, source.middle), (x, target.middle), (target.right, target.middle))
    else:
        x = min(max(source.centre, target.x + 10), target.right - 10)
        canvas.arrow((x, source.bottom), (x, target.y))
