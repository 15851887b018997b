"""A placement problem and its optimum: the costs of each item at each label, the moves, and the chosen labels."""

from __future__ import annotations

from byoc_core.partitioning.policies.forest import label_forest
from byoc_core.partitioning.policies.placement import Flow, PlacementProblem

from docs.drawings.svg import COLOURS, Box, Canvas

__all__ = ["draw_forest", "make_problem"]

LABELS = ("host", "gpu", "npu")
ITEMS = ("conv", "relu", "sort", "pool", "dense")
POSITIONS = ((2, 0), (1, 1), (1, 2), (3, 1), (3, 2))
"""Column and row of each item."""
RED = "#c1121f"
CELL, ROW, STEP_X, STEP_Y = 48, 22, 100, 150


def make_problem() -> PlacementProblem:
    """Return a tree of five items: a convolution read by two branches."""
    inf = float("inf")
    costs = ((90, 20, 8), (10, 4, 2), (30, 12, inf), (25, 6, inf), (60, 9, 14))
    moves = ((0, 10, 10), (10, 0, 5), (10, 5, 0))
    flows = (Flow(0, (1, 3), moves), Flow(1, (2,), moves), Flow(3, (4,), moves))
    return PlacementProblem(costs, (0,) * len(costs), flows, ({},) * len(LABELS))


def draw_forest() -> str:
    """Return the drawing, as SVG."""
    problem = make_problem()
    labels, is_optimum = label_forest(problem)
    cheapest = [min(range(len(LABELS)), key=row.__getitem__) for row in problem.costs]
    canvas = Canvas("Placement by dynamic programming", "A tree of ops with the cost of each op at each backend.")
    boxes = []
    for item, (name, (column, row)) in enumerate(zip(ITEMS, POSITIONS, strict=True)):
        x, y = 30 + column * STEP_X, 40 + row * STEP_Y
        canvas.text(x + 1.5 * CELL, y - 10, (name,), is_bold=True)
        for label, cost in enumerate(problem.costs[item]):
            cell = Box(x + label * CELL, y, CELL, 2 * ROW)
            canvas.rectangle(cell, COLOURS[2] if labels[item] == label else "#ffffff", radius=0)
            canvas.text(cell.centre, cell.y + ROW / 2, (LABELS[label], "-" if cost == float("inf") else f"{cost}"))
        boxes.append(Box(x, y, 3 * CELL, 2 * ROW))
    for flow in problem.flows:
        for reader in flow.readers:
            source, target = boxes[flow.producer], boxes[reader]
            move = flow.moves[labels[flow.producer]][labels[reader]]
            canvas.arrow(
                (source.centre, source.bottom), (target.centre, target.y - 20), colour=RED if move else "#222222"
            )
            middle = (source.centre + target.centre) / 2, (source.bottom + target.y - 20) / 2
            canvas.text(middle[0] + 10, middle[1], (f"move {move}" if move else "no move",), anchor="start")
    bottom = max(box.bottom for box in boxes) + 34
    lines = (
        "A value moves once to a backend, for all its readers there.",
        f"Green: the labelling found, cost {problem.cost(labels)}" + ", the optimum." * is_optimum,
        f"Every op at its cheapest label: cost {problem.cost(cheapest)}, because of more moves.",
    )
    canvas.text(30, bottom, lines, anchor="start")
    return canvas.to_svg()
