"""The user's settings about plugins, read from the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from byoc_core.errors import OptionsError

__all__ = ["PluginSettings"]


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """The usable plugins, and the preferred distribution for a name claimed twice.

    Attributes:
        allowed: names of the only backends to use (``BYOC_BACKENDS=a,b``), or ``None`` for all.
        disabled: names of backends not to use (``BYOC_DISABLE_BACKENDS=c``); stronger than ``allowed``.
        preferred: distribution by plugin name (``BYOC_PREFER=a=byoc-a,b=byoc-b``), for the plugins of all groups. An
            ONNX operator (``com.example.Scale=byoc-a``) or a domain (``com.example=byoc-a``) imported by several
            plugins is a name too.
    """

    allowed: frozenset[str] | None = None
    disabled: frozenset[str] = frozenset()
    preferred: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> PluginSettings:
        """Read the three variables; an unset or blank variable has no effect.

        Raises:
            OptionsError: ``BYOC_PREFER`` is not a list of ``name=distribution``.
        """
        preferred: dict[str, str] = {}
        for item in _split(environment.get("BYOC_PREFER", "")):
            name, equals, distribution = (part.strip() for part in item.partition("="))
            if not (name and equals and distribution):
                raise OptionsError(
                    "environment variable `BYOC_PREFER`",
                    "is malformed",
                    got=repr(item),
                    expected="name=distribution[,name=distribution...]",
                )
            preferred[name] = distribution
        allowed = frozenset(_split(environment.get("BYOC_BACKENDS", "")))
        return cls(
            allowed=allowed or None,
            disabled=frozenset(_split(environment.get("BYOC_DISABLE_BACKENDS", ""))),
            preferred=MappingProxyType(preferred),
        )


def _split(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
