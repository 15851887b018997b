"""The effect of ``fallback`` on ops staying on the host."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from byoc_core.backend.contained import HookFailure
from byoc_core.backend.registry import HOST_NAME
from byoc_core.driver.caller import warn_caller
from byoc_core.errors import PartitionError
from byoc_core.printable import to_printable

__all__ = ["FALLBACKS", "Fallback", "judge_fallback", "warn_of_failures"]

_LOGGER = logging.getLogger("byoc_core")

Fallback = Literal["allow", "warn", "error"]
_EFFECTS = {"byoc_layouts": "Values of the ops cross borders of regions in row-major order."}
"""The effects of hooks failing without a refusal of ops."""
_TAKEN_OVER = "Other backends and the host take over the ops of the failed calls."
FALLBACKS = ("allow", "warn", "error")


def judge_fallback(fallback: Fallback, report: Mapping[str, Any], keeps_on_host: Callable[[str, str], bool]) -> None:
    """Log, warn or raise if ops stay on the host; called by the functions of the user interface.

    Args:
        fallback: the chosen reaction.
        report: the backend of each op.
        keeps_on_host: returns whether the user wants an op on the host, by function and name of the op.

    Raises:
        PartitionError: ``fallback`` is ``"error"``; lists the ops with the reasons.
    """
    rows = [row for row in report["ops"] if row["outcome"] == HOST_NAME]
    left = [row for row in rows if not keeps_on_host(row["function"], row["name"])]
    if not left:
        return
    share = f"{len(left)} ops with {sum(row['share'] for row in left):.1%} of the FLOPs stay on the host"
    lines = [to_printable(f"  {row['name']} = {row['op']}: {row['text']}") for row in left]
    if fallback == "error":
        raise PartitionError('fallback="error"', share, detail="\n".join(lines))
    if fallback == "warn":
        warn_caller("\n".join([share, *lines]))
    else:
        _LOGGER.info("%s\n%s", share, "\n".join(lines))


def warn_of_failures(failures: Sequence[HookFailure]) -> None:
    """Warn of hooks that raised, once for each backend and hook; the report holds the tracebacks.

    A failure of ``byoc_compile_status`` is left out: the warning about a backend unable to compile covers the failure.
    """
    failed_hooks = dict.fromkeys((failure.backend, failure.hook) for failure in failures)
    for backend, hook in failed_hooks:
        if hook != "byoc_compile_status":
            texts = list(dict.fromkeys(f.text for f in failures if (f.backend, f.hook) == (backend, hook)))
            more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
            warn_caller(
                f"backend `{backend}`, hook `{hook}`: {texts[0]}{more}.\n"
                f"{_EFFECTS.get(hook, _TAKEN_OVER)} The executable's "
                '`report_data["hook_failures"]` holds the tracebacks. With `strict=True` (`--strict`), failures raise.'
            )
