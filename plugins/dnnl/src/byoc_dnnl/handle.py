"""The owner of an object of oneDNN: the object is freed exactly once, after Python drops the last reference."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from byoc_dnnl.capi import Api

__all__ = ["Handle"]


class Handle:
    """A pointer created by a function of oneDNN, with the function for freeing.

    The handle itself can be passed to functions of oneDNN; the call keeps the handle alive.

    Attributes:
        pointer: for callers that keep this object alive long enough.
    """

    __slots__ = ("__weakref__", "_as_parameter_", "_owner", "api", "pointer")
    _destroy = ""

    def __init__(self, api: Api, create: str, *arguments: object) -> None:
        pointer = ctypes.c_void_p()
        api.call(create, ctypes.byref(pointer), *arguments)
        self._own(api, pointer)

    def _own(self, api: Api, pointer: ctypes.c_void_p) -> None:
        self.api, self.pointer = api, pointer
        self._as_parameter_ = pointer  # passed by ctypes
        self._owner = api.own(self, self._destroy, pointer)
