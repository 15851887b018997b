"""Signatures showing the fields of a request: ``help`` of functions taking the fields as keywords.

Names come from :class:`RequestFields`, defaults from the field of the same name in :class:`CompileRequest`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from byoc_core.driver.request import CompileRequest, RequestFields

__all__ = ["shows_request_fields"]

_F = TypeVar("_F", bound=Callable[..., Any])


def shows_request_fields(function: _F) -> _F:
    """Return the function with a signature listing the fields of a request, with defaults, in place of ``**fields``."""
    own = inspect.signature(function)
    fields = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None if field.default_factory is not None else field.default,
            annotation=getattr(annotation, "__forward_arg__", annotation),
        )
        for name, annotation in RequestFields.__annotations__.items()
        for field in [CompileRequest.model_fields[name]]
    ]
    parameters = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    function.__signature__ = own.replace(parameters=[*parameters, *fields])  # type: ignore[attr-defined]
    return function
