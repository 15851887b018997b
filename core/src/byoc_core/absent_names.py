"""The error for a public name that a module lacks: where the name is, or which name of byoc does the same.

Readers of TVM look for its passes under the names and in the modules that TVM gives them.
"""

from __future__ import annotations

from collections.abc import Iterable

from byoc_core.errors import near_names

__all__ = ["HOMES", "absent_name"]

_PASSES = (
    *("BindParams", "Canonicalise", "EliminateCommonSubexpressions", "FoldBatchNorm", "FoldConstants", "InferTypes"),
    *("Pass", "RemoveDeadCode", "RemoveUnusedFunctions", "Sequential", "Simplify"),
)
_PARTITIONING = (
    *("AnnotateSupported", "FuseOpsByPattern", "MergeCompositeFunctions", "PartitionOptions", "PeelViews"),
    "RunCodegen",
)
HOMES = {
    **{name: f"byoc_core.transform.{name}" for name in _PASSES},
    **{name: f"byoc_core.partitioning.{name}" for name in _PARTITIONING},
    "CompositePattern": "byoc_core.pattern.CompositePattern",
    "build": "byoc_core.build",
    "partition": "byoc_core.partition",
    "AnnotateTarget": "byoc_core.partitioning.AnnotateSupported",
    "CanonicalizeBindings": "byoc_core.transform.Canonicalise",
    "DeadCodeElimination": "byoc_core.transform.RemoveDeadCode",
    "DecomposeOpsForInference": "byoc_core.transform.FoldBatchNorm",
    "EliminateCommonSubexpr": "byoc_core.transform.EliminateCommonSubexpressions",
    "FoldConstant": "byoc_core.transform.FoldConstants",
    "InferType": "byoc_core.transform.InferTypes",
    "MergeCompilerRegions": "byoc_core.partitioning.MergeCompositeFunctions",
    "MergeComposite": "byoc_core.partitioning.FuseOpsByPattern",
    "PartitionGraph": "byoc_core.partition",
    "SimplifyInference": "byoc_core.transform.FoldBatchNorm",
}
"""Names that people look for in some module of byoc, by name: the byoc name, and where to import it from."""


def absent_name(module: str, name: str, known: Iterable[str] = ()) -> AttributeError:
    """Return the error for a name that a module lacks.

    Args:
        module: the module's full name.
        name: the name that is absent.
        known: the module's public names. A near one is told where no other module has the name.
    """
    home, _, own_name = HOMES.get(name, "").rpartition(".")
    hint = ""
    if own_name == name:
        hint = f". It is in another module: `from {home} import {own_name}`."
    elif own_name:
        hint = f". byoc calls it `{own_name}`: `from {home} import {own_name}`."
    elif not name.startswith("__") and (near := near_names(name, known)):
        hint = f". {near}"
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}", name=name)
