"""The page of a profile: the numbers of the profile, times of ops, tables and colours. The script runs in V8."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import inf, nan
from time import process_time
from typing import Any

import pytest
from byoc_core.profiling import OpName, PartProfile, Profile, RegionProfile
from byoc_core.profiling.page import render_profile_page
from byoc_core.profiling.program_work import InstructionWork, OpWork
from byoc_core.profiling.recording import CallRecord
from byoc_core.profiling.sums import sum_regions

from core.tests.opened_page import OpenedPage
from core.tests.profiled_toys import MODELS, PEAKS, profile_of

HOSTILE = (
    "</script><img src=x>",
    "\"'><b>",
    "a\x00\x1b[2J\x7fb",
    "\u202egnp.exe",
    "$title ${data}",
    "<!--<script>",
    "\ud800",
)


def row(name: str, op: str = "add", region: str = "npu_main_0", **other: object) -> dict[str, Any]:
    return {"function": "main", "op": op, "name": name, "outcome": "npu", "region": region, "inputs": [], **other}


def made_profile(regions: tuple[RegionProfile, ...], rows: object = (), seconds: float = 1e-2) -> Profile:
    backends = [{"name": "npu", "share": 1.0, "ops": 1, "regions": 1}]
    report = {"ops": list(rows) if isinstance(rows, list | tuple) else rows, "backends": backends}
    return Profile("main", {"n": 3}, 2, 10, seconds, regions, PEAKS, report)


ROWS = (
    row("a", "nn.conv2d", location="net.onnx:Conv_1"),
    row("b", "nn.relu", inputs=["a"]),
    row("c", inputs=["b"]),
    row("d", "tanh", "npu_main_1", inputs=["c"]),
    row("e", "exp", "npu_main_2"),
    row("v", "reshape", ""),
)
FUSED = PartProfile(
    "conv_relu", (OpName("nn.conv2d", "a", "net.onnx:Conv_1"), OpName("nn.relu", "b")), 1, 1.2e-3, 2e6, 5e3
)
HALF, OTHER_HALF = (PartProfile(name, (OpName("add", "c"),), 2, 1e-3) for name in ("left", "right"))
MADE = made_profile(
    (
        RegionProfile("npu_main_0", "npu", 1, 5e-3, 3e6, 800, (FUSED, HALF, OTHER_HALF)),
        RegionProfile("npu_main_1", "npu", 2, 3.4e-3),
    ),
    ROWS,
)


def opened(profile: Profile, title: str = "Profile") -> OpenedPage:
    return OpenedPage(profile.to_html(title))


@pytest.fixture
def page() -> OpenedPage:
    return opened(MADE)


def cells(page: OpenedPage, table: int) -> list[list[str]]:
    """Return the texts of the cells of a table: 0 for regions, 1 for parts."""
    body = f"elements.tables.children[{table}].children[1].children[1]"
    found: list[list[str]] = page.read(f"{body}.children.map((line) => line.children.map((cell) => cell.textContent))")
    return found


def fills(page: OpenedPage) -> list[str]:
    """Return the colours of the ops in a new picture."""
    page.act("drawn.length = 0; elements.canvas.listeners.keydown({key: 'ArrowLeft', preventDefault() {}})")
    return [entry[0] for entry in page.read("drawn") if len(entry) == 2]


def lit(page: OpenedPage) -> list[bool]:
    page.act("drawn.length = 0; elements.canvas.listeners.keydown({key: 'ArrowLeft', preventDefault() {}})")
    return [entry[1] == 1 for entry in page.read("drawn") if len(entry) == 2]


@pytest.mark.parametrize("model", MODELS)
def test_the_data_of_the_page_are_the_profile(model: str) -> None:
    profile = profile_of(model)
    page, data = opened(profile), profile.to_data()
    heat = page.data["heat"]
    assert {op["outcome"] for op in page.data["ops"]} == {"parts", "whole", "host"}
    fields = ("name", "calls", "seconds", "flops", "nbytes", "roofline")
    regions = [*data["regions"], {"name": "(machine)", "calls": 0, "seconds": data["machine_seconds"]}]
    for region, expected in zip(heat["regions"], regions, strict=True):
        assert {key: region[key] for key in fields} == {"flops": 0, "nbytes": 0, "roofline": None} | {
            key: expected[key] for key in fields if key in expected
        }
    parts = [(region, part) for region in data["regions"] for part in region["parts"]]
    assert parts
    for shown, (region, part) in zip(heat["parts"], parts, strict=True):
        assert {key: shown[key] for key in fields} == {key: part[key] for key in fields}
        assert (shown["region"], shown["backend"]) == (region["name"], region["backend"])
        assert [{key: op[key] for key in ("op", "name", "location")} for op in shown["ops"]] == part["ops"]
        for op in shown["ops"]:
            assert page.data["ops"][op["index"]]["name"] == op["name"]
    assert heat["seconds"] == data["seconds"]
    for node in page.data["ops"]:
        names = {op["name"] for position in node["parts"] for op in heat["parts"][position]["ops"]}
        assert node["name"] in names if node["parts"] else names == set()
        if node["outcome"] == "parts":
            assert node["seconds"] == sum(heat["parts"][position]["seconds"] for position in node["parts"]) > 0
        if node["outcome"] == "whole":
            assert node["seconds"] == heat["regions"][node["measured"]]["seconds"] > 0


@pytest.mark.parametrize("model", MODELS)
def test_the_header_names_function_sizes_threads_time_and_limits(model: str) -> None:
    html = profile_of(model).to_html("my <model>")
    header = html.partition("<header>")[2].partition("</header>")[0]
    for text in ("my &lt;model&gt;", "`main` on 1 thread", " per call", "100 GFLOP/s of float32, 10 GB/s of memory"):
        assert text in header
    for name, size in MODELS[model][2].items():
        assert f", {name} = {size}" in header


def test_the_page_needs_no_network(page: OpenedPage) -> None:
    assert "http" not in page.html.replace("http-equiv", "")
    assert "default-src 'none'" in page.html
    assert not re.search(r"\b(src|href)=", page.html)


def test_an_op_of_a_fused_part_names_the_other_ops(page: OpenedPage) -> None:
    page.act("clickOp('nn.relu')")
    for text in ("fused with nn.conv2d a (net.onnx:Conv_1), together 1.200 ms (12.0%)", "partconv_relu"):
        assert text in page.panel
    page.act("clickText(elements.panel, 'nn.conv2d a')")
    for text in ("nn.conv2d a", "originnet.onnx:Conv_1", "fused with nn.relu b, together"):
        assert text in page.panel


def test_an_op_of_several_parts_shows_each_part(page: OpenedPage) -> None:
    page.act("clickOp('c')")
    for text in ("time1.000 ms (10.0%)partleft", "time1.000 ms (10.0%)partright"):
        assert text in page.panel
    assert page.data["ops"][2]["seconds"] == 2e-3


def test_an_op_without_part_shows_the_region(page: OpenedPage) -> None:
    page.act("clickOp('tanh')")
    assert "within npu_main_1, 3.400 ms (34.0%)" in page.panel


@pytest.mark.parametrize("op", ["exp", "reshape"])
def test_an_op_that_did_not_run_shows_no_time(page: OpenedPage, op: str) -> None:
    page.act(f"clickOp('{op}')")
    assert "timenot measured" in page.panel
    assert "within" not in page.panel


def test_an_op_in_no_part_does_not_get_the_time_of_a_region_with_parts() -> None:
    page = opened(made_profile(MADE.regions, [*ROWS, row("z", "sqrt")]))
    page.act("clickOp('sqrt')")
    assert "in no measured part of npu_main_0" in page.panel
    assert page.data["ops"][-1]["seconds"] is None


def test_parts_without_ops_leave_the_time_of_the_region() -> None:
    part = PartProfile("step", (), 1, 1e-3)
    page = opened(made_profile((RegionProfile("npu_main_1", "npu", 1, 2e-3, parts=(part,)),), ROWS))
    assert [node["seconds"] for node in page.data["ops"]] == [None, None, None, 2e-3, None, None]


def test_colours_are_times_and_then_backends(page: OpenedPage) -> None:
    hot = dict(zip((node["name"] for node in page.data["ops"]), fills_by_name(page), strict=True))
    hues = {name: int(colour[4:].partition(",")[0]) for name, colour in hot.items() if colour.startswith("hsl(")}
    assert hues["d"] < hues["c"] < hues["a"] == hues["b"]  # 3.4 ms, 2 ms and 1.2 ms: redder with time
    assert hot["e"] == hot["v"]
    assert hues.keys() == {"a", "b", "c", "d"}
    assert "share of the time" in page.read("elements.legend.textContent")
    assert "1.200 ms" in {entry[1] for entry in page.read("drawn")}  # not by colour alone
    page.act("clickText(elements.legend, 'Colour by backend')")
    assert len(set(fills(page))) == 1
    assert "npu" in {entry[1] for entry in page.read("drawn")}
    assert "share of the time" not in page.read("elements.legend.textContent")
    page.act("clickText(elements.legend, 'Colour by time')")
    assert len(set(fills(page))) == 4


def fills_by_name(page: OpenedPage) -> list[str]:
    """Return the colours of the ops in the order of the report."""
    page.act("drawn.length = 0; elements.canvas.listeners.keydown({key: 'ArrowLeft', preventDefault() {}})")
    names, colours, current = [node["name"] for node in page.data["ops"]], {}, ""
    for entry in page.read("drawn"):
        if len(entry) == 2:
            current = entry[0]
        elif entry[1] in names:
            colours[entry[1]] = current
    return [colours[name] for name in names]


def test_the_tables_show_the_slowest_first_and_sort_by_each_column(page: OpenedPage) -> None:
    assert [line[0] for line in cells(page, 0)] == ["npu_main_0", "npu_main_1", "(machine)"]
    (first, *_) = cells(page, 1)
    assert first == [
        *("conv_relu", "npu", "1", "1.200 ms", "12.0%", "2 M", "1.67 G", "5 k", "2%", "npu_main_0"),
        "nn.conv2d a (net.onnx:Conv_1), nn.relu b",
    ]
    table = "elements.tables.children[1].children[1]"
    heads = page.read(f"{table}.children[0].children[0].children.map((cell) => cell.textContent)")
    assert len(heads) == len(first)
    for position, head in enumerate(heads):
        click = f"{table}.children[0].children[0].children[{position}].children[0].listeners.click({{}})"
        orders = []
        for _ in range(2):
            page.act(click)
            orders.append([line[0] for line in cells(page, 1)])
        assert sorted(orders[0]) == sorted(orders[1]) == ["conv_relu", "left", "right"]
        is_told_apart = head not in ("backend", "region")
        assert (orders[0] != orders[1]) == is_told_apart, head


def test_the_table_of_regions_names_the_time_of_the_machine(page: OpenedPage) -> None:
    assert cells(page, 0)[-1] == ["(machine)", "", "", "1.600 ms", "16.0%", "-", "-", "-", "-"]


def test_a_row_lights_its_ops(page: OpenedPage) -> None:
    page.act("clickText(elements.tables.children[1].children[1].children[1], 'conv_relu')")
    assert page.read("elements.found.textContent") == "part conv_relu: 2 ops"
    assert "nn.conv2d a" in page.panel
    assert sorted(lit(page)) == [False] * 4 + [True] * 2
    page.act("clickText(elements.tables.children[0].children[1].children[1], 'npu_main_1')")
    assert page.read("elements.found.textContent") == "region npu_main_1: 1 op"
    assert sorted(lit(page)) == [False] * 5 + [True]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_are_text(text: str) -> None:
    part = PartProfile(text, (OpName(text, text, text), OpName("add", text)), 1, 1e-3)
    report_row = row(text, text, text, location=text, outcome=text, composite=text, code=text, text=text)
    profile = Profile(text, {text: 1}, 1, 1, 1e-2, (RegionProfile(text, text, 1, 2e-3, parts=(part,)),), PEAKS, {
        "ops": [report_row], "backends": [{"name": text, "share": 1.0}], "borders": [{"before": text, "text": text}],
    })  # fmt: skip
    html = profile.to_html(text)
    plain = opened(MADE).html
    tags = re.compile(r"</?[a-zA-Z!][^>\s]*")
    outside = re.compile(r'(?<=id="data">).*?(?=</script>)', re.DOTALL)
    assert tags.findall(outside.sub("", html)) == tags.findall(outside.sub("", plain))
    assert "<" not in outside.findall(html)[0]
    assert all(char.isprintable() or char == "\n" for char in html)
    html.encode()
    page = OpenedPage(html)
    page.act("elements.tables.children[1].children[1].children[1].children[0].listeners.click({})")
    shown = page.data["ops"][0]["name"]
    assert shown.isprintable()
    assert shown == text or not text.isprintable()
    assert page.panel.startswith(f"{shown} {shown}")
    assert f"fused with add {shown}, together 1.000 ms" in page.panel
    assert page.data["ops"][0]["parts"] == [0]


@pytest.mark.parametrize("rows", [(), None, 3, [1, {}], [{"region": 3, "op": [], "name": nan}]])
def test_any_report_gives_a_page(rows: object) -> None:
    page = opened(made_profile(MADE.regions, rows))
    assert [line[0] for line in cells(page, 1)] == ["conv_relu", "left", "right"]
    page.act("clickText(elements.tables.children[1].children[1].children[1], 'conv_relu')")
    assert page.read("elements.found.textContent") == "part conv_relu: 0 ops"


@pytest.mark.parametrize("rows", [(), ROWS])
def test_a_profile_without_regions(rows: tuple[Mapping[str, Any], ...]) -> None:
    page = opened(made_profile((), rows))
    assert cells(page, 0) == [["(machine)", "", "", "10.000 ms", "100.0%", "-", "-", "-", "-"]]
    assert cells(page, 1) == []
    assert [node["seconds"] for node in page.data["ops"]] == [None] * len(rows)


@pytest.mark.parametrize("seconds", [0.0, nan, inf])
def test_odd_times_are_valid_numbers_in_the_page(seconds: float) -> None:
    region = RegionProfile("npu_main_1", "npu", 1, seconds, 1, 1)
    page = opened(made_profile((region,), ROWS, seconds=seconds))
    assert page.data["heat"]["seconds"] == 0
    assert page.data["ops"][3]["seconds"] == 0
    assert cells(page, 0)[0][3] == "0.00 us"


def test_a_page_of_very_many_ops_and_parts() -> None:
    count = 30_000
    rows = [row(f"v{i}", inputs=[f"v{i - 1}"]) for i in range(count)]
    parts = tuple(PartProfile(f"k{i}", (OpName("add", f"v{i}"),), 1, 1e-9 * (i + 1)) for i in range(count))
    start = process_time()
    html = render_profile_page(made_profile((RegionProfile("npu_main_0", "npu", 1, 5.1, parts=parts),), rows, 6.0))
    assert process_time() - start < 20  # 1 s is usual; work growing with the square takes minutes
    page = OpenedPage(html)
    assert page.read("elements.tables.children[1].children[1].children[1].children.length") < 1000
    assert cells(page, 1)[0][0] == f"k{count - 1}"
    before = len(cells(page, 1))
    page.act("clickText(elements.tables.children[1].children[2], 'Show more')")
    assert len(cells(page, 1)) == 2 * before


def test_one_part_of_very_many_ops() -> None:
    count = 20_000
    names = tuple(OpName("add", f"v{i}") for i in range(count))
    region = RegionProfile("npu_main_0", "npu", 1, 1e-3, parts=(PartProfile("all", names, 1, 1e-3),))
    page = opened(made_profile((region,), [row(name.value) for name in names]))
    page.act("clickText(elements.tables.children[1].children[1].children[1], 'all')")
    assert f"and {count - 9} more, together 1.000 ms" in page.panel


class ManyOps:
    """The work of a region with many ops, each reading the op before."""

    def __init__(self, count: int) -> None:
        self.count = count

    def instruction(self, function: str, index: int) -> InstructionWork:
        return InstructionWork("r", "npu")

    def ops_of(self, region: str) -> list[OpWork]:
        return [
            OpWork(OpName("add", f"v{i}"), frozenset([f"v{i - 1}"]), frozenset([f"v{i}"]), 1, 4, 4)
            for i in range(self.count)
        ]

    def outputs_of(self, region: str) -> frozenset[str]:
        return frozenset([f"v{self.count - 1}"])


def test_sums_of_very_many_parts() -> None:
    count = 50_000
    pairs = [f"add v{2 * i}\nadd v{2 * i + 1}" for i in range(count // 2)]
    events = [(0, None, None, 0, count), *((0, f"k{i}", ops, i, i + 1) for i, ops in enumerate(pairs))]
    record = CallRecord(0, count, tuple(("main", event) for event in events))
    start = process_time()
    (region,), _ = sum_regions([record], ManyOps(count))  # type: ignore[arg-type]
    assert process_time() - start < 20  # 0.5 s are usual; work growing with the square takes minutes
    assert {part.nbytes for part in region.parts} == {4 + 4}  # the value passed inside the part does not count
