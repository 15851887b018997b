"""The ops of the core that have no C form, and why: with the kernel families, all ops that there are."""

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
"""By op, the code and the text of the reason."""
