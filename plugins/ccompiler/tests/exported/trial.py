"""Trials of exported graphs in batches: compiled, exported, run in one program, and judged by the reference kernels."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
from byoc_core.artifact import Executable
from byoc_core.artifact.plain_c.plain_model import plain_model
from byoc_core.debugging import References, Tolerance, compare_outputs
from byoc_core.errors import CodegenError
from byoc_core.vm.instructions import Call, CallKind, If

from plugins.ccompiler.tests.exported.graphs import ExportedGraph, draw_graph
from plugins.ccompiler.tests.exported.program import Export, RunResult, run_exports

__all__ = ["Tally", "export_graph", "find_problem", "try_seeds"]

NDArray = npt.NDArray[Any]


@dataclass
class Tally:
    """The results of a run.

    Attributes:
        graphs: the number of graphs of each kind.
        calls: the number of judged calls.
        ops: the number of ops.
        kernels: the number of calls of generated kernels in exported graphs.
        branches: the number of conditional jumps in exported graphs, from branches and loops.
        without_form: the number of graphs without a form in C, by reason.
        failures: a text with the graph, by seed.
    """

    graphs: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    ops: int = 0
    kernels: int = 0
    branches: int = 0
    without_form: Counter[str] = field(default_factory=Counter)
    failures: dict[int, str] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        """Add the results of another batch."""
        self.graphs += other.graphs
        self.calls += other.calls
        self.ops += other.ops
        self.kernels += other.kernels
        self.branches += other.branches
        self.without_form += other.without_form
        self.failures.update(other.failures)


def try_seeds(seeds: Sequence[int], folder: Path | None = None) -> Tally:
    """Try the graphs of seeds in one program.

    Args:
        seeds: of the graphs.
        folder: an existing, empty folder for the sources; a temporary folder by default.
    """
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="byoc-exported-") as temporary:
            return try_seeds(seeds, Path(temporary))
    tally = Tally()
    tried: list[tuple[ExportedGraph, Export]] = []
    for seed in seeds:
        graph = draw_graph(seed)
        tally.graphs[graph.kind] += 1
        tally.ops += len(graph.module[graph.function].bindings)
        try:
            export = export_graph(graph, f"m{len(tried)}")
        except CodegenError as error:
            tally.without_form[_reason(error)] += 1
        except Exception as error:
            tally.failures[seed] = _describe(graph, f"{type(error).__name__}: {error}")
        else:
            tally.kernels += _num_kernels(export)
            tally.branches += sum(isinstance(instruction, If) for instruction in export.function.code)
            tried.append((graph, export))
    for (graph, _), result in zip(tried, run_exports([export for _, export in tried], folder), strict=True):
        problem = find_problem(graph, result)
        tally.calls += len(result.outputs)
        if problem:
            tally.failures[graph.seed] = _describe(graph, problem)
    return tally


def export_graph(graph: ExportedGraph, name: str) -> Export:
    """Return a graph as exported C.

    Every second seed states the largest sizes, and every fifth includes the constants as binary data.

    Raises:
        CodegenError: the graph has no form in C.
    """
    executable = _build(graph)
    (function,) = executable.program.functions
    symbols = function.input_symbols
    max_sizes = None
    if graph.seed % 2 and symbols:
        params = list(zip(function.params, zip(*graph.calls, strict=True), strict=True))
        largest = max(size for _, arrays in params for array in arrays for size in array.shape)
        max_sizes = dict.fromkeys(sorted(symbols), max(largest, 1))
    constants = "array" if graph.seed % 5 else "object"
    return Export(plain_model(executable, name, max_sizes, constants), function, graph.calls)


def find_problem(graph: ExportedGraph, result: RunResult) -> str:
    """Return the first fault of a graph's calls; empty if none."""
    if result.problem:
        return result.problem
    if len(result.outputs) != len(graph.calls):
        return f"{len(result.outputs)} of {len(graph.calls)} calls finished"
    for number, (inputs, outputs) in enumerate(zip(graph.calls, result.outputs, strict=True)):
        text = _compare(graph, inputs, outputs)
        if text:
            return f"call {number}: {text}\n{_verdict_on_machine(graph, inputs, outputs)}"
    return ""


def _compare(graph: ExportedGraph, inputs: Sequence[NDArray], outputs: Sequence[NDArray]) -> str:
    with np.errstate(all="ignore"):
        references = References(graph.module, graph.function, inputs)
        names = graph.module[graph.function].output_names
        findings, _ = compare_outputs(outputs, names, references, Tolerance())
    return "; ".join(f"{finding.code}: {finding.text}" for finding in findings)


def _verdict_on_machine(graph: ExportedGraph, inputs: Sequence[NDArray], outputs: Sequence[NDArray]) -> str:
    """Compare the virtual machine with the reference kernels too: a wrong machine means a fault of code generation."""
    found: Any = byoc_core.VirtualMachine(_build(graph))[graph.function](*inputs)
    results = [np.asarray(array) for array in (found if isinstance(found, tuple | list) else (found,))]
    same = all(a.tobytes() == b.tobytes() for a, b in zip(results, outputs, strict=True))
    verdict = _compare(graph, inputs, results) or "right"
    return f"virtual machine: {verdict} ({'the same bytes as' if same else 'other bytes than'} the exported C)"


def _build(graph: ExportedGraph) -> Executable:
    return byoc_core.build(graph.module, backends=["ccompiler"], options={"ccompiler": graph.options})


def _num_kernels(export: Export) -> int:
    return sum(isinstance(call, Call) and call.kind is CallKind.EXTERN for call in export.function.code)


def _reason(error: CodegenError) -> str:
    """Return the parts without a form, without numbers of functions."""
    lines = str(error.detail).splitlines()
    return "; ".join(sorted({re.sub(r"\d+", "N", line.partition(": ")[2] or line) for line in lines}))


def _describe(graph: ExportedGraph, problem: str) -> str:
    command = f"python -m plugins.ccompiler.tests.exported.long_run --count 1 --seed {graph.seed} --keep FOLDER"
    return f"seed {graph.seed} ({graph.kind}): {problem}\n{graph.module}\nAgain: {command}"
