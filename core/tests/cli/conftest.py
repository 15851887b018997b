"""A runner of ``byoc`` in this process, with no plugin except the core's own."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from byoc_core.cli.main import main
from onnx import TensorProto, helper, numpy_helper

from core.tests.plugin.conftest import Site


@dataclass(frozen=True)
class Outcome:
    """The outcome of a command."""

    code: int
    out: str
    err: str


RunByoc = Callable[..., Outcome]
"""Run a command line, given as arguments, and return the outcome."""


@pytest.fixture
def byoc(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    look_again: Callable[[], None],
    own_cache: Path,
) -> RunByoc:
    """Return a function running a command line in an empty folder and returning exit code and texts."""
    monkeypatch.setenv("BYOC_BACKENDS", "none")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("BYOC_DEBUG", raising=False)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def run(*arguments: object) -> Outcome:
        look_again()  # so that the command sees the environment as a new process would
        monkeypatch.setattr("sys.argv", ["byoc", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        captured = capsys.readouterr()
        code = caught.value.code
        assert code is None or isinstance(code, int)
        return Outcome(code or 0, captured.out, captured.err)

    return run


@pytest.fixture
def install_backend(byoc: RunByoc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Return a function installing a module as the only backend of this process and child processes.

    Arguments are the backend's name and the module's source. In the source, ``plugin`` may stand for the backend in
    place of the module. The function returns the folder for ``sys.path``.
    """

    def install(name: str, source: str) -> Path:
        site = Site(tmp_path / "site")
        site.folder.mkdir()
        place = f"cli_{name}:plugin" if "\nplugin = " in source else f"cli_{name}"
        site.install(f"byoc-{name}", f"[byoc.backends]\n{name} = {place}\n", {f"cli_{name}": source})
        monkeypatch.syspath_prepend(str(site.folder))
        monkeypatch.setenv("BYOC_BACKENDS", name)
        return site.folder

    return install


@pytest.fixture
def model(byoc: RunByoc) -> Path:
    """A model in the command's folder: ``y = relu(x @ w + b)``, ``z = y + m``, over a batch of ``n``."""
    generator = np.random.default_rng(0)
    w = numpy_helper.from_array(generator.standard_normal((16, 8)).astype("float32"), "w")
    b = numpy_helper.from_array(generator.standard_normal(8).astype("float32"), "b")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Add", ["h", "b"], ["a"]),
        helper.make_node("Relu", ["a"], ["y"]),
        helper.make_node("Add", ["y", "m"], ["z"]),
    ]
    shapes: dict[str, list[str | int | None]] = {"x": ["n", 16], "m": ["n", 8], "y": ["n", 8], "z": ["n", 8]}
    infos = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()}
    graph = helper.make_graph(nodes, "g", [infos["x"], infos["m"]], [infos["y"], infos["z"]], [w, b])
    path = Path("m.onnx")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture
def artifact(byoc: RunByoc, model: Path) -> Path:
    """The model, compiled for the host."""
    done = byoc("compile", model, "-o", "m.byoc", "--quiet")
    assert (done.code, done.out, done.err) == (0, "", "")
    return Path("m.byoc")
