"""Kernels of plugins, held to the contract of the core's kernels."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from byoc_core.errors import ByocError, ExecutionError, type_name
from byoc_core.kernels.precision import NDArray

__all__ = ["PluginKernel"]


class PluginKernel:
    """A kernel of a plugin's op: callers see the contract of :mod:`byoc_core.kernels` for any function.

    The function gets read-only arrays in row-major order, without numpy's warnings of floating-point errors. The
    results become a tuple of arrays. An exception becomes an ``ExecutionError`` with the name of the op.

    Args:
        op: the name of the op.
        function: ``function(*inputs, **attributes)`` returns an array, or a tuple or list of arrays.
    """

    def __init__(self, op: str, function: Callable[..., Any]) -> None:
        self._op = op
        self._function = function

    @property
    def __signature__(self) -> inspect.Signature:
        """The signature of the function; ``ValueError`` for functions in C without a signature."""
        return inspect.signature(self._function)

    def __call__(self, *operands: NDArray, **attrs: Any) -> tuple[NDArray, ...]:
        """Return the results of the op.

        Raises:
            ExecutionError: the function raised, or returned objects other than arrays.
        """
        arrays = [_read_only(operand) for operand in operands]
        try:
            with np.errstate(all="ignore"):
                found = self._function(*arrays, **attrs)
        except (ByocError, MemoryError):
            raise
        except Exception as error:
            where = f"kernel of op `{self._op}`"
            raise ExecutionError(where, f"raised {type(error).__name__}: {error}") from error
        return tuple(map(self._to_array, found if isinstance(found, tuple | list) else (found,)))

    def _to_array(self, result: object) -> NDArray:
        if isinstance(result, np.ndarray | np.generic):
            return np.asarray(result)
        raise ExecutionError(
            f"kernel of op `{self._op}`",
            "returned a result of the wrong type",
            got=type_name(result),
            expected="a numpy array, or a tuple of numpy arrays",
        )

    def __repr__(self) -> str:
        return f"<kernel of {self._op}>"


def _read_only(array: NDArray) -> NDArray:
    view = np.asarray(array, order="C").view()
    view.flags.writeable = False
    return view
