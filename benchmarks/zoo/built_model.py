"""A model on the whole road: built, saved, loaded."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import byoc_core
from byoc_core.ir import IRModule

from benchmarks.zoo.accuracy import Array

__all__ = ["BACKENDS", "BuiltModel", "Step", "build_model"]

BACKENDS: Mapping[str, Sequence[str]] = {"host": [], "ccompiler": ["ccompiler"]}
"""The backends that models are checked on, and what ``build`` is given for them."""

Step = Callable[[Mapping[str, Array]], Sequence[Array]]
"""Runs a model once: named inputs to outputs in order."""


@dataclass(frozen=True)
class BuiltModel:
    """A model that was built, saved and loaded.

    Attributes:
        run: runs it.
        offloaded_share: the share of its FLOPs that backends other than the host took.
    """

    run: Step
    offloaded_share: float


def build_model(module: IRModule, backends: Sequence[str]) -> BuiltModel:
    """Builds a model, saves it, and loads it again."""
    executable = byoc_core.build(module, backends=backends)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.byoc"
        executable.save(path)
        machine = byoc_core.VirtualMachine(byoc_core.load(path, allow_native=True))

    def run(feeds: Mapping[str, Array]) -> Sequence[Array]:
        results = machine.run("main", feeds)
        return results if isinstance(results, tuple) else (results,)

    return BuiltModel(run, float(executable.report_data["offloaded_share"]))
