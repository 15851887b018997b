"""The layout of the report's graph."""

from __future__ import annotations

import itertools

from byoc_core.reporting.page.layout import lay_out
from hypothesis import given
from hypothesis import strategies as st


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """Graphs of up to 30 nodes; edges lead anywhere, also back."""
    count = draw(st.integers(0, 30))
    node = st.integers(0, max(count - 1, 0))
    return count, draw(st.lists(st.tuples(node, node), max_size=60)) if count else []


@given(graphs())
def test_nodes_of_a_layer_stand_apart(graph: tuple[int, list[tuple[int, int]]]) -> None:
    places = lay_out(*graph)
    assert len(places) == graph[0]
    layers: dict[int, list[float]] = {}
    for column, layer in places:
        layers.setdefault(layer, []).append(column)
    for columns in layers.values():
        columns.sort()
        assert all(right - left >= 1 - 1e-9 for left, right in itertools.pairwise(columns))
    assert min((column for column, _ in places), default=0.0) == 0


@given(graphs())
def test_every_edge_of_an_acyclic_graph_leads_down(graph: tuple[int, list[tuple[int, int]]]) -> None:
    count, edges = graph
    forward = [(min(edge), max(edge)) for edge in edges if edge[0] != edge[1]]
    places = lay_out(count, forward)
    assert all(places[source][1] < places[target][1] for source, target in forward)
    above = {target: max(places[s][1] for s, t in forward if t == target) for _, target in forward}
    assert all(layer == above.get(node, -1) + 1 for node, (_, layer) in enumerate(places))


def test_a_chain_is_a_straight_line_and_a_diamond_is_symmetric() -> None:
    assert lay_out(3, [(0, 1), (1, 2)]) == [(0, 0), (0, 1), (0, 2)]
    assert lay_out(4, [(0, 1), (0, 2), (1, 3), (2, 3)]) == [(0.5, 0), (0, 1), (1, 1), (0.5, 2)]


def test_branches_do_not_cross() -> None:
    """Two chains side by side keep their sides."""
    places = lay_out(6, [(0, 2), (1, 3), (2, 4), (3, 5)])
    assert places[0][0] == places[2][0] == places[4][0]
    assert places[1][0] == places[3][0] == places[5][0]
