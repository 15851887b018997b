"""``byoc explain`` and ``--require-offload``, seen by the user."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import byoc_core
import onnx
import pytest
from byoc_core import inspect
from byoc_core.artifact import Executable
from onnx import TensorProto, helper

from core.tests.cli.conftest import RunByoc

pytestmark = [pytest.mark.lowest, pytest.mark.asks_for_plugins]

PLUGIN = """
from byoc_core.authoring.graph import GraphCodegen
from byoc_core.backend import BackendInfo, Rejection, Support
from byoc_core.backend.hooks import hookimpl

@hookimpl
def byoc_backend_info():
    return BackendInfo("part", dynamic_shapes=True)

@hookimpl
def byoc_supports(binding):
    name = binding.op.name
    return Support() if name in ("matmul", "add") else Rejection("op", f"there is no kernel for `{name}`")

@hookimpl
def byoc_codegen(functions, context):
    return GraphCodegen().compile(functions, context)
"""

TELLING = (
    PLUGIN.replace('"part"', '"telling"')
    + """
from byoc_core.backend.hooks import KernelReport, SharedLoop

@hookimpl
def byoc_generated_kernels(functions):
    return [
        KernelReport(
            f"kernel_{number}",
            function.attrs["global_symbol"],
            "void kernel(void) {\\n}",
            tuple(binding.op.name for binding in function.walk()),
            tuple(binding.result.name for binding in function.walk()),
            ("for i in 0..8: reads x; writes out",),
            (SharedLoop(8, 2, 24_000_000),),
            128,
            64,
            24_000_000,
        )
        for number, function in enumerate(functions)
    ]
"""
)

KERNELS = """\
telling: 2 kernels in 2 regions, counting n = 1

kernel_0: matmul, add -> lv0, lv1
  function: telling_main_0
  estimate: 128 FLOPs, 64B, 24 us on one thread
  for threads: 8 rounds by 2, 24 us on one thread
  loops:
    for i in 0..8: reads x; writes out
  source:
    void kernel(void) {
    }
"""

SUMMARY = """\
97.1% of 280 FLOPs offloaded, counting n = 1
  part   97.1%        272 FLOPs  3 ops in 2 regions
  host    2.9%          8 FLOPs  1 op in 1 region

why ops stayed on the host:
    2.9%      1 x nn.relu: part: there is no kernel for `nn.relu` [op]
"""


@pytest.fixture
def part(install_backend: Callable[[str, str], Path]) -> str:
    """The name of an installed backend claiming ``matmul`` and ``add``."""
    install_backend("part", PLUGIN)
    return "part"


def ops_listed(text: str, op: str = "") -> list[list[str]]:
    """Return the first words of the table of ops."""
    lines = text.rsplit("Ops", maxsplit=1)[-1].split("Dynamic sizes", maxsplit=1)[0].splitlines()
    return [line.split()[:5] for line in lines if line.startswith(" lv") and op in line]


def test_explain_summarises_then_lists_the_ops(byoc: RunByoc, model: Path, part: str) -> None:
    assert byoc("compile", model, "-o", "m.byoc", "--quiet").code == 0
    for file in (model, "m.byoc"):
        done = byoc("explain", file)
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith(SUMMARY)
        assert ops_listed(done.out) == [
            ["lv0", "matmul", "256", "91.4%", "part"],
            ["lv1", "add", "8", "2.9%", "part"],
            ["lv2", "nn.relu", "8", "2.9%", "host"],
            ["lv3", "add", "8", "2.9%", "part"],
        ]
        lines = [line.split() for line in done.out.splitlines()]
        assert ["n", "input", "main", "input", "`x`,", "axis", "0"] in lines
        host = byoc("explain", file, "--only-host").out
        assert host.startswith(SUMMARY)
        assert [line.split() for line in host.splitlines() if line.startswith(" lv")] == [
            ["lv2", "nn.relu", "8", "2.9%", "host", *["part:", "there", "is", "no", "kernel", "for", "`nn.relu`"]]
        ]
        assert "Dynamic sizes" not in host


@pytest.mark.parametrize("width", [80, 120])
def test_explain_fits_the_terminal(
    byoc: RunByoc, model: Path, part: str, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    done = byoc("explain", model)
    assert max(map(len, done.out.splitlines())) <= width
    assert "lv2" in done.out


def test_explain_lists_the_most_expensive_of_many_ops(byoc: RunByoc) -> None:
    names = [f"v{number}" for number in range(60)]
    kinds = ["Tanh" if number % 2 else "Reciprocal" for number in range(60)]
    nodes = [helper.make_node(kind, [a], [b]) for kind, a, b in zip(kinds, ["x", *names], names, strict=False)]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", names[-1]))
    graph = helper.make_graph(nodes, "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), "long.onnx")
    some = byoc("explain", "long.onnx")
    assert "40 of 60 ops, by FLOPs (--all lists all)" in some.out
    assert len([line for line in some.out.splitlines() if line.startswith(" lv")]) == 40
    every = byoc("explain", "long.onnx", "--only-host", "--all")
    assert len([line for line in every.out.splitlines() if line.startswith(" lv")]) == 60


def test_explain_as_json(byoc: RunByoc, model: Path, part: str) -> None:
    assert byoc("compile", model, "-o", "m.byoc", "--quiet").code == 0
    report = json.loads(byoc("explain", model, "--json").out)
    assert report["schema"] == 2
    assert report == json.loads(byoc("explain", "m.byoc", "--json").out) == inspect("m.byoc").report_data
    assert [row["op"] for row in report["ops"]] == ["matmul", "add", "nn.relu", "add"]
    host = json.loads(byoc("explain", model, "--json", "--only-host").out)
    assert [row["op"] for row in host["ops"]] == ["nn.relu"]
    assert host | {"ops": report["ops"]} == report


def test_explain_shows_the_kernels_that_backends_generate(
    byoc: RunByoc, model: Path, install_backend: Callable[[str, str], Path]
) -> None:
    install_backend("telling", TELLING)
    done = byoc("explain", model, "--kernels")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(KERNELS)
    assert done.out.endswith("\n\nhost: reports no generated kernels\n")
    assert "counting n = 8" in byoc("explain", model, "--kernels", "--dim", "n=8").out
    report = json.loads(byoc("explain", model, "--kernels", "--json").out)
    told = {item["backend"]: item for item in report.pop("kernels")}
    assert report == json.loads(byoc("explain", model, "--json").out)
    assert [kernel["name"] for kernel in told["telling"]["kernels"]] == ["kernel_0", "kernel_1"]
    assert told["telling"]["kernels"][0]["shared_loops"] == [{"rounds": 8, "grain": 2, "ps": 24_000_000}]
    assert told["host"] == {"backend": "host", "kernels": [], "text": "reports no generated kernels"}


def test_explain_prints_ir_that_parses(byoc: RunByoc, model: Path, part: str) -> None:
    done = byoc("explain", model, "--ir")
    assert (done.code, done.err) == (0, "")
    assert "# host 2.9%: part: there is no kernel for `nn.relu` [op]" in done.out
    module = byoc_core.from_onnx(model)
    explained = byoc_core.explain(module, ["part"])
    assert done.out == explained.to_script()
    assert byoc_core.parse(done.out, constants=explained.module.constants) == explained.module


def test_explain_counts_sizes_as_asked(byoc: RunByoc, model: Path, part: str) -> None:
    assert byoc("compile", model, "-o", "m.byoc", "--quiet").code == 0
    for file in (model, "m.byoc"):
        assert byoc("explain", file, "--dim", "n=8").out.startswith("97.1% of 2.24k FLOPs offloaded, counting n = 8\n")
        wrong = byoc("explain", file, "--dim", "m=8")
        text = "error: size `m`: no op's FLOPs depend on this size; expected n\n"
        assert (wrong.code, wrong.out, wrong.err) == (1, "", text)


def test_work_and_memory_are_numbers_at_sizes_that_are_named(byoc: RunByoc, model: Path, part: str) -> None:
    said = {
        ("compile", model, "-o", "m.byoc"): "of 280 FLOPs offloaded, counting n = 1\n",
        ("compile", model, "-o", "m.byoc", "--dim", "n=8"): "of 2.24k FLOPs offloaded, counting n = 8\n",
        ("inspect", "m.byoc"): "of 280 FLOPs offloaded, counting n = 1\n",
        ("inspect", "m.byoc", "--dim", "n=8"): "of 2.24k FLOPs offloaded, counting n = 8\n",
        ("explain", "m.byoc", "--dim", "n=8"): "of 2.24k FLOPs offloaded, counting n = 8\n",
    }
    for command, text in said.items():
        done = byoc(*command)
        assert (done.code, done.err) == (0, "")
        assert text in done.out
        assert re.search(r"\d\*n|n\*\d", done.out) is None, "an expression"
    titles = {"1": byoc("inspect", "m.byoc").out, "8": byoc("inspect", "m.byoc", "--dim", "n=8").out}
    for size, text in titles.items():
        assert f"Bytes in memory for a call, n = {size}\n" in "\n".join(line.rstrip() for line in text.splitlines())
    wrong = byoc("inspect", "m.byoc", "--dim", "m=8")
    assert (wrong.code, wrong.out, wrong.err) == (
        1,
        "",
        "error: --dim m: is not a symbolic size of the artifact; expected n\n",
    )


def test_demo_goes_by_each_backend_alone_and_by_all_together(byoc: RunByoc, part: str) -> None:
    done = byoc("demo", "--backend", "part,host")
    assert (done.code, done.err) == (0, "")
    table = done.out.partition("Selections of backends")[2].splitlines()
    rows = [line.replace(", ", ",").split() for line in table if "%" in line]
    assert [(row[0], row[2]) for row in rows] == [("part", "0"), ("host", "0"), ("part,host", "0")]
    alone = byoc("demo", "--backend", "part").out.partition("Selections of backends")[2]
    assert [line.split()[0] for line in alone.splitlines() if "%" in line] == ["part"]


def test_an_artifact_with_a_report_of_the_older_form_is_explained(byoc: RunByoc, model: Path, part: str) -> None:
    assert byoc("compile", model, "-o", "m.byoc", "--quiet").code == 0
    made = byoc_core.load("m.byoc")
    new = ("schema", "summary", "regions", "borders", "counted_sizes")
    old = {key: value for key, value in made.report_data.items() if key not in new}
    old["ops"] = [{k: v for k, v in row.items() if k not in ("inputs", "reasons")} for row in old["ops"]]
    Executable(made.program, made.modules, made.constants, old).save("old.byoc")
    done = byoc("explain", "old.byoc")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(SUMMARY)
    assert len(ops_listed(done.out)) == 4
    assert json.loads(byoc("explain", "old.byoc", "--json").out) == {"schema": 1, **old}
    assert byoc("explain", "old.byoc", "--require-offload", "98%").code == 1


@pytest.mark.parametrize("rows", [[{}], [{"name": "\x1b[2J", "reasons": 3}, {"op": ["add"]}]])
def test_an_artifact_with_any_report_is_explained(byoc: RunByoc, model: Path, part: str, rows: list[Any]) -> None:
    assert byoc("compile", model, "-o", "m.byoc", "--quiet").code == 0
    made = byoc_core.load("m.byoc")
    Executable(made.program, made.modules, made.constants, {"ops": rows}).save("odd.byoc")
    for options in ((), ("--all",), ("--json",), ("--html", "r.html")):
        done = byoc("explain", "odd.byoc", *options)
        assert done.code == 0
        assert "\x1b" not in done.out


MISSED = """\
error: offload: the offloaded share of the FLOPs is too small, counting n = 1; got 97.1%, expected at least 98%
why ops stayed on the host:
    2.9%      1 x nn.relu: part: there is no kernel for `nn.relu` [op]
"""


def test_a_required_share_of_the_flops(byoc: RunByoc, model: Path, part: str) -> None:
    done = byoc("explain", model, "--require-offload", "0.97")
    assert (done.code, done.err) == (0, "")
    missed = byoc("explain", model, "--require-offload", "98%")
    assert (missed.code, missed.err) == (1, MISSED)
    assert missed.out.startswith(SUMMARY)
    assert byoc("explain", model, "--require-offload", "98%", "--json").code == 1


def test_compile_writes_nothing_where_too_little_is_offloaded(byoc: RunByoc, model: Path, part: str) -> None:
    missed = byoc("compile", model, "-o", "m.byoc", "--require-offload", "0.98")
    assert (missed.code, missed.out, missed.err) == (1, "", MISSED)
    assert not Path("m.byoc").exists()
    done = byoc("compile", model, "-o", "m.byoc", "--require-offload", "97%")
    assert (done.code, done.err) == (0, "")
    assert byoc("explain", "m.byoc", "--require-offload", "97%").code == 0
    again = byoc("explain", "m.byoc", "--require-offload", "98%")
    assert (again.code, again.err) == (1, MISSED)


def test_sizes_count_in_the_gate_of_compile(byoc: RunByoc, model: Path, part: str) -> None:
    missed = byoc("compile", model, "-o", "m.byoc", "--require-offload", "98%", "--dim", "n=8")
    assert (missed.code, missed.err) == (1, MISSED.replace("n = 1", "n = 8"))
    wrong = byoc("compile", model, "-o", "m.byoc", "--require-offload", "98%", "--dim", "k=8")
    assert (wrong.code, wrong.err) == (1, "error: size `k`: no op's FLOPs depend on this size; expected n\n")
    assert not Path("m.byoc").exists()


NO_SHARE = "--require-offload: is not a share; got {!r}, expected 0 to 1, or 0% to 100%"
WRONG = {
    "explain m.onnx --require-offload 120%": NO_SHARE.format("120%"),
    "explain m.onnx --require-offload nan": NO_SHARE.format("nan"),
    "compile m.onnx -o x.byoc --require-offload most": NO_SHARE.format("most"),
    "explain m.onnx --ir --json": "--ir and --json: exclude each other",
    "explain m.onnx --ir --kernels": "--ir and --kernels: exclude each other",
    "explain m.byoc --kernels": "--kernels: does not apply to the compiled model `m.byoc`",
    "explain m.byoc --ir": "--ir: does not apply to the compiled model `m.byoc`",
    "explain m.onnx --dim n": "--dim: is malformed; got 'n', expected NAME=SIZE",
}


@pytest.mark.parametrize("command", WRONG)
def test_what_explain_refuses(byoc: RunByoc, model: Path, artifact: Path, command: str) -> None:
    done = byoc(*command.split())
    assert (done.code, done.out, done.err) == (1, "", f"error: {WRONG[command]}\n")


def test_html_is_a_page_of_its_own_and_replaces_no_model(byoc: RunByoc, model: Path, part: str, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = byoc("explain", model, "--html", page)
    assert done.code == 0
    text = page.read_text("utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert f"<title>{model.name}</title>" in text
    assert "there is no kernel for `nn.relu`" in text
    before = model.read_bytes()
    refused = byoc("explain", model, "--html", model)
    assert (refused.code, model.read_bytes()) == (1, before)
    assert "is the input model" in refused.err
