"""Layout of a graph in layers, for pictures: every edge leads down, and neighbours are placed close together.

The steps follow Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of Hierarchical System Structures" (1981):
layers by longest path, then each layer is placed by the mean of the neighbours, downwards and upwards in turn. Long
edges get no points of their own on the way.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["lay_out"]

_NUM_SWEEPS = 6


def lay_out(num_nodes: int, edges: Sequence[tuple[int, int]]) -> list[tuple[float, int]]:
    """Return the column, in widths of a node, and the layer of each node.

    Nodes of a layer are at least one column apart; the smallest column is 0.

    Args:
        num_nodes: nodes are named by index.
        edges: pairs of nodes. Edges closing a cycle do not count.

    Cost: ``O((n + e) log n)``.
    """
    order, above, below = _sort(num_nodes, edges)
    layer = [0] * num_nodes
    for node in order:
        layer[node] = max((layer[source] + 1 for source in above[node]), default=0)
    layers: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for node in order:
        layers[layer[node]].append(node)
    column = [0.0] * num_nodes
    for members in layers:
        for index, node in enumerate(members):
            column[node] = index - (len(members) - 1) / 2
    for sweep in range(_NUM_SWEEPS):
        neighbours = below if sweep % 2 else above
        for members in reversed(layers) if sweep % 2 else layers:
            _align_layer(members, neighbours, column)
    left = min(column, default=0.0)
    return [(column[node] - left, layer[node]) for node in range(num_nodes)]


def _sort(num_nodes: int, edges: Sequence[tuple[int, int]]) -> tuple[list[int], list[list[int]], list[list[int]]]:
    """Return the nodes in topological order, and each node's predecessors and successors, ignoring edges of cycles."""
    following: list[list[int]] = [[] for _ in range(num_nodes)]
    waiting = [0] * num_nodes
    for source, target in edges:
        following[source].append(target)
        waiting[target] += 1
    order: list[int] = []
    rank = [-1] * num_nodes
    ready = [node for node in reversed(range(num_nodes)) if not waiting[node]]
    unordered = iter(range(num_nodes))
    while len(order) < num_nodes:
        node = ready.pop() if ready else next(unordered)
        if rank[node] >= 0:
            continue
        rank[node] = len(order)
        order.append(node)
        for target in reversed(following[node]):
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    above: list[list[int]] = [[] for _ in range(num_nodes)]
    below: list[list[int]] = [[] for _ in range(num_nodes)]
    for source, target in edges:
        if rank[source] < rank[target]:
            above[target].append(source)
            below[source].append(target)
    return order, above, below


def _align_layer(members: list[int], neighbours: Sequence[Sequence[int]], column: list[float]) -> None:
    """Move the nodes of a layer as near to the mean of the neighbours as a distance of one column allows.

    The nearest columns by the sum of squares are found by pooling overlapping neighbours (isotonic regression: Ayer et
    al., "An Empirical Distribution Function for Sampling with Incomplete Information", 1955).
    """
    mean_column = {
        node: sum(column[near] for near in neighbours[node]) / len(neighbours[node])
        if neighbours[node]
        else column[node]
        for node in members
    }
    members.sort(key=lambda node: (mean_column[node], column[node]))
    pools: list[list[float]] = []  # for each pool, the sum of the nodes' mean columns, and the number of nodes
    for index, node in enumerate(members):
        pools.append([mean_column[node] - index, 1])
        while len(pools) > 1 and pools[-2][0] * pools[-1][1] >= pools[-1][0] * pools[-2][1]:
            total, count = pools.pop()
            pools[-1][0] += total
            pools[-1][1] += count
    starts = [total / count for total, count in pools for _ in range(int(count))]
    for index, node in enumerate(members):
        column[node] = starts[index] + index
