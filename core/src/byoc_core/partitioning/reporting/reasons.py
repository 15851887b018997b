"""The vocabulary of reasons: every code that core itself gives, and what it means.

Backends have codes of their own, which they choose in ``byoc_supports``, in a pattern's ``check`` and in codegen.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["REASONS"]

REASONS: Mapping[str, str] = MappingProxyType(
    {
        # An op that no backend is asked about.
        "impure": "the op has effects, so it stays where it is",
        "unknown-rank": "a value of the op is no tensor of known rank",
        "data-dependent-size": "only the data tells a size, and the backend or the pattern takes no such op",
        "dynamic-shape": "a shape is symbolic, and the backend takes static shapes only",
        "unavailable": "the backend cannot compile on this machine",
        "host-only": "no backend but the host was asked",
        "not-claimed": "the policy let no backend claim the op",
        # A backend's own rules.
        "no-rule": "the backend takes no single ops, only what its patterns match",
        "near-miss": "a pattern of the backend nearly fits; the text says which part does not",
        "used-elsewhere": "a value inside the match of a pattern is read outside it",
        "lost": "the op's match of this pattern lost to a better one",
        "would-close-cycle": "taken together, the ops would depend on themselves by way of others",
        "hook-failed": "a hook of the backend raised an exception",
        # What the user or the policy decided.
        "forced": "the user placed the op elsewhere",
        "stopped": "the op depends on a value at which the user stops offloading",
        "not-allowed": "the op is not among those that the user allows the backend",
        "too-small": "the region is smaller than the user permits",
        "costs-more": "by the cost model the op is cheaper where it is",
        # A region that codegen refused.
        "same-region": "a refused region is handed over whole, and this backend does not take all of its ops",
        # An op that belongs to no region, wherever it was claimed.
        "view": "no region: the core makes a view of memory of it, or a copy where none fits",
        # Two regions of one backend that stay apart, beside `would-close-cycle` and `data-dependent-size`.
        "barrier": "an op with effects stands between them",
        "handed-over": "one of them was handed over after the regions had been made",
        "search-limit": "whether a pattern fits or merging closes a cycle was not found within the search's bound",
        # The kit for backends that serialise regions to graph documents.
        "structural": "control flow or a call, which a graph document does not hold",
        "name": "the op is not the core's op of this name, and a graph document knows ops by name",
        "attribute": "an attribute holds types, which a graph document does not hold",
        "object": "a value is no tensor",
        "rank": "the rank of a value is not known",
        "symbol": "an attribute needs a size that no input gives",
        "engine": "the engine that runs the document refuses a node",
    }
)
"""The codes of reasons why an op stays on the host, and what each says."""
