"""The error for an absent public name of a module: the home of the name, or the byoc name with the same purpose.

Readers of TVM look for passes under TVM's names and in TVM's modules. ``byoc_core``, ``byoc_core.transform`` and
``byoc_core.partitioning`` raise this error. The names in the table are text: a renamed pass must be renamed here too.
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
"""The byoc name and the module to import from, by the name looked for in some module of byoc."""


def absent_name(module: str, name: str, public_names: Iterable[str] = ()) -> AttributeError:
    """Return the error for a name absent from a module.

    Args:
        module: the module's full name.
        name: the absent name.
        public_names: the module's public names. A near name is suggested if no other module has the name.
    """
    home, _, own_name = HOMES.get(name, "").rpartition(".")
    hint = ""
    if own_name == name:
        hint = f". The name is in another module: `from {home} import {own_name}`."
    elif own_name:
        hint = f". The name in byoc is `{own_name}`: `from {home} import {own_name}`."
    elif not name.startswith("__") and (near := near_names(name, public_names)):
        hint = f". {near}"
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}", name=name)
