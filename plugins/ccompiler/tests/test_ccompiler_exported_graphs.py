"""Random graphs as exported C in one program under sanitizers; planted faults are reported."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from plugins.ccompiler.tests.exported.graphs import KINDS, ExportedGraph, draw_graph
from plugins.ccompiler.tests.exported.program import Export, run_exports
from plugins.ccompiler.tests.exported.trial import export_graph, find_problem, try_seeds

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")

NUM_GRAPHS = 30
"""``nox -s exported-c`` tries thousands; these have a graph of each kind with every option."""


def test_random_graphs_give_the_results_of_their_ops(tmp_path: Path) -> None:
    folder = tmp_path / "program"
    folder.mkdir()
    tally = try_seeds(range(NUM_GRAPHS), folder)
    assert not tally.failures, "\n".join(tally.failures.values())
    assert tally.without_form.total() <= NUM_GRAPHS // 30, tally.without_form
    assert set(tally.graphs) == set(KINDS)
    assert tally.kernels > NUM_GRAPHS
    assert tally.branches > NUM_GRAPHS // 3
    assert tally.calls > 2 * NUM_GRAPHS


def _first_with_workspace() -> ExportedGraph:
    """Return a graph with intermediates of a known size."""
    for seed in range(0, 100, len(KINDS)):
        graph = draw_graph(seed)
        (nbytes,) = export_graph(graph, "probe").model.layouts[graph.function].nbytes
        if isinstance(nbytes, int) and nbytes:
            return graph
    raise AssertionError("no graph has a workspace")


def _with_source(export: Export, old: str, new: str) -> Export:
    """Return an export with another text in each file of C."""
    files = {name: data.replace(old.encode(), new.encode()) for name, data in export.model.files.items()}
    assert files != export.model.files
    return replace(export, model=replace(export.model, files=files))


def test_planted_faults_are_reported_and_other_models_run(tmp_path: Path) -> None:
    graph = _first_with_workspace()
    exports = [export_graph(graph, f"m{number}") for number in range(5)]
    (nbytes,) = exports[1].model.layouts[graph.function].nbytes
    suffix = f"_{graph.function}"
    small = _with_source(exports[1], f"return {nbytes};", "return 1;")
    small = _with_source(small, f"WORKSPACE_SIZE {nbytes}", "WORKSPACE_SIZE 1")
    silent = _with_source(exports[2], f"return m2_body{suffix}(", f"return 0 && m2_body{suffix}(")
    wrong_c = _with_source(exports[3], "#include <string.h>", "#include <string.h>\n#error planted")
    folder = tmp_path / "program"
    folder.mkdir()
    results = run_exports([exports[0], small, silent, wrong_c, exports[4]], folder)
    problems = [find_problem(graph, result) for result in results]
    assert [bool(problem) for problem in problems] == [False, True, True, True, False]
    assert "AddressSanitizer: heap-buffer-overflow" in problems[1]
    assert "other bytes than the exported C" in problems[2]
    assert "virtual machine: right" in problems[2]
    assert "planted" in problems[3]


def test_global_names_without_the_prefix_of_the_model_are_reported(tmp_path: Path) -> None:
    graph = draw_graph(0)
    exports = [
        _with_source(export_graph(graph, name), f'#include "{name}.h"\n', f'#include "{name}.h"\nint scratch = 1;\n')
        for name in ("m0", "m1")
    ]
    folder = tmp_path / "program"
    folder.mkdir()
    with pytest.raises(subprocess.CalledProcessError) as raised:
        run_exports(exports, folder)
    assert "scratch" in raised.value.stderr
