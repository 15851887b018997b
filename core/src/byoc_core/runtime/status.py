"""The answer of a plugin to the question whether it can work on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from byoc_core.errors import HookError

if TYPE_CHECKING:
    from byoc_core.plugin.handle import PluginHandle

__all__ = ["Status", "ask_status"]


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


def ask_status(plugin: PluginHandle, hook: str, **arguments: object) -> Status:
    """Gives a plugin's own answer, or yes where it does not implement the hook.

    Raises:
        HookError: the hook raised, gave no ``Status``, or a refusal without a reason.
    """
    if not plugin.has(hook):
        return Status(ok=True)
    status = plugin.check(hook, plugin.call(hook, **arguments), Status)
    if not status.ok and not status.reason:
        raise HookError(plugin.where(hook), "gave a refusal without a reason")
    return status
