"""Pictures of digits with predictions, and of a partitioned module."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
from byoc_core.ir import Binding, Function, IRModule, Var
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

COLOURS = ("#8ecae6", "#ffb703", "#a7c957", "#cdb4db", "#f4978e")
HOST_COLOUR = "#dddddd"
COLUMNS = 10
DPI = 100


def draw_predictions(
    images: npt.NDArray[np.float32],
    labels: npt.NDArray[np.int64],
    predictions: npt.NDArray[np.int64],
    path: Path,
) -> None:
    """Draw 40 digits, misread digits first, each under its prediction: green if right, red if wrong."""
    drawn_indices = np.argsort(predictions == labels, kind="stable")[: 4 * COLUMNS]
    num_rows = len(drawn_indices) // COLUMNS
    figure = Figure(figsize=(COLUMNS, num_rows * 1.25))
    axes = figure.subplots(num_rows, COLUMNS)
    for axis, index in zip(axes.flat, drawn_indices, strict=True):
        right = predictions[index] == labels[index]
        axis.imshow(images[index, 0], cmap="gray_r", interpolation="nearest")
        title = f"{predictions[index]}" if right else f"{predictions[index]}, is {labels[index]}"
        axis.set_title(title, color="green" if right else "red", fontsize=10)
        axis.axis("off")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def draw_graph(module: IRModule, path: Path) -> None:
    """Draw the function ``main`` of a partitioned module: regions in their backend's colour, host ops in grey."""
    plan_graph(module).savefig(path, dpi=DPI, bbox_inches="tight")


def plan_graph(module: IRModule) -> Figure:
    """Return the figure of :func:`draw_graph`. Each arrow goes from the producer of a value to a reader."""
    main = module["main"]
    depths = find_depths(main)
    rows = [[b for b in main.bindings if depths[b.results[0]] == depth] for depth in sorted({*depths.values()} - {0})]
    texts = {binding: describe(binding, module.functions) for binding in main.bindings}
    width = max([len(main.params), len(main.results), *(len(row) for row in rows)])
    heights = [0.55 + 0.18 * max(texts[binding][0].count("\n") + 1 for binding in row) for row in rows]
    figure = Figure(figsize=(3.4 * width + 1.0, 1.3 * sum(heights) + 1.5), dpi=DPI)
    axis = figure.subplots()
    axis.set_xlim(-width / 2.0 - 0.1, width / 2.0 + 0.1)
    axis.set_ylim(-sum(heights) - 1.1, 0.4)
    axis.axis("off")
    boxes: dict[Var, Text] = {}
    readers: list[tuple[Var, Text]] = []
    for x, param in zip(row_positions(len(main.params)), main.params, strict=True):
        boxes[param] = draw_box(axis, x, 0.0, f"{param.name}\n{show_type(param)}", "white")
    height = 0.0
    for row, row_height in zip(rows, heights, strict=True):
        height += 0.55 / 2 + row_height / 2
        for x, binding in zip(row_positions(len(row)), row, strict=True):
            box = draw_box(axis, x, -height, *texts[binding])
            boxes.update(dict.fromkeys(binding.results, box))
            readers += [(operand, box) for operand in binding.operands if isinstance(operand, Var)]
        height += row_height / 2 - 0.55 / 2
    outputs = zip(row_positions(len(main.results)), main.results, main.output_names, strict=True)
    for x, result, name in outputs:
        if isinstance(result, Var):
            readers.append((result, draw_box(axis, x, -height - 0.7, f"{name}\n{show_type(result)}", "white")))
    figure.draw_without_rendering()  # from here on a box knows its size
    for value, reader in dict.fromkeys(readers):
        draw_arrow(axis, boxes[value], reader)
    return figure


def row_positions(count: int) -> list[float]:
    """Return positions in a row centred at 0, at distance 1."""
    return [index - (count - 1) / 2.0 for index in range(count)]


def find_depths(function: Function) -> dict[Var, int]:
    """Return the number of bindings on the longest path from the inputs to each value."""
    depths: dict[Var, int] = dict.fromkeys(function.params, 0)
    for binding in function.bindings:
        depth = 1 + max((depths[operand] for operand in binding.operands if isinstance(operand, Var)), default=0)
        depths.update(dict.fromkeys(binding.results, depth))
    return depths


def describe(binding: Binding, functions: Mapping[str, Function]) -> tuple[str, str]:
    """Return a box's text and colour: a region's backend and ops, or a host op's name."""
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
    """Return a type as dtype and sizes."""
    shape = getattr(var.type, "shape", None)
    return f"{getattr(var.type, 'dtype', var.type)} ({', '.join(map(str, shape or ()))})"


def draw_box(axis: Axes, x: float, y: float, text: str, colour: str) -> Text:
    """Draw text in a box about a point, and return the text."""
    box = {"boxstyle": "round,pad=0.4", "facecolor": colour, "edgecolor": "#444444"}
    return axis.text(x, y, text, ha="center", va="center", fontsize=8, family="monospace", bbox=box, zorder=3)


def draw_arrow(axis: Axes, maker: Text, reader: Text) -> None:
    """Draw an arrow below the boxes, from the border of the maker to the border of the reader, with the head there."""
    start, end = border_point(axis, maker, reader), border_point(axis, reader, maker)
    style = {"arrowstyle": "-|>", "color": "#666666", "shrinkA": 0.0, "shrinkB": 0.0, "mutation_scale": 14.0}
    axis.annotate("", xy=end, xytext=start, arrowprops=style, zorder=1)


def border_point(axis: Axes, box: Text, other: Text) -> tuple[float, float]:
    """Return the point where the line between two boxes' middles leaves the first; the figure must have been drawn."""
    patch = box.get_bbox_patch()
    assert patch is not None
    extent = patch.get_window_extent().transformed(axis.transData.inverted())
    (x, y), (to_x, to_y) = box.get_position(), other.get_position()
    run, rise = to_x - x, to_y - y
    ratios = [
        half / abs(distance) for half, distance in ((extent.width / 2, run), (extent.height / 2, rise)) if distance
    ]
    part = min([1.0, *ratios])
    return x + part * run, y + part * rise
