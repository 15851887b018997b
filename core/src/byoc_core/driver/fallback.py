"""What ``fallback`` says about ops that stay on the host."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal

from byoc_core.backend.registry import HOST_NAME
from byoc_core.errors import PartitionError

__all__ = ["FALLBACKS", "Fallback", "judge_fallback"]

_LOGGER = logging.getLogger("byoc_core")

Fallback = Literal["allow", "warn", "error"]
FALLBACKS = ("allow", "warn", "error")


def judge_fallback(fallback: Fallback, report: Mapping[str, Any], keeps_on_host: Callable[[str, str], bool]) -> None:
    """Logs, warns or raises where ops stay on the host; called by what the user calls.

    Args:
        fallback: which of the three.
        report: who took what.
        keeps_on_host: tells of an op, by its function and its name, whether the user wants it there.

    Raises:
        PartitionError: ``fallback`` is ``"error"``; lists the ops with the reasons.
    """
    rows = [row for row in report["ops"] if row["outcome"] == HOST_NAME]
    left = [row for row in rows if not keeps_on_host(row["function"], row["name"])]
    if not left:
        return
    share = f"{len(left)} ops with {sum(row['share'] for row in left):.1%} of the FLOPs stay on the host"
    lines = [f"  {row['name']} = {row['op']}: {row['text']}" for row in left]
    if fallback == "error":
        raise PartitionError('fallback="error"', share, detail="\n".join(lines))
    if fallback == "warn":
        warnings.warn("\n".join([share, *lines]), stacklevel=3)
    else:
        _LOGGER.info("%s\n%s", share, "\n".join(lines))
