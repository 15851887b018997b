"""Partition and codegen: from a module to a module with regions compiled by backends."""

from byoc_core.absent_names import absent_name
from byoc_core.partitioning.checking.legality import check_partition
from byoc_core.partitioning.claiming.annotate import AnnotateSupported
from byoc_core.partitioning.claiming.fuse import FuseOpsByPattern
from byoc_core.partitioning.claiming.request import PartitionRequest
from byoc_core.partitioning.constraints.options import PartitionOptions
from byoc_core.partitioning.layouts.plan_layouts import PlanLayouts
from byoc_core.partitioning.log import PartitionLog, Refusal
from byoc_core.partitioning.merging.merge import MergeCompositeFunctions
from byoc_core.partitioning.partition import partition
from byoc_core.partitioning.peeling.peel import PeelViews
from byoc_core.partitioning.policies import BACKEND_MACHINE, ByCost, GreedyByOrder, MachineModel, Policy
from byoc_core.partitioning.reporting.reasons import REASONS
from byoc_core.partitioning.reporting.report import build_report
from byoc_core.partitioning.run_codegen import RunCodegen

__all__ = [
    "BACKEND_MACHINE",
    "REASONS",
    "AnnotateSupported",
    "ByCost",
    "FuseOpsByPattern",
    "GreedyByOrder",
    "MachineModel",
    "MergeCompositeFunctions",
    "PartitionLog",
    "PartitionOptions",
    "PartitionRequest",
    "PeelViews",
    "PlanLayouts",
    "Policy",
    "Refusal",
    "RunCodegen",
    "build_report",
    "check_partition",
    "partition",
]


def __getattr__(name: str) -> object:
    """Raise the error for an absent name; the error names the home of a pass kept in this module by other systems."""
    raise absent_name(__name__, name, __all__)
