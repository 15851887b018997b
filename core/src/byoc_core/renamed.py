"""Renamed parameters and fields of public functions and classes: the old name works, with a warning."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

__all__ = ["deprecated_name", "renamed_fields", "renamed_parameters"]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def deprecated_name(old: str, new: str, stacklevel: int = 1) -> None:
    """Warn of a deprecated name at the line of the caller's caller.

    Args:
        old: the deprecated name, with the class or function.
        new: the replacement.
        stacklevel: the number of further frames between the caller and the line with the old name.
    """
    warnings.warn(
        f"`{old}` is deprecated since byoc-core 0.2 and will be removed in 0.4: use `{new}`.",
        DeprecationWarning,
        stacklevel=stacklevel + 2,
    )


def renamed_parameters(**new_names: str) -> Callable[[F], F]:
    """Return a decorator for a function with renamed parameters: the old keywords work, with a warning.

    A call with an old and its new keyword is a ``TypeError``.

    Args:
        new_names: the new name of each parameter, by old name.
    """

    def decorate(function: F) -> F:
        return _accepting(function, function.__qualname__, new_names, overrides=False)

    return decorate


def renamed_fields(**new_names: str) -> Callable[[type[T]], type[T]]:
    """Return a decorator for a dataclass with renamed fields: old keywords and attributes work, with a warning.

    Args:
        new_names: the new name of each field, by old name.
    """

    def decorate(cls: type[T]) -> type[T]:
        init = _accepting(cls.__init__, cls.__qualname__, new_names, overrides=True)
        cls.__init__ = init  # type: ignore[method-assign]
        for old, new in new_names.items():
            setattr(cls, old, _alias(cls.__qualname__, old, new))
        return cls

    return decorate


def _accepting(function: F, owner: str, new_names: Mapping[str, str], *, overrides: bool) -> F:
    """Return the function with old keywords changed to new keywords.

    Args:
        function: the function with the new keywords.
        owner: the function or class, for messages.
        new_names: the new keyword by old keyword.
        overrides: whether an old keyword wins over its new keyword: ``dataclasses.replace`` passes every field.
    """

    @functools.wraps(function)
    def accepting(*args: Any, **kwargs: Any) -> Any:
        for old, new in new_names.items():
            if old in kwargs:
                if new in kwargs and not overrides:
                    raise TypeError(f"{owner}() got both `{new}` and its deprecated name `{old}`")
                deprecated_name(f"{owner}({old}=...)", f"{owner}({new}=...)")
                kwargs[new] = kwargs.pop(old)
        return function(*args, **kwargs)

    return accepting  # type: ignore[return-value]


def _alias(owner: str, old: str, new: str) -> property:
    """Return the property with the value of a renamed field."""

    def read(instance: object) -> object:
        deprecated_name(f"{owner}.{old}", f"{owner}.{new}")
        return getattr(instance, new)

    return property(read, doc=f"Deprecated since 0.2: use ``{new}``.")
