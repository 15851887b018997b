"""Output of `byoc compile` on backends of static shapes for a model with symbolic sizes."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from core.tests.cli.conftest import RunByoc
from core.tests.plugin.conftest import Site

pytestmark = [pytest.mark.lowest, pytest.mark.asks_for_plugins]

BACKEND = """
from byoc_core.authoring import GraphCodegen
from byoc_core.backend.hooks import BackendInfo, Support, hookimpl

@hookimpl
def byoc_backend_info():
    return BackendInfo("{name}", dynamic_shapes={is_dynamic})

@hookimpl
def byoc_supports(binding):
    return Support()

@hookimpl
def byoc_codegen(functions, context):
    return GraphCodegen().compile(functions, context)
"""
ADVICE = "takes static shapes only: `--specialize n=1,8` compiles for these sizes, others run on the host"


@pytest.fixture
def backends(byoc: RunByoc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two backends claiming all ops: `fixed` with static shapes, and `moving` with symbolic shapes."""
    site = Site(tmp_path / "site")
    site.folder.mkdir()
    for name in ("fixed", "moving"):
        source = BACKEND.format(name=name, is_dynamic=name == "moving")
        site.install(f"byoc-{name}", f"[byoc.backends]\n{name} = cli_{name}\n", {f"cli_{name}": source})
    monkeypatch.syspath_prepend(str(site.folder))
    monkeypatch.setenv("BYOC_BACKENDS", "fixed,moving")


@pytest.mark.parametrize(
    ("chosen", "size", "options", "taker", "is_advised"),
    [
        ("fixed", "n", (), "host", True),
        ("fixed", "n", ("--quiet",), "host", False),
        ("fixed", "n", ("--specialize", "n=2"), "fixed", False),
        ("fixed", "n", ("--respecializable",), "host", False),
        ("fixed", "n", ("--respecializable", "--specialize", "n=2"), "fixed", False),
        ("fixed", 3, (), "fixed", False),
        ("moving", "n", (), "moving", False),
        ("moving,fixed", "n", (), "moving", False),
        ("fixed,moving", "n", (), "moving", False),
        ("fixed,moving", "n", ("--specialize", "n=2"), "fixed", False),
    ],
)
def test_compile_points_to_specialize_where_the_host_gets_ops_for_want_of_sizes(
    byoc: RunByoc, backends: None, chosen: str, size: str | int, options: tuple[str, ...], taker: str, is_advised: bool
) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [size, 10]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "m.onnx")
    done = byoc("compile", "m.onnx", "-o", "m.byoc", "-b", chosen, *options)
    assert (done.code, done.err) == (0, "")
    assert (f"fixed {ADVICE}" in done.out) == is_advised
    explained = byoc("explain", "m.byoc", "--json")
    assert explained.code == 0
    assert f'"outcome": "{taker}"' in explained.out
