"""The core ops without a C form, with reasons; together with the ops of the kernel families, all ops of the core."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["DECLINED"]

_DATA = (
    "data-dependent",
    "how large the result of {} is shows only when it has been computed, but a caller has to allocate it before",
)
_CONTROL = (
    "control-flow",
    "{} chooses what is computed, which is done outside of regions",
)
_CALL = ("call", "{} calls what the backend does not see")

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
