"""The core ops without a C form, with reasons; together with the ops of the kernel families, all ops of the core.

An op in neither table is rejected as new, without a reason of this backend.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["DECLINED"]

_DATA = (
    "data-dependent",
    "the result size of {} depends on the data, but the caller allocates the result before the call",
)
_CONTROL = (
    "control-flow",
    "{} is control flow, executed outside of regions",
)
_CALL = ("call", "{} calls a function unknown to the backend")

DECLINED: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        op: (code, text.format(op))
        for (code, text), ops in {
            _DATA: ("compress", "nonzero", "range", "unique"),
            _CONTROL: ("if", "loop"),
            _CALL: ("call", "call_dps_packed", "call_packed"),
        }.items()
        for op in ops
    }
)
"""The code and the text of the reason, by op."""
