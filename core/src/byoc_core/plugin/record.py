"""What is known about one plugin before any of its code runs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["PluginRecord", "PluginState"]


class PluginState(StrEnum):
    """Whether a plugin may be used, and if not, why not."""

    AVAILABLE = "available"
    """Nothing speaks against it; its code has perhaps not run yet."""
    DISABLED = "disabled"
    """A setting of the user switches it off."""
    INCOMPATIBLE = "incompatible"
    """Its distribution asks for another version of byoc-core."""
    CLASH = "clash"
    """Another distribution claims the same name."""
    BROKEN = "broken"
    """It cannot be imported, or its hooks are wrong."""


@dataclass(frozen=True, slots=True)
class PluginRecord:
    """One entry point of one distribution, with its state.

    Attributes:
        name: the entry point's name: a backend's name, or a runtime's type key.
        group: the entry-point group.
        value: what the entry point refers to, ``package.module`` or ``package.module:object``.
        distribution: the distribution that declares it, as pip calls it.
        version: the distribution's version.
        core_requirement: the distribution's range of byoc-core versions (``">=0.1,<0.2"``); empty where it names none.
        state: whether it may be used.
        reason: why it may not be used, as a clause; empty while it is available.
        remedy: the next step, as a sentence; empty while it is available.
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
        """How messages name the plugin: ``plugin `dnn` (byoc-dnn 1.0)``."""
        origin = f"{self.distribution} {self.version}".strip()
        return f"plugin `{self.name}`" + (f" ({origin})" if origin else "")
