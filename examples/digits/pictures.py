"""Pictures of digits with predictions, and of a partitioned module."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
from byoc_core.ir import Binding, Function, IRModule, Var
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = ("#8ecae6", "#ffb703", "#a7c957", "#cdb4db", "#f4978e")
HOST_COLOUR = "#dddddd"
COLUMNS = 10


def draw_predictions(
    images: npt.NDArray[np.float32],
    labels: npt.NDArray[np.int64],
    predictions: npt.NDArray[np.int64],
    path: Path,
) -> None:
    """Draws 40 digits, the misread ones first, each under its prediction: green where right, red where wrong."""
    chosen = np.argsort(predictions == labels, kind="stable")[: 4 * COLUMNS]
    num_rows = len(chosen) // COLUMNS
    figure = Figure(figsize=(COLUMNS, num_rows * 1.25))
    axes = figure.subplots(num_rows, COLUMNS)
    for axis, index in zip(axes.flat, chosen, strict=True):
        right = predictions[index] == labels[index]
        axis.imshow(images[index, 0], cmap="gray_r", interpolation="nearest")
        title = f"{predictions[index]}" if right else f"{predictions[index]}, is {labels[index]}"
        axis.set_title(title, color="green" if right else "red", fontsize=10)
        axis.axis("off")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def draw_graph(module: IRModule, path: Path) -> None:
    """Draws the function ``main`` of a partitioned module: regions in their backend's colour, host ops in grey."""
    main = module["main"]
    depths = find_depths(main)
    rows: dict[int, list[Binding]] = {}
    for binding in main.bindings:
        rows.setdefault(depths[binding.results[0]], []).append(binding)
    texts = {binding: describe(binding, module.functions) for binding in main.bindings}
    places: dict[Var, tuple[float, float]] = {}
    spread = (len(main.params) - 1) / 2.0
    places.update({param: (index - spread, 0.0) for index, param in enumerate(main.params)})
    width = max([len(main.params), *(len(row) for row in rows.values())])
    height = 0.0
    boxes: list[tuple[float, float, str, str]] = []
    for _, row in sorted(rows.items()):
        lines = max(texts[binding][0].count("\n") + 1 for binding in row)
        height += 0.55 + 0.09 * lines
        for index, binding in enumerate(row):
            x, y = (index - (len(row) - 1) / 2.0), -height
            places.update(dict.fromkeys(binding.results, (x, y)))
            boxes.append((x, y, *texts[binding]))
        height += 0.09 * lines
    figure = Figure(figsize=(3.4 * width + 1.0, 1.3 * height + 1.5))
    axis = figure.subplots()
    for binding in main.bindings:
        for operand in binding.operands:
            if isinstance(operand, Var):
                draw_arrow(axis, places[operand], places[binding.results[0]])
    for param in main.params:
        draw_box(axis, *places[param], f"{param.name}\n{show_type(param)}", "white")
    for x, y, text, colour in boxes:
        draw_box(axis, x, y, text, colour)
    outputs = [(result, name) for result, name in zip(main.results, main.output_names, strict=True)]
    for index, (result, name) in enumerate(outputs):
        if isinstance(result, Var):
            end = (index - (len(outputs) - 1) / 2.0, -height - 0.7)
            draw_arrow(axis, places[result], end)
            draw_box(axis, *end, f"{name}\n{show_type(result)}", "white")
    axis.set_xlim(-width / 2.0 - 0.1, width / 2.0 + 0.1)
    axis.set_ylim(-height - 1.1, 0.4)
    axis.axis("off")
    figure.savefig(path, dpi=100, bbox_inches="tight")


def find_depths(function: Function) -> dict[Var, int]:
    """Gives the number of bindings on the longest way from the inputs to each value."""
    depths: dict[Var, int] = dict.fromkeys(function.params, 0)
    for binding in function.bindings:
        depth = 1 + max((depths[operand] for operand in binding.operands if isinstance(operand, Var)), default=0)
        depths.update(dict.fromkeys(binding.results, depth))
    return depths


def describe(binding: Binding, functions: Mapping[str, Function]) -> tuple[str, str]:
    """Gives a box's text and colour: a region's backend and ops, or a host op's name."""
    callee = functions.get(str(binding.attrs.get("callee")))
    if binding.op.name != "call" or callee is None:
        return f"host\n{binding.op.name}", HOST_COLOUR
    backend = str(callee.attrs.get("Codegen", "host"))
    names = sorted({str(function.attrs["Codegen"]) for function in functions.values() if "Codegen" in function.attrs})
    colour = COLOURS[(names.index(backend)) % len(COLOURS)] if backend != "host" else HOST_COLOUR
    ops = [str(b.attrs["name"]) if b.op.name == "composite" else b.op.name for b in callee.bindings]
    if len(ops) > 12:
        ops = [*ops[:10], f"... {len(ops) - 11} more ...", ops[-1]]
    return "\n".join([f"{backend}: {callee.name}", *ops]), colour


def show_type(var: Var) -> str:
    """Gives a type as dtype and sizes."""
    shape = getattr(var.type, "shape", None)
    return f"{getattr(var.type, 'dtype', var.type)} ({', '.join(map(str, shape or ()))})"


def draw_box(axis: Axes, x: float, y: float, text: str, colour: str) -> None:
    """Draws text in a box about a point."""
    box = {"boxstyle": "round,pad=0.4", "facecolor": colour, "edgecolor": "#444444"}
    axis.text(x, y, text, ha="center", va="center", fontsize=8, family="monospace", bbox=box, zorder=3)


def draw_arrow(axis: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Draws a line below the boxes, with an arrowhead in its middle."""
    middle = ((start[0] + end[0]) / 2.0, (start[1] + end[1]) / 2.0)
    axis.plot([start[0], end[0]], [start[1], end[1]], color="#666666", linewidth=1.0, zorder=1)
    axis.annotate("", xy=middle, xytext=start, arrowprops={"arrowstyle": "-|>", "color": "#666666"}, zorder=1)
