"""A gate for builds with required offload: the share of the work allowed on the host."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from byoc_core.errors import OptionsError, PartitionError
from byoc_core.printable import to_printable
from byoc_core.reporting.text import counting, host_reasons

__all__ = ["check_offload"]

_MAX_REASONS = 5


def check_offload(report: Mapping[str, Any], share: float) -> None:
    """Check that at least a share of the FLOPs is offloaded.

    If no op counts FLOPs, everything is offloaded if no op is the host's, else nothing.

    Args:
        report: the report's data, with the counted values of symbolic sizes.
        share: from 0 to 1.

    Raises:
        PartitionError: less is offloaded; names the share and the most expensive reasons.
        OptionsError: ``share`` is not between 0 and 1.
    """
    if not 0 <= share <= 1:
        raise OptionsError("required offload", "is not a share", got=repr(share), expected="a number from 0 to 1")
    expected = f"at least {share * 100:.6g}%"
    offloaded = report.get("offloaded_share")
    if not isinstance(offloaded, int | float) or not 0 <= offloaded <= 1:
        raise PartitionError("offload", "the report has no valid offloaded share", expected=expected)
    if offloaded < share:
        lines = [f"  {to_printable(reason.line())}" for reason in host_reasons(report)[:_MAX_REASONS]]
        # Rounded down: the text never equals the required share.
        found = f"{math.floor(offloaded * 1000) / 10:.1f}%"
        problem = f"the offloaded share of the FLOPs is too small{to_printable(counting(report))}"
        detail = "\n".join(["why ops stayed on the host:", *lines]) if lines else None
        raise PartitionError("offload", problem, got=found, expected=expected, detail=detail)
