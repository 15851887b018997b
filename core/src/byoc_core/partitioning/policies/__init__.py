"""Who takes what: a policy turns a module into one with claims. Codegen knows nothing of it."""

from byoc_core.partitioning.policies.greedy import GreedyByOrder
from byoc_core.partitioning.policies.policy import Policy

__all__ = ["GreedyByOrder", "Policy"]
