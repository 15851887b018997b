"""Sessions: models opened by path and called by name, compiled once and kept in a cache.

Sessions run artifacts without the compile side; only an uncompiled model imports the compiler. Names are imported when
first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from byoc_core.session.cache import CacheEntry, SessionCache
    from byoc_core.session.session import Session
    from byoc_core.session.values import ValueInfo

__all__ = ["CacheEntry", "Session", "SessionCache", "ValueInfo"]

_HOMES = {"cache": ("CacheEntry", "SessionCache"), "session": ("Session",), "values": ("ValueInfo",)}

__getattr__ = lazy_names(__name__, _HOMES)
