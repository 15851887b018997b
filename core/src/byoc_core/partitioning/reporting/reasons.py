"""The vocabulary of reasons: every code given by the core itself, with the meaning.

Codes are stable, and stored in reports. Every ``Rejection`` of the core has a code of this table, and
``docs/explain.md`` lists the same table. Backends have codes of their own, chosen in ``byoc_supports``, in a pattern's
``check`` and in codegen.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["REASONS"]

REASONS: Mapping[str, str] = MappingProxyType(
    {
        # An op without requests to backends.
        "impure": "the op has effects, so the op stays on the host",
        "nondeterministic": "the op gives other results in each run, so the op stays on the host",
        "unknown-rank": "a value of the op is not a tensor of known rank",
        "data-dependent-size": "a size depends on the data, and the backend or the pattern takes no such op",
        "dynamic-shape": "a shape is symbolic, and the backend takes static shapes only",
        "unavailable": "the backend cannot compile on this machine",
        "host-only": "no backend but the host was asked",
        "not-claimed": "the policy let no backend claim the op",
        # A backend's own rules.
        "no-rule": "the backend takes no single ops, only matches of patterns",
        "near-miss": "a pattern of the backend nearly fits; the text names the part without a match",
        "used-elsewhere": "a value inside the match of a pattern is read outside the match",
        "lost": "the op's match of this pattern lost to a better match",
        "would-close-cycle": "grouped together, the ops would depend on themselves through other ops",
        "hook-failed": "a hook of the backend raised an exception",
        # Decisions of the user or the policy.
        "forced": "the user placed the op elsewhere",
        "stopped": "the op depends on a value at which the user stops offloading",
        "not-allowed": "the op is not among the ops allowed for the backend by the user",
        "too-small": "the region is smaller than the user's limit",
        "placed": "the placement of the user gives the op to another place",
        "costs-more": "by the cost model the op is cheaper at the chosen place",
        # A region refused by codegen.
        "same-region": "a refused region is handed over whole, and this backend does not take all ops of the region",
        # An op outside all regions, whatever its claim.
        "view": "no region: the core makes a view of memory, or a copy if no view fits",
        # Two separate regions of one backend, beside `would-close-cycle` and `data-dependent-size`.
        "barrier": "an op with effects lies between the regions",
        "other-device": "the user placed the regions on different devices",
        "handed-over": "one of the regions was handed over after the regions had been made",
        "search-limit": "the search reached the bound before deciding whether a pattern fits or merging closes a cycle",
        # The kit for backends serialising regions to graph documents.
        "structural": "control flow or a call, not supported in a graph document",
        "name": "the op is not the core's op of this name, but a graph document identifies ops by name",
        "attribute": "an attribute holds types, not supported in a graph document",
        "object": "a value is not a tensor",
        "rank": "the rank of a value is not known",
        "symbol": "an attribute needs a size not given by any input",
        "engine": "the engine running the document refuses a node",
    }
)
"""The codes of reasons, each with the meaning: for ops on the host or in no region, and for separate regions."""
