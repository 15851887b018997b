"""The facts known about a plugin before any of its code runs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["PluginRecord", "PluginState"]


class PluginState(StrEnum):
    """Whether a plugin may be used, and the reason if not."""

    AVAILABLE = "available"
    """No objection is known; the plugin's code has perhaps not run yet."""
    DISABLED = "disabled"
    """A setting of the user switches the plugin off."""
    INCOMPATIBLE = "incompatible"
    """The plugin's distribution requires another version of byoc-core."""
    CLASH = "clash"
    """Another entry point, of this or another distribution, claims the same name."""
    BROKEN = "broken"
    """The plugin cannot be imported, or its hooks are wrong."""


@dataclass(frozen=True, slots=True)
class PluginRecord:
    """An entry point of a distribution, with its state.

    Attributes:
        name: the entry point's name: a backend's name, a runtime's type key, or any name of an importer.
        group: the entry-point group.
        value: the object reference of the entry point, ``package.module`` or ``package.module:object``.
        distribution: the declaring distribution, by its name in pip.
        version: the distribution's version.
        core_requirement: the distribution's range of byoc-core versions (``">=0.1,<0.2"``); empty without a range.
        state: whether the plugin may be used.
        reason: the reason against use, as a clause; empty while the plugin is available.
        remedy: the next step, as a sentence; empty while the plugin is available.
    """

    name: str
    group: str
    value: str
    distribution: str
    version: str
    core_requirement: str = ""
    state: PluginState = PluginState.AVAILABLE
    reason: str = ""
    remedy: str = ""

    @property
    def label(self) -> str:
        """The plugin's name in messages: ``plugin `dnn` (byoc-dnn 1.0)``."""
        origin = f"{self.distribution} {self.version}".strip()
        return f"plugin `{self.name}`" + (f" ({origin})" if origin else "")
