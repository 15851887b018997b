"""What ``fallback`` says about ops that stay on the host."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from typing import Any, Literal

from byoc_core.backend.registry import HOST_NAME
from byoc_core.errors import PartitionError

__all__ = ["FALLBACKS", "Fallback", "judge_fallback"]

_LOGGER = logging.getLogger("byoc_core")

Fallback = Literal["allow", "warn", "error"]
FALLBACKS = ("allow", "warn", "error")


def judge_fallback(fallback: Fallback, report: Mapping[str, Any]) -> None:
    """Logs, warns or raises where ops stay on the host; called by what the user calls.

    Raises:
        PartitionError: ``fallback`` is ``"error"``; lists the ops with the reasons.
    """
    left = [row for row in report["ops"] if row["outcome"] == HOST_NAME]
    if not left:
        return
    share = f"{len(left)} ops with {1 - report['offloaded_share']:.1%} of the FLOPs stay on the host"
    lines = [f"  {row['name']} = {row['op']}: {row['text']}" for row in left]
    if fallback == "error":
        raise PartitionError('fallback="error"', share, detail="\n".join(lines))
    if fallback == "warn":
        warnings.warn("\n".join([share, *lines]), stacklevel=3)
    else:
        _LOGGER.info("%s\n%s", share, "\n".join(lines))
