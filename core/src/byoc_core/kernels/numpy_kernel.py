"""Kernels as values: functions of numpy arrays that never warn, with facts for callers of many kernels."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass
from functools import lru_cache, update_wrapper
from typing import Any

import numpy as np

from byoc_core.dims import Dim
from byoc_core.kernels.precision import NDArray, working_dtype

__all__ = [
    "KernelForm",
    "NumpyKernel",
    "arithmetic",
    "common_dtype",
    "dtype_of",
    "fixed_dtype",
    "predicate",
    "run_quietly",
]

DType = np.dtype[Any]
ScratchNbytes = Callable[[Sequence[Sequence[Dim]], Sequence[DType], Mapping[str, Any]], Dim]
"""Return bytes from the shapes and dtypes of the operands and the attributes.

If these do not fit each other, the rule may raise the errors of the kernel, or an error of arithmetic, lookup, type or
value.
"""
ResultDType = Callable[[Sequence[DType], Mapping[str, Any]], DType | None]
"""Return the dtype of all results from the dtypes of the operands and the attributes; ``None`` if unknown."""


def common_dtype(dtypes: Sequence[DType], _: Mapping[str, Any]) -> DType | None:
    """Return the dtype shared by all operands; ``None`` if the dtypes differ or there are no operands."""
    return dtypes[0] if dtypes and all(dtype == dtypes[0] for dtype in dtypes) else None


def dtype_of(operand: int) -> ResultDType:
    """Return the rule of results with the dtype of an operand."""
    return lambda dtypes, _: dtypes[operand] if operand < len(dtypes) else None


def fixed_dtype(dtype: str | None) -> ResultDType:
    """Return the rule of results with a fixed dtype; with ``None``, of results with unknown dtype."""
    fixed = None if dtype is None else np.dtype(dtype)
    return lambda _dtypes, _attrs: fixed


PrepareConstants = Callable[[Sequence[NDArray | None], Mapping[str, Any]], Callable[..., Any] | None]
"""Return a kernel function for the constants among the operands (``None`` for others) and the attributes.

The function takes all operands, as the kernel does, and returns the same results; ``None`` if nothing is prepared.
"""

_MEMORY = ("out", "scratch")
"""Keywords of kernel functions other than attributes of the op."""


def _quiet_context() -> Context | None:
    """Return a context without warnings of floating-point errors; ``None`` if numpy (before 2) has no contexts."""
    if int(np.__version__.partition(".")[0]) < 2:
        return None
    context = Context()
    context.run(np.seterr, all="ignore")
    return context


_QUIET = _quiet_context()


def run_quietly(function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
    """Call a function without numpy's warnings of floating-point errors and return the result.

    The function sees none of the caller's context variables.

    Cost: less than half of entering ``np.errstate``, which recomputes the contents of the context.
    """
    if _QUIET is None:
        with np.errstate(all="ignore"):
            return function(*arguments, **keywords)
    return _QUIET.copy().run(function, *arguments, **keywords)


@dataclass(frozen=True, slots=True)
class KernelForm:
    """A form of a kernel for operands of known dtypes and ranks.

    Attributes:
        call: takes the operands and the attributes; the caller must disable numpy's warnings.
        dtype: the dtype of all results; ``None`` if unknown.
        fresh: whether the result shares no memory with an operand.
        takes_out: whether ``call`` takes ``out``: contiguous memory of the result's type. ``call`` may write the result
            to ``out`` and then returns ``out``. Memory of another size or type is refused with ``ValueError`` or
            ``TypeError`` before any write.
        elementwise: whether ``out`` may be the memory of an operand of the same type. ``out`` fits if an operand has
            the shape of ``out``: a smaller result would be broadcast over ``out``.
        scratch: returns the bytes of memory taken by ``call`` as ``scratch`` (one axis, aligned to 64), if any. With
            less or no scratch memory, ``call`` allocates memory.
    """

    call: Callable[..., Any]
    dtype: DType | None
    fresh: bool
    takes_out: bool
    elementwise: bool
    scratch: ScratchNbytes | None = None


class NumpyKernel:
    """A kernel that never warns.

    The plan of a graph (:mod:`byoc_core.runtime.graph.plan`) takes a :class:`KernelForm` once and calls the form; other
    callers call the kernel.

    Args:
        function: computes the op; numpy may warn of floating-point errors in the function. A keyword ``out`` is not an
            attribute of the op, but memory for the result (see :class:`KernelForm`).
        ufunc: the numpy function with the same results, for dtypes with a loop that returns the result's dtype.
        only_floats: whether ``ufunc`` stands for numpy's floats only.
        widens: whether ``function`` is made for the :func:`working_dtype` of the operands; the result is then rounded
            once to the dtype of the first operand.
        fresh: whether no result ever shares memory with an operand.
        elementwise: see :class:`KernelForm`.
        gives: the dtype of the results.
        scratch: the bytes taken by ``function`` in a keyword ``scratch`` (see :class:`KernelForm`).
        prepare: prepares constant operands once, for all calls.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        ufunc: np.ufunc | None = None,
        only_floats: bool = False,
        widens: bool = False,
        fresh: bool = False,
        elementwise: bool = False,
        gives: ResultDType = common_dtype,
        scratch: ScratchNbytes | None = None,
        prepare: PrepareConstants | None = None,
    ) -> None:
        update_wrapper(self, function)
        self._function = function
        self._ufunc = ufunc
        self._only_floats = only_floats
        self._widens = widens
        self._fresh = fresh
        self._elementwise = elementwise
        self._gives = gives
        self._scratch = scratch
        self._prepare = prepare

    @property
    def overwrites_operands(self) -> bool:
        """Whether the result may lie in the memory of an operand of the same type; see :class:`KernelForm`."""
        return self._elementwise

    @property
    def __signature__(self) -> inspect.Signature:
        """The signature of a call: operands by position, attributes by keyword."""
        found = inspect.signature(self._function)
        return found.replace(parameters=[p for name, p in found.parameters.items() if name not in _MEMORY])

    def __call__(self, *operands: NDArray, **attrs: Any) -> Any:
        """Return the op's result, or a tuple of several."""
        return run_quietly(self._compute, *operands, **attrs)

    def form_for(
        self,
        dtypes: Sequence[DType | None],
        ranks: Sequence[int],
        attrs: Mapping[str, Any],
        constants: Sequence[NDArray | None] = (),
    ) -> KernelForm:
        """Return the cheapest form with bit-identical results on operands of these dtypes and ranks.

        A single unknown dtype (``None``) selects a form that examines the operands in each call. Sizes among the
        attributes may be symbolic. The ``constants`` are the operands known before a call.
        """
        if self._prepare is not None and any(constant is not None for constant in constants):
            prepared = self._prepare(constants, attrs)
            if prepared is not None:
                return self._prepared_form(prepared, dtypes, attrs)
        known_dtypes: list[DType] = []
        for operand in dtypes:
            if operand is None:
                return self._form(self._compute, None)
            known_dtypes.append(operand)
        dtype = self._gives(known_dtypes, attrs)
        # numpy's own functions return scalars for arrays without axes.
        if self._ufunc is not None and dtype is not None and any(ranks):
            is_meant = not self._only_floats or all(operand.kind == "f" for operand in known_dtypes)
            if is_meant and _has_loop(self._ufunc, (*known_dtypes, dtype)):
                return KernelForm(self._ufunc, dtype, fresh=True, takes_out=True, elementwise=True)
        is_bare = not self._widens or all(operand == dtype and operand.char in "fd" for operand in known_dtypes)
        return self._form(self._function if is_bare else self._compute, dtype)

    def _prepared_form(
        self, call: Callable[..., Any], dtypes: Sequence[DType | None], attrs: Mapping[str, Any]
    ) -> KernelForm:
        certain_dtypes = [dtype for dtype in dtypes if dtype is not None]
        dtype = self._gives(certain_dtypes, attrs) if len(certain_dtypes) == len(dtypes) else None
        return KernelForm(call, dtype, self._fresh, takes_out=False, elementwise=False)

    def _form(self, call: Callable[..., Any], dtype: DType | None) -> KernelForm:
        is_bare = call is self._function
        return KernelForm(
            call,
            dtype,
            self._fresh,
            takes_out=is_bare and _takes_out(call),
            elementwise=self._elementwise,
            scratch=self._scratch if is_bare else None,
        )

    def _compute(self, *operands: NDArray, **attrs: Any) -> Any:
        if not self._widens:
            return self._function(*operands, **attrs)
        dtype = operands[0].dtype
        wide = working_dtype(dtype)
        result = self._function(*(operand.astype(wide, copy=False) for operand in operands), **attrs)
        return np.asarray(result).astype(dtype, copy=False)


@lru_cache(maxsize=1024)
def _has_loop(ufunc: np.ufunc, dtypes: tuple[DType, ...]) -> bool:
    """Return whether a numpy function takes operands of these dtypes without conversion and returns the last dtype."""
    try:
        return tuple(ufunc.resolve_dtypes((*dtypes[:-1], None))) == dtypes
    except TypeError:
        return False


@lru_cache(maxsize=1024)
def _takes_out(function: Callable[..., Any]) -> bool:
    return "out" in inspect.signature(function).parameters


def arithmetic(ufunc: np.ufunc) -> NumpyKernel:
    """Return a kernel applying a numpy function in the dtype of the operands."""

    # numpy lacks int4 loops for some functions: these compute in int8 and wrap around when cast back to int4.
    def unary(x: NDArray) -> NDArray:
        return np.asarray(ufunc(x)).astype(x.dtype, copy=False)

    def binary(x: NDArray, y: NDArray) -> NDArray:
        return np.asarray(ufunc(x, y)).astype(x.dtype, copy=False)

    return NumpyKernel(unary if ufunc.nin == 1 else binary, ufunc=ufunc, fresh=True)


def predicate(ufunc: np.ufunc) -> NumpyKernel:
    """Return a kernel applying a numpy function with bool results."""

    def unary(x: NDArray) -> NDArray:
        return np.asarray(ufunc(x))

    def binary(x: NDArray, y: NDArray) -> NDArray:
        return np.asarray(ufunc(x, y))

    return NumpyKernel(unary if ufunc.nin == 1 else binary, ufunc=ufunc, fresh=True, gives=fixed_dtype("bool"))
