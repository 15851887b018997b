"""Runs the Python code of the README and of every page, each page in a process and a folder of its own."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "core" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^    byoc (.*)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)[^)]*\)")


def write_model(folder: Path) -> None:
    """Writes the ``model.onnx`` that pages read: two dense layers from ``x`` (n, 16) to ``scores`` (n, 4)."""
    rng = np.random.default_rng(0)
    weights = {"w0": (8, 16), "b0": (8,), "w1": (4, 8), "b1": (4,)}
    initializers = [
        numpy_helper.from_array(rng.standard_normal(shape, np.float32), name) for name, shape in weights.items()
    ]
    nodes = [
        helper.make_node("Gemm", ["x", "w0", "b0"], ["h0"], transB=1),
        helper.make_node("Relu", ["h0"], ["h1"]),
        helper.make_node("Gemm", ["h1", "w1", "b1"], ["scores"], transB=1),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 4])
    graph = helper.make_graph(nodes, "model", [x], [scores], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(folder / "model.onnx"))


def name_of(page: Path) -> str:
    """Gives a page's path in the repository."""
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in page.read_text("utf-8")], ids=name_of)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    write_model(tmp_path)
    script = tmp_path / "page.py"
    script.write_text("\n\n".join(BLOCK.findall(page.read_text("utf-8"))), encoding="utf-8")
    command = [sys.executable, "-W", "error", script.name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_commands_of_the_readme_run(tmp_path: Path) -> None:
    write_model(tmp_path)
    commands = COMMAND.findall((ROOT / "README.md").read_text("utf-8"))
    assert commands[0].startswith("compile model.onnx")
    for arguments in commands:
        command = [str(Path(sys.executable).with_name("byoc")), *shlex.split(arguments)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    targets = LINK.findall(FENCE.sub("", page.read_text("utf-8")))
    assert [target for target in targets if not (page.parent / target).exists()] == []
