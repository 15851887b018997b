"""Models as users export them: by both exporters of PyTorch, by the quantisers of ONNX Runtime, and by skl2onnx.

Each module of this package lists exports of a kind of models. Weights are random and seeded, nothing is fetched. The
packages that define and export the models are in the dependency group ``exports``.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from benchmarks.zoo.exports.export import Export

__all__ = ["MODULES", "list_exports"]

MODULES = ("detectors", "loops", "quantised", "sequences", "speech", "tabular", "vision")
"""The modules of exports."""


def list_exports() -> Mapping[str, Export]:
    """Return all exports by name.

    Raises:
        ImportError: a package of the dependency group ``exports`` is missing.
    """
    modules = [importlib.import_module(f"{__name__}.{name}") for name in MODULES]
    return {export.name: export for module in modules for export in module.EXPORTS}
