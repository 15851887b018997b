"""Policies: a policy turns a module into a module with claims. Codegen knows nothing of policies."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from byoc_core.partitioning.policies.cost import ByCost
from byoc_core.partitioning.policies.cost_model import BACKEND_MACHINE, HOST_MACHINE, MachineModel
from byoc_core.partitioning.policies.greedy import GreedyByOrder
from byoc_core.partitioning.policies.placed import PlacedOps, placement_key
from byoc_core.partitioning.policies.policy import Policy

__all__ = [
    "BACKEND_MACHINE",
    "FILE_POLICIES",
    "HOST_MACHINE",
    "POLICIES",
    "ByCost",
    "GreedyByOrder",
    "MachineModel",
    "PlacedOps",
    "Policy",
    "placement_key",
]

POLICIES: Mapping[str, Callable[[], Policy]] = MappingProxyType({"greedy": GreedyByOrder, "cost": ByCost})
"""The core's policies by the names used on the command line, the default first."""

FILE_POLICIES: Mapping[str, Callable[..., Policy]] = MappingProxyType({**POLICIES, "placed": PlacedOps})
"""The core's policies by the names in request files."""
