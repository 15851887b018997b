"""Properties computed on first use, and kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["computed_once"]

T = TypeVar("T")


class computed_once(Generic[T]):  # noqa: N801 - used as a decorator
    """A decorator for a property computed once, with the value kept in the instance's ``__dict__``.

    ``functools.cached_property`` of Python 3.11 has a common lock for all instances. A child forked while another
    thread computes may find this lock taken. Here two threads may compute at once, and must get equal values.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        if instance is None:
            return self  # type: ignore[return-value]  # of the class, as documentation asks
        value: T = instance.__dict__.setdefault(self._name, self._compute(instance))
        return value
