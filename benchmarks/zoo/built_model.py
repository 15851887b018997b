"""A model after building, saving and loading."""

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
"""The backends for checking models, and the corresponding arguments of ``build``."""

Step = Callable[[Mapping[str, Array]], Sequence[Array]]
"""A run of a model: named inputs to outputs in order."""


@dataclass(frozen=True)
class BuiltModel:
    """A built, saved and loaded model.

    Attributes:
        run: a function running the model.
        offloaded_share: the share of FLOPs taken by backends other than the host.
    """

    run: Step
    offloaded_share: float


def build_model(
    module: IRModule, backends: Sequence[str], options: Mapping[str, Mapping[str, object]] | None = None
) -> BuiltModel:
    """Build a model with options of the backends, save the executable, and load the artifact."""
    executable = byoc_core.build(module, backends=backends, options=options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.byoc"
        executable.save(path)
        machine = byoc_core.VirtualMachine(byoc_core.load(path, allow_native=True))

    def run(feeds: Mapping[str, Array]) -> Sequence[Array]:
        results = machine.run("main", feeds)
        return results if isinstance(results, tuple) else (results,)

    return BuiltModel(run, float(executable.report_data["offloaded_share"]))
