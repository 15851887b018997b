"""A plugin's answer about the ability to work on this machine."""

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
        ok: whether the plugin can work here.
        reason: the missing part, as a clause ("no C compiler was found"); required if ``ok`` is false. If ``ok`` is
            true, the reason may name the found part ("gcc 12.2").
        remedy: the next step, as a sentence.
    """

    ok: bool
    reason: str = ""
    remedy: str = ""


def ask_status(plugin: PluginHandle, hook: str, **arguments: object) -> Status:
    """Return a plugin's own answer, or yes if the plugin does not implement the hook.

    Raises:
        HookError: the hook raised, returned no ``Status``, or a refusal without a reason.
    """
    if not plugin.has(hook):
        return Status(ok=True)
    status = plugin.check(hook, plugin.call(hook, **arguments), Status)
    if not status.ok and not status.reason:
        raise HookError(plugin.where(hook), "returned a refusal without a reason")
    return status
