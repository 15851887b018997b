"""``byoc plan``: tables, JSON and the drawing of a model's arena."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import byoc_core
import onnx
import pytest
from byoc_core.authoring.graph import GraphCodegen
from byoc_core.backend.hooks import BackendInfo, CodegenResult, CompileContext, Rejection, Support, hookimpl
from byoc_core.cli.memory_drawing import draw_memory_maps
from byoc_core.ir import Binding, Function
from byoc_core.runtime.memory import MemoryDomain, Pool
from byoc_core.vm.memory_map import MemoryMap
from onnx import TensorProto, helper

from core.tests.cli.conftest import RunByoc
from core.tests.cli.test_cli_explain import PLUGIN
from core.tests.devices.toys import DeviceToy

pytestmark = [pytest.mark.lowest, pytest.mark.asks_for_plugins]

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def part(install_backend: Callable[[str, str], Path]) -> str:
    """The name of an installed backend claiming ``matmul`` and ``add``."""
    install_backend("part", PLUGIN)
    return "part"


def test_plan_shows_the_buffers_and_the_sums(byoc: RunByoc, model: Path, part: str) -> None:
    assert byoc("compile", model, "-o", "m.byoc", "--quiet").code == 0
    found = byoc_core.load("m.byoc").memory_map(sizes={"n": 8})
    assert len(found.buffers) > 1
    rows = [[b.name, b.nbytes, b.first, b.last, b.offset, b.purpose.value, b.writer] for b in found.buffers]
    sums = f"""
arena          {found.arena_nbytes}
lower bound    {found.peak_nbytes}, the peak of live bytes
ratio          1.000
without reuse  {found.total_nbytes}
constants      544, shared by all calls
inputs         768
outputs        512
"""
    for file in (model, "m.byoc"):
        done = byoc("plan", file, "--dim", "n=8")
        assert (done.code, done.err) == (0, "")
        lines = done.out.splitlines()
        assert lines[0].rstrip() == f"Buffers of `main`, {found.num_instructions} instructions, n = 8"
        assert [line.split() for line in lines if line.startswith(" t")] == [list(map(str, row)) for row in rows]
        assert sums in done.out


def test_json_is_the_memory_map(byoc: RunByoc, model: Path, part: str) -> None:
    assert byoc("compile", model, "-o", "m.byoc", "--quiet").code == 0
    done = byoc("plan", model, "--dim", "n=8", "--json")
    assert (done.code, done.err) == (0, "")
    report = json.loads(done.out)
    assert report == json.loads(byoc("plan", "m.byoc", "--dim", "n=8", "--json").out)
    (function,) = report.pop("functions")
    assert report == {"schema": 1, "sizes": {"n": 8}, "constants_nbytes": 544, "constant_pools": [], "copies": []}
    found = byoc_core.inspect("m.byoc").memory_map(sizes={"n": 8})
    assert found == byoc_core.load("m.byoc").memory_map(sizes={"n": 8})
    buffers = function.pop("buffers")
    assert [(b["name"], b["nbytes"], b["first"], b["last"], b["offset"]) for b in buffers] == [
        (b.name, b.nbytes, b.first, b.last, b.offset) for b in found.buffers
    ]
    assert {b["purpose"] for b in buffers} == {"intermediate", "workspace"}
    assert function == {
        "name": "main",
        "domain": "host",
        "pool": None,
        "limit_nbytes": None,
        "num_instructions": found.num_instructions,
        "alignment": 64,
        "arena_nbytes": found.arena_nbytes,
        "lower_bound_nbytes": found.peak_nbytes,
        "ratio": 1.0,
        "total_nbytes": found.total_nbytes,
        "input_nbytes": 768,
        "output_nbytes": 512,
    }


def test_a_missing_size_is_named(byoc: RunByoc, model: Path, part: str) -> None:
    assert byoc("compile", model, "-o", "m.byoc", "--quiet").code == 0
    for file in (model, "m.byoc"):
        done = byoc("plan", file)
        text = "error: --dim: the plan depends on n; expected --dim n=SIZE\n"
        assert (done.code, done.out, done.err) == (1, "", text)
        done = byoc("plan", file, "--dim", "n=8", "--dim", "m=8")
        assert (done.code, done.err) == (1, "error: --dim m: is not a symbolic size of the inputs; expected n\n")


def test_a_model_without_an_arena_needs_no_sizes(byoc: RunByoc) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in ("x", "y"))
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), "relu.onnx")
    done = byoc("plan", "relu.onnx")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("`main` needs no arena\narena          0\n")
    assert "inputs         16*n\n" in done.out
    (function,) = json.loads(byoc("plan", "relu.onnx", "--json").out)["functions"]
    assert (function["input_nbytes"], function["ratio"], function["buffers"]) == ("16*n", 1.0, [])


WRONG = {
    "plan m.byoc --backend host": "--backend and --option: do not apply to the compiled model `m.byoc`",
    "plan m.byoc --policy cost": "--policy: does not apply to the compiled model `m.byoc`",
    "plan m.byoc --max-nodes 3": "--max-nodes and --max-fold-cost: do not apply to the compiled model `m.byoc`",
    "plan m.onnx --dim n": "--dim: is malformed; got 'n', expected NAME=SIZE",
    "plan m.onnx -o m.onnx": "--output: `m.onnx` is the input model",
    "plan m.onnx -o nowhere/plan.svg": "--output: the folder `nowhere` does not exist",
}


@pytest.mark.parametrize("command", WRONG)
def test_what_plan_refuses(byoc: RunByoc, model: Path, artifact: Path, command: str) -> None:
    done = byoc(*command.split())
    assert (done.code, done.out, done.err) == (1, "", f"error: {WRONG[command]}\n")


def test_the_drawing_is_written_beside_the_table(byoc: RunByoc, model: Path, part: str) -> None:
    done = byoc("plan", model, "--dim", "n=8", "-o", "plan.svg")
    assert (done.code, done.err) == (0, "wrote plan.svg\n")
    assert done.out == byoc("plan", model, "--dim", "n=8").out
    root = ET.fromstring(Path("plan.svg").read_text("utf-8"))
    assert root.tag == f"{SVG}svg"
    assert root.findtext(f"{SVG}title") == "Memory plan of m.onnx"


MODEL = """
def main(x: R.Tensor((64, 64)), w: R.Tensor((64, 64))):
    a = R.exp(x)
    b = R.add(a, w)
    c = R.tanh(b)
    d = R.add(c, b)
    e = R.add(d, a)
    f = R.exp(e)
    return f
"""


class Sums:
    """A backend with a kernel for additions."""

    @hookimpl
    def byoc_backend_info(self) -> BackendInfo:
        return BackendInfo("sums")

    @hookimpl
    def byoc_supports(self, binding: Binding) -> Support | Rejection:
        return Support() if binding.op.name == "add" else Rejection("op", "no kernel")

    @hookimpl
    def byoc_codegen(self, functions: list[Function], context: CompileContext) -> CodegenResult:
        return GraphCodegen().compile(functions, context)


def sums_map() -> MemoryMap:
    """Return a map with several buffers: `sums` takes the additions, the host the other ops."""
    return byoc_core.build(byoc_core.parse(MODEL), [Sums()]).memory_map()


def rectangles(group: ET.Element) -> dict[str, tuple[float, ...]]:
    """Return the rectangle of each buffer by the text of its title."""
    found = {}
    for item in group.iter(f"{SVG}g"):
        title, rectangle = item.find(f"{SVG}title"), item.find(f"{SVG}rect")
        if title is not None and rectangle is not None:
            name = str(title.text).partition(":")[0]
            found[name] = tuple(float(rectangle.get(key, "nan")) for key in ("x", "y", "width", "height"))
    return found


def test_rectangles_lie_at_instructions_and_addresses() -> None:
    found = sums_map()
    assert len(found.buffers) > 1
    arena: Any = found.arena_nbytes
    root = ET.fromstring(draw_memory_maps("two & more <maps>", [found, found]))
    assert root.findtext(f"{SVG}title") == "two & more <maps>"
    first, second = root.findall(f"{SVG}g")
    assert first.get("transform") != second.get("transform")
    boxes = rectangles(first)
    assert boxes == rectangles(second)
    assert list(boxes) == [buffer.name for buffer in found.buffers]
    column = max(560, 60 * found.num_instructions) / found.num_instructions
    for buffer, (x, y, width, height) in zip(found.buffers, boxes.values(), strict=True):
        nbytes, offset = int(str(buffer.nbytes)), int(str(buffer.offset))
        assert x == pytest.approx(buffer.first * column, abs=0.1)
        assert width == pytest.approx((buffer.last - buffer.first + 1) * column, abs=0.1)
        assert height == pytest.approx(nbytes / arena * 420, abs=0.1)
        assert y + height == pytest.approx(420 - offset / arena * 420, abs=0.15)
    live = first.find(f"{SVG}polyline")
    assert live is not None
    points = [tuple(map(float, point.split(","))) for point in str(live.get("points")).split()]
    heights = [420 - y for _, y in points]
    assert heights == pytest.approx([n / arena * 420 for n in found.live_nbytes() for _ in (0, 1)], abs=0.1)
    assert max(heights) == pytest.approx((found.peak_nbytes or 0) / arena * 420, abs=0.1)
    texts = [text.text for text in first.iter(f"{SVG}text")]
    assert found.buffers[0].name in texts
    assert f"lower bound {found.peak_nbytes:,} bytes" in texts


def test_names_in_a_drawing_are_printable() -> None:
    found = sums_map()
    text = draw_memory_maps("a\x1b[2J\x00b", [found])
    assert "\x1b" not in text
    assert ET.fromstring(text).tag == f"{SVG}svg"


def test_a_map_without_buffers_can_be_drawn() -> None:
    text = draw_memory_maps("empty", [MemoryMap("main", (), 0, 1)])
    assert "arena 0 bytes" in text


def test_each_domain_has_a_plan_and_each_copy_a_reason(byoc: RunByoc) -> None:
    text = 'def main(x: R.Tensor(("n", 3))):\n    a = R.negative(x)\n    h = R.floor(a)\n    b = R.exp(h)\n    return b'
    executable = byoc_core.build(byoc_core.parse(text), [DeviceToy()])
    executable.save("m.byoc")
    done = byoc("plan", "m.byoc", "--dim", "n=8", "-o", "plan.svg")
    assert (done.code, done.err) == (0, "wrote plan.svg\n")
    assert "Buffers of `main` in `npu`, 8 instructions, n = 8" in done.out
    rows = [line.split() for line in done.out.splitlines()]
    assert ["0", "96", "host", "npu", "input", "`x`", "`npu_main_0`"] in rows
    assert ["2", "96", "npu", "host", "`npu_main_0`", "`host_main_0`"] in rows
    assert "function main in npu: arena" in Path("plan.svg").read_text("utf-8")
    report = json.loads(byoc("plan", "m.byoc", "--dim", "n=8", "--json").out)
    assert [function["domain"] for function in report["functions"]] == ["host", "npu"]
    assert [copy["instruction"] for copy in report["copies"]] == [0, 2, 4, 6]
    assert report["copies"][1] == {
        "function": "main",
        "instruction": 2,
        "nbytes": 96,
        "source": "npu",
        "target": "host",
        "value": "`npu_main_0`",
        "readers": ["`host_main_0`"],
    }


def test_each_pool_of_the_host_has_a_plan_as_in_exported_c(byoc: RunByoc, model: Path, part: str) -> None:
    assert byoc("compile", model, "-o", "m.byoc", "--quiet").code == 0
    whole = byoc_core.inspect("m.byoc").memory_map(sizes={"n": 8})
    largest = max(buffer.nbytes for buffer in whole.buffers if isinstance(buffer.nbytes, int))
    pools = ("--pool", f"sram={largest}", "--pool", "dram=any:128", "--pool", "flash=1000:read")
    done = byoc("plan", "m.byoc", "--dim", "n=8", *pools, "-o", "plan.svg")
    assert (done.code, done.err) == (0, "wrote plan.svg\n")
    report = json.loads(byoc("plan", "m.byoc", "--dim", "n=8", *pools, "--json").out)
    sram, dram = report["functions"]
    assert (sram["pool"], sram["limit_nbytes"], dram["pool"], dram["limit_nbytes"]) == ("sram", largest, "dram", None)
    assert sram["lower_bound_nbytes"] <= sram["arena_nbytes"] <= largest
    buffers = [(pool["alignment"], buffer) for pool in (sram, dram) for buffer in pool["buffers"]]
    assert sram["buffers"]
    assert dram["buffers"]
    assert sorted(b["name"] for _, b in buffers) == sorted(b.name for b in whole.buffers)
    assert all(buffer["offset"] % alignment == 0 for alignment, buffer in buffers)
    assert f"function main, pool sram of {largest:,} bytes: arena" in Path("plan.svg").read_text("utf-8")
    assert "Buffers of `main`, pool `dram`" in done.out
    done = byoc("plan", "m.byoc", "--dim", "n=8", "--pool", "sram=64")
    assert (done.code, done.err.startswith("error: ")) == (1, True)
    assert "pool `sram`" in done.err
    done = byoc("plan", "m.byoc", "--dim", "n=8", "--pool", "dram=any", "--pool", "flash=10:read")
    message = "error: pool `flash`: too small for the constants of the model; got 10 bytes, expected 544 bytes\n"
    assert (done.code, done.err) == (1, message)


def test_each_pool_of_a_device_has_a_plan(byoc: RunByoc) -> None:
    text = """def main(x: R.Tensor((8, 3))):
    a = R.add(x, R.const([1, 2, 3], "float32"))
    h = R.floor(a)
    b = R.exp(h)
    return b"""
    rom = Pool("rom", 256, accesses=frozenset({"read"}))
    domain = MemoryDomain("npu", pools=(Pool("sram", 128), Pool("dram"), rom))
    byoc_core.build(byoc_core.parse(text), [DeviceToy(domain=domain)]).save("m.byoc")
    done = byoc("plan", "m.byoc", "-o", "plan.svg")
    assert (done.code, done.err) == (0, "wrote plan.svg\n")
    assert "Buffers of `main` in `npu`, pool `sram`" in done.out
    assert "constants in `npu`, pool `rom`: 12 of 256 bytes, shared by all calls" in done.out
    report = json.loads(byoc("plan", "m.byoc", "--json").out)
    found = [(item["domain"], item["pool"], item["limit_nbytes"]) for item in report["functions"]]
    assert found == [("host", None, None), ("npu", "sram", 128), ("npu", "dram", None)]
    assert report["constant_pools"] == [{"domain": "npu", "pool": "rom", "nbytes": 12, "limit_nbytes": 256}]
    assert "function main in npu, pool sram of 128 bytes: arena" in Path("plan.svg").read_text("utf-8")


def test_overlapping_buffers_are_found_in_a_map() -> None:
    found = sums_map()
    assert found.find_overlap() is None
    moved = tuple(replace(buffer, offset=0) for buffer in found.buffers)
    first, second = replace(found, buffers=moved).find_overlap() or ("", "")
    assert first != second
    assert {first, second} <= {buffer.name for buffer in found.buffers}
