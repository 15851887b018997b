"""The answer of a plugin to the question whether it can work on this machine."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Status"]


@dataclass(frozen=True, slots=True)
class Status:
    """Yes, or no with a reason.

    Attributes:
        ok: whether the plugin can do its work here.
        reason: what is missing, as a clause ("no C compiler was found"); required where ``ok`` is false. Where ``ok``
            is true it may say what was found ("gcc 12.2").
        remedy: the next step, as a sentence.
    """

    ok: bool
    reason: str = ""
    remedy: str = ""
