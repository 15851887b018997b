"""Run the Python code of the README and of every page, each page in a separate process and folder.

A code block beginning with a file's path as a comment (``# mytext/backend.py``) becomes this file and is not run by
itself; all files of a page are written before the page's code runs. If a ``pyproject.toml`` is among the files, the
entry points of the page's project are installed for the run. Indented lines ``$ byoc ...`` of a lesson are run too,
after the lesson's code.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from byoc_conformance import all_promises
from onnx import TensorProto, helper, numpy_helper

from conformance.tests.new_packages import write_metadata
from core.tests.forked_process import run_script

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "core" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OTHER_PAGES = [*sorted(ROOT.glob("plugins/*/docs/notes/*.md")), *sorted(ROOT.glob("benchmarks/*.md"))]
LESSONS = [*sorted((ROOT / "docs" / "tutorial").glob("[0-9]*.md")), ROOT / "docs" / "whole-graph-engine.md"]
FILE = re.compile(r"^```\w+\n# (\S+\.(?:py|toml))\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^    byoc (.*)$", re.MULTILINE)
LESSON_COMMAND = re.compile(r"^    \$ byoc (.*)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
KIT_ID = re.compile(r"\bL[0-4]-[a-z][a-z-]*[a-z]")
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)[^)]*\)")


def write_model(folder: Path) -> None:
    """Write the ``model.onnx`` read by pages: two dense layers from ``x`` (n, 16) to ``scores`` (n, 4)."""
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


def write_files(text: str, folder: Path) -> None:
    """Write the files shown by a page, and install the project made of these files."""
    for name, content in FILE.findall(text):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    if (folder / "pyproject.toml").exists():
        write_metadata(folder, folder)


def run_blocks(text: str, folder: Path) -> None:
    """Run the blocks of a page, except files."""
    script = folder / "page.py"
    script.write_text("\n\n".join(BLOCK.findall(FILE.sub("", text))), encoding="utf-8")
    done = run_script(script.read_text("utf-8"), file=script)
    assert done.returncode == 0, done.stderr


def run_byoc(arguments: str, folder: Path) -> None:
    """Run a command with the project of a page installed."""
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    command = [str(Path(sys.executable).with_name("byoc")), *shlex.split(arguments)]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def name_of(page: Path) -> str:
    """Return a page's path in the repository."""
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in page.read_text("utf-8")], ids=name_of)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    text = page.read_text("utf-8")
    write_model(tmp_path)
    write_files(text, tmp_path)
    run_blocks(text, tmp_path)
    for arguments in LESSON_COMMAND.findall(text) if page in LESSONS else ():
        run_byoc(arguments, tmp_path)


def test_the_commands_of_the_readme_run(tmp_path: Path) -> None:
    write_model(tmp_path)
    commands = COMMAND.findall((ROOT / "README.md").read_text("utf-8"))
    assert commands[0].startswith("compile model.onnx")
    for arguments in commands:
        run_byoc(arguments, tmp_path)


@pytest.mark.parametrize("page", [*PAGES, *OTHER_PAGES], ids=name_of)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    targets = LINK.findall(CODE.sub("", FENCE.sub("", page.read_text("utf-8"))))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_ids_of_the_kit_that_texts_name_exist() -> None:
    """Examples of expected failures are copied by readers, so an unknown test id would become an error."""
    existing = {f"{promise.level}-{promise.name}" for promise in all_promises()}
    pages = [*PAGES, ROOT / "conformance" / "README.md", ROOT / "conformance" / "src" / "byoc_conformance" / "suite.py"]
    named = {(name_of(page), id_) for page in pages for id_ in KIT_ID.findall(page.read_text("utf-8"))}
    assert len(named) > len(existing)
    assert sorted((page, id_) for page, id_ in named if id_ not in existing) == []
