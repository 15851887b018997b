"""The report as a page: self-contained, trusting no input, and showing the reason on a click. The script runs in V8."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from byoc_core.reporting.page import render_page

from core.tests.opened_page import OpenedPage

REPORT: dict[str, Any] = {
    "backends": [
        {"name": "npu", "regions": 2, "ops": 2, "flops": 900, "share": 0.9},
        {"name": "host", "regions": 0, "ops": 1, "flops": 100, "share": 0.1},
    ],
    "total_flops": 1000,
    "offloaded_share": 0.9,
    "summary": [{"backend": "npu", "code": "dtype", "ops": 1, "flops": 100, "share": 0.1}],
    "borders": [
        {"before": "npu_main_0", "after": "npu_main_1", "code": "would-close-cycle", "ops": ["b"], "text": "a cycle"}
    ],
    "ops": [
        {"function": "main", "op": "nn.conv2d", "name": "a", "outcome": "npu", "region": "npu_main_0", "flops": 800,
         "composite": None, "code": "", "text": "", "share": 0.8, "inputs": ["x"], "reasons": []},
        {"function": "main", "op": "tanh", "name": "b", "outcome": "host", "region": None, "flops": 100,
         "composite": None, "code": "dtype", "text": "npu: no float64", "share": 0.1, "inputs": ["a"],
         "reasons": [
             {"backend": "npu", "pattern": "npu.conv_tanh", "code": "dtype", "text": "no float64", "ops": ["a"]}
         ]},
        {"function": "main", "op": "add", "name": "c", "outcome": "npu", "region": "npu_main_1", "flops": "n*100",
         "composite": "npu.add", "code": "", "text": "", "share": 0.1, "inputs": ["a", "b"], "reasons": []},
    ],
}  # fmt: skip


def open_page(report: dict[str, Any], title: str = "model") -> OpenedPage:
    return OpenedPage(render_page(report, title))


@pytest.fixture
def page() -> OpenedPage:
    return open_page(REPORT)


def test_the_page_needs_nothing_from_anywhere(page: OpenedPage) -> None:
    assert "http" not in page.html.replace("http-equiv", "")
    assert "default-src 'none'" in page.html
    assert not re.search(r"\b(src|href)=", page.html)


def test_ops_are_drawn_in_the_colours_of_their_backends(page: OpenedPage) -> None:
    colours = {entry[1]: entry[0] for entry in page.read("drawn") if len(entry) == 4}
    assert {"nn.conv2d", "a", "tanh", "b", "add", "c", "npu", "host"} == set(colours)  # not by colour alone
    fills = [entry[0] for entry in page.read("drawn") if len(entry) == 2]
    npu, host = fills[0], fills[1]
    assert npu != host
    assert fills == [npu, host, npu]


def test_first_the_page_sums_up(page: OpenedPage) -> None:
    for text in ("npu90.0%22", "npu: dtype10.0%1", "b10.0%npu: no float64"):
        assert text in page.panel


def test_a_click_on_an_op_tells_the_reason(page: OpenedPage) -> None:
    page.act("clickOp('tanh')")
    for text in (
        "tanh b",
        "runs onhost",
        "Reasons for staying on the host",
        "npu, pattern npu.conv_tanh",
        "no float64",
        "dtype",
    ):
        assert text in page.panel
    page.act("clickText(elements.panel, 'a')")  # the op that the reason names
    for text in ("nn.conv2d a", "regionnpu_main_0", "readsx", "read byb, c", "a cycle", "would-close-cycle"):
        assert text in page.panel
    page.act("clickText(elements.panel, 'All ops')")
    assert "Assignment of ops" in page.panel


def test_a_click_beside_the_ops_goes_back(page: OpenedPage) -> None:
    page.act("clickOp('tanh')")
    page.act("elements.canvas.listeners.pointerdown({offsetX: 799, offsetY: 599, pointerId: 1})")
    page.act("elements.canvas.listeners.pointerup({offsetX: 799, offsetY: 599})")
    assert "Assignment of ops" in page.panel


def test_searching_and_the_legend_dim_the_others(page: OpenedPage) -> None:
    page.act("drawn.length = 0; elements.search.value = 'TANH'; elements.search.listeners.input()")
    assert page.read("elements.found.textContent") == "tanh: 1 op"
    assert [entry[1] < 1 for entry in page.read("drawn") if len(entry) == 2] == [True, False, True]
    page.act("elements.search.listeners.keydown({key: 'Enter'})")
    assert "tanh b" in page.panel
    page.act("elements.canvas.listeners.keydown({key: 'Escape'})")
    page.act("const box = elements.legend.children[0].children[0]; box.checked = false; drawn.length = 0")
    page.act("box.listeners.change()")
    assert [entry[1] < 1 for entry in page.read("drawn") if len(entry) == 2] == [True, False, True]


def test_a_row_of_the_summary_lights_its_ops(page: OpenedPage) -> None:
    page.act("drawn.length = 0; clickText(elements.panel, 'npu: dtype')")
    assert page.read("elements.found.textContent") == "dtype: 1 op"
    assert [entry[1] < 1 for entry in page.read("drawn") if len(entry) == 2] == [True, False, True]


def test_dragging_and_the_wheel_move_the_view(page: OpenedPage) -> None:
    before = page.read("[SCALE, OFFSET_X, OFFSET_Y]")
    page.act("elements.canvas.listeners.pointerdown({offsetX: 10, offsetY: 10, pointerId: 1})")
    page.act("elements.canvas.listeners.pointermove({offsetX: 40, offsetY: 30})")
    page.act("elements.canvas.listeners.pointerup({offsetX: 40, offsetY: 30})")
    assert page.read("[SCALE, OFFSET_X, OFFSET_Y]") == [before[0], before[1] + 30, before[2] + 20]
    page.act("elements.canvas.listeners.wheel({deltaY: 100, offsetX: 0, offsetY: 0, preventDefault() {}})")
    assert page.read("SCALE") < before[0]


def test_the_picture_follows_the_size_of_the_canvas(page: OpenedPage) -> None:
    page.act("elements.canvas.clientWidth = 500; drawn.length = 0")
    page.act("observers.filter((pair) => pair[0] === elements.canvas).forEach((pair) => pair[1]())")
    assert page.read("elements.canvas.width") == 500
    assert page.read("drawn.length") > 0


def test_names_that_look_like_markup_stay_text() -> None:
    row = {**REPORT["ops"][1], "name": "</script><b>&", "text": "<img>"}
    page = open_page({**REPORT, "ops": [row]}, title="<i>model</i>")
    assert "<img>" not in page.html.replace("&lt;img&gt;", "")
    assert "<i>" not in page.html
    assert page.data["ops"][0]["name"] == "</script><b>&"
    page.act("clickOp('tanh')")
    assert "</script><b>&" in page.panel


@pytest.mark.parametrize(
    "report",
    [
        {},
        {"ops": None, "backends": 3, "summary": "x", "borders": [1, {}]},
        {"ops": [{}, {"name": 3, "inputs": "ab", "reasons": {"a": 1}, "share": float("nan")}, 7]},
        {"ops": [{"function": "f", "name": "a", "inputs": ["b"]}, {"function": "f", "name": "b", "inputs": ["a"]}]},
    ],
)
def test_a_report_of_any_json_gives_a_page(report: dict[str, Any]) -> None:
    assert "Assignment of ops" in open_page(report).panel


def test_an_edge_over_several_layers_keeps_clear_of_the_ops() -> None:
    names = ["a", "b", "c", "d", "e"]
    rows: list[dict[str, Any]] = [
        {"function": "f", "op": "tanh", "name": n, "outcome": "host", "inputs": [m]} for m, n in pairwise(names)
    ]
    rows[-1]["inputs"] = ["d", "b"]  # `b` is the first op, and two others stand right below it
    page = open_page({"ops": rows})
    (lane,) = page.read("drawn.filter((entry) => entry[0] === 'line').map((entry) => entry[1])")
    (column,) = {node["column"] for node in page.data["ops"]}
    assert column == 0
    assert not 0 <= lane <= 150


def test_the_first_view_shows_ops_however_wide_the_graph() -> None:
    wide = [{"function": "f", "op": "exp", "name": f"w{i}", "outcome": "host", "inputs": ["a"]} for i in range(60)]
    page = open_page({"ops": [{"function": "f", "op": "tanh", "name": "a", "outcome": "host", "inputs": []}, *wide]})
    (x,) = page.read("drawn.filter((entry) => entry[1] === 'tanh').map((entry) => OFFSET_X + entry[2] * SCALE)")
    assert 0 < x < 800
