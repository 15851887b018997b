"""Arguments of a packed function: conversion to numpy, checks against a signature, overlap of outputs with inputs.

Both :func:`call_checked` (a direct call of a module's function) and the VM (a call of a whole program) use these
pieces, so a wrong argument is reported in the same words in both cases. Implementations check nothing again: machine
code called with a wrong array reads or writes foreign memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeGuard, overload

import numpy as np

from byoc_core.dims import Dim, DimExpr, evaluate, solve_symbol, substitute, symbol, symbols_of
from byoc_core.dtypes import to_numpy
from byoc_core.errors import CallError, IRTypeError
from byoc_core.runtime.dlpack import from_dlpack, writable_tensor
from byoc_core.runtime.module import NDArray, PackedFunction, Signature, TensorSpec

__all__ = [
    "BOOL",
    "argument_places",
    "as_input",
    "as_output",
    "bind_symbols",
    "call_checked",
    "check_dtype_and_rank",
    "check_returned",
    "concrete_shape",
    "has_clean_bools",
    "join_inputs",
    "separate_outputs",
]

BOOL = np.dtype(np.bool_)


class Shaped(Protocol):
    """A value with a shape: an array of the host, or a tensor of a device."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""
        ...


class Typed(Shaped, Protocol):
    """A value with a dtype and a shape."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype."""
        ...

    @property
    def ndim(self) -> int:
        """The number of axes."""
        ...


_numpy_dtype = lru_cache(maxsize=None)(to_numpy)
# Bound on the exact overlap test of two outputs, which is exponential in the worst case.
_OVERLAP_WORK = 10_000


def call_checked(function: PackedFunction, arguments: Sequence[object]) -> tuple[NDArray, ...] | None:
    """Check the arguments of a packed function, run the function, and copy results back from temporaries.

    A function without a signature gets its arguments unchanged.

    Args:
        function: the function to call.
        arguments: inputs, then outputs (none for a function that returns its results): numpy arrays or objects with
            ``__dlpack__``. Inputs are copied only if not C-contiguous; an output is written through a temporary only if
            not C-contiguous or overlapping an input.

    Returns:
        The results, in separate arrays, if the function returns results; else ``None``.

    Raises:
        CallError: wrong count, dtype, rank or shape, a read-only output, or two overlapping outputs; names the argument
            by position and name.
    """
    signature = function.signature
    if signature is None:
        function.impl(*arguments)
        return None
    if function.returns_results:
        return _call_returning(function, signature, arguments)
    where = f"function `{function.name}`"
    num_inputs, num_outputs = len(signature.inputs), len(signature.outputs)
    if len(arguments) != num_inputs + num_outputs:
        raise CallError(
            where,
            "wrong number of arguments",
            got=len(arguments),
            expected=f"{num_inputs + num_outputs}: {num_inputs} inputs and {num_outputs} outputs"
            f" ({', '.join(spec.name for spec in (*signature.inputs, *signature.outputs))})",
        )
    input_locations = argument_places(where, "input", signature.inputs)
    output_locations = argument_places(where, "output", signature.outputs)
    inputs = [
        value if _is_ready(value, spec) else as_input(value, spec, input_locations[index])
        for index, (value, spec) in enumerate(zip(arguments, signature.inputs, strict=False))
    ]
    outputs = [
        as_output(value, spec, output_locations[index])
        for index, (value, spec) in enumerate(zip(arguments[num_inputs:], signature.outputs, strict=True))
    ]
    sizes = bind_symbols(signature.inputs, inputs, input_locations)
    bind_symbols(signature.outputs, outputs, output_locations, sizes=sizes)
    buffers, finish = separate_outputs(inputs, outputs, output_locations)
    function.impl(*inputs, *buffers)
    if finish is not None:
        finish()
    return None


def _call_returning(function: PackedFunction, signature: Signature, arguments: Sequence[object]) -> tuple[NDArray, ...]:
    where = f"function `{function.name}`"
    if len(arguments) != len(signature.inputs):
        new_symbols = ", ".join(sorted(signature.new_symbols))
        raise CallError(
            where,
            "wrong number of arguments",
            got=len(arguments),
            expected=f"{len(signature.inputs)} inputs ({', '.join(spec.name for spec in signature.inputs) or 'none'})",
            hint=f"The function returns its results: the size {new_symbols} is known only after a run.",
        )
    locations = argument_places(where, "input", signature.inputs)
    inputs = [
        as_input(v, spec, locations[i]) for i, (v, spec) in enumerate(zip(arguments, signature.inputs, strict=True))
    ]
    sizes = bind_symbols(signature.inputs, inputs, locations)
    return tuple(check_returned(where, function.impl(*inputs), signature.outputs, inputs, sizes))


def check_returned(
    where: str, returned: object, specs: Sequence[TensorSpec], other_arrays: Sequence[NDArray], sizes: dict[str, int]
) -> list[NDArray]:
    """Check the results of a function and return arrays; copy results that share memory with other arrays.

    Args:
        where: the function, for errors.
        returned: an array, or a tuple or list of arrays.
        specs: the declared results.
        other_arrays: arrays of other owners; a result with memory of these arrays is copied.
        sizes: symbols known before; extended in place by the symbols determined by the results.

    Raises:
        CallError: wrong count, dtype, rank or shape.
    """
    values: Sequence[object] = returned if isinstance(returned, tuple | list) else (returned,)
    if len(values) != len(specs):
        raise CallError(f"{where}, returned values", "wrong number of values", got=len(values), expected=len(specs))
    locations = argument_places(where, "returned value", specs)
    arrays = [as_input(value, spec, location) for value, spec, location in zip(values, specs, locations, strict=True)]
    for index, array in enumerate(arrays):
        if any(np.may_share_memory(array, other) for other in (*other_arrays, *arrays[:index])):
            arrays[index] = array.copy()
    bind_symbols(specs, arrays, locations, sizes=sizes)
    return arrays


class _ArgumentLocations(Sequence[str]):
    """Names of arguments for errors, formatted on request: most calls have no error."""

    __slots__ = ("_role", "_specs", "_where")

    def __init__(self, where: str, role: str, specs: Sequence[TensorSpec]) -> None:
        self._where = where
        self._role = role
        self._specs = specs

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        return f"{self._where}, {self._role} {index} `{self._specs[index].name}`"

    def __len__(self) -> int:
        return len(self._specs)


def argument_places(where: str, role: str, specs: Sequence[TensorSpec]) -> Sequence[str]:
    """Return the names of the arguments for errors, such as ``function `f`, input 0 `x```.

    Args:
        where: the function, for errors.
        role: ``"input"`` or ``"output"``.
        specs: the arguments, in order.
    """
    return _ArgumentLocations(where, role, specs)


def join_inputs(
    where: str, names: Sequence[str], inputs: Sequence[object], named: Mapping[str, object]
) -> dict[str, object]:
    """Return the inputs of a call by name: those by position first, then those by keyword.

    Args:
        where: the callee, for errors.
        names: the names of the inputs, in order.
        inputs: the inputs by position.
        named: the inputs by keyword; names are not checked.

    Raises:
        CallError: there are more inputs than names, or an input is given twice.
    """
    if len(inputs) > len(names):
        expected = f"{len(names)}: {', '.join(names) or 'none'}"
        raise CallError(where, "wrong number of inputs", got=len(inputs), expected=expected)
    joined = dict(zip(names, inputs, strict=False))
    for name in named:
        if name in joined:
            raise CallError(where, f"gets input `{name}` twice, by position and by keyword")
    return {**joined, **named}


def has_clean_bools(array: NDArray) -> bool:
    """Return whether every byte of an array of bools is 0 or 1. Cost: one pass over the bytes."""
    return array.size == 0 or bool(array.view(np.uint8).max() <= 1)


def as_input(value: object, spec: TensorSpec, where: str, *, is_fixed: bool = False) -> NDArray:
    """Return an argument as a C-contiguous, aligned numpy array of the declared dtype and rank.

    A conforming numpy array is returned unchanged; sizes are checked by :func:`bind_symbols`. A view of other bytes may
    hold bools with bytes other than 0 and 1. Such bools are returned as a copy with 1 in place of the other bytes:
    kernels compute on the bytes.

    Args:
        value: a numpy array or scalar, or an object with ``__dlpack__`` in CPU-readable memory.
        spec: the declaration in the signature.
        where: the argument, for errors.
        is_fixed: whether the caller reads the same memory again later, and cleans bools then.

    Raises:
        CallError: the value is no array, or has another dtype or rank.
    """
    array = value if type(value) is np.ndarray else _to_array(value, where)
    check_dtype_and_rank(array, spec, where)
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned):
        array = np.array(array, order="C", copy=True)
    if array.dtype is BOOL and not is_fixed and not has_clean_bools(array):
        return np.not_equal(array.view(np.uint8), 0)
    return array


def as_output(value: object, spec: TensorSpec, where: str) -> NDArray:
    """Return an output argument as a writable numpy array of the declared dtype and rank (not always contiguous).

    Args:
        value: a numpy array, or an object with ``__dlpack__`` and writable memory readable by the CPU.
        spec: the declaration in the signature.
        where: the argument, for errors.

    Raises:
        CallError: the value is no array, has another dtype or rank, is read-only, or has elements with shared memory.
    """
    if type(value) is np.ndarray:
        array = value
    else:
        if isinstance(value, np.generic):
            raise CallError(where, "a numpy scalar cannot be written", hint="Pass an array without axes.")
        array = _to_array(value, where)
        if not array.flags.writeable:
            array = _writable_view(value, array, where)
    check_dtype_and_rank(array, spec, where)
    if not array.flags.writeable:
        is_numpy = isinstance(value, np.ndarray)
        other = "The tensor's package exports read-only memory. Pass a writable tensor, or a writable numpy array."
        raise CallError(where, "is read-only", hint="Pass a writable array." if is_numpy else other)
    if not array.flags.c_contiguous and _may_overlap_itself(array):
        raise CallError(where, "several elements share the same memory", hint="Pass an array with separate elements.")
    return array


def bind_symbols(
    specs: Sequence[TensorSpec],
    arrays: Sequence[Shaped],
    places: Sequence[str] | None = None,
    *,
    sizes: dict[str, int] | None = None,
) -> dict[str, int]:
    """Check the shapes of arrays against their specs and return the size of every symbol determined by the shapes.

    A dimension determines a symbol if linear in this symbol; a symbol determined by no shape stays unbound.

    Args:
        specs: declared shapes with common symbols.
        arrays: as many arrays, of the declared ranks.
        places: the arguments, for errors.
        sizes: symbols known already; extended in place.

    Raises:
        CallError: a size is not the declared one, or contradicts the size of its symbol elsewhere.
    """
    sizes = {} if sizes is None else sizes
    open_shapes: list[tuple[int, int]] = []
    for index, (spec, array) in enumerate(zip(specs, arrays, strict=True)):
        if array.shape == spec.shape:
            continue
        for axis, (dim, size) in enumerate(zip(spec.shape, array.shape, strict=True)):
            if dim == size:
                continue
            if not _bind_dim(dim, size, sizes):
                open_shapes.append((index, axis))
    # Dims of several symbols: repeat until no further dim can be decided.
    while open_shapes:
        rest = [
            (index, axis)
            for index, axis in open_shapes
            if not _bind_dim(specs[index].shape[axis], arrays[index].shape[axis], sizes)
        ]
        if len(rest) == len(open_shapes):
            break
        open_shapes = rest
    for index, axis in open_shapes:
        if _is_decided(specs[index].shape[axis], sizes):
            where = places[index] if places else argument_places("arguments", "argument", specs)[index]
            raise CallError(
                where,
                f"axis {axis} has the wrong size",
                got=list(arrays[index].shape),
                expected=_shape_text(specs[index], sizes),
            )
    return sizes


def concrete_shape(spec: TensorSpec, sizes: dict[str, int], where: str) -> tuple[int, ...]:
    """Return the shape of a tensor for known symbols.

    Raises:
        CallError: a symbol is not known, or a computed size is negative.
    """
    shape: list[int] = []
    for dim in spec.shape:
        try:
            size = evaluate(dim, sizes)
        except IRTypeError as error:
            unknown = ", ".join(sorted(symbols_of(dim) - sizes.keys()))
            if unknown:
                text = f"size {dim} is not determined by the inputs: {unknown} is unknown"
            else:
                text = f"size {dim} cannot be computed: {error.problem}"
            raise CallError(where, text) from error
        if size < 0:
            raise CallError(where, f"size {dim} is negative", got=size)
        shape.append(size)
    return tuple(shape)


def separate_outputs(
    inputs: Sequence[NDArray], outputs: Sequence[NDArray], locations: Sequence[str]
) -> tuple[list[NDArray], Callable[[], None] | None]:
    """Return output buffers that overlap no input, and a function to call after the run.

    A contiguous output without overlap with an input is used directly. Any other output gets a temporary; the second
    value then copies the temporaries back, and is ``None`` without temporaries.

    Cost: ``O(inputs x outputs)`` comparisons of address ranges.

    Raises:
        CallError: two outputs overlap.
    """
    for index, output in enumerate(outputs):
        for earlier in range(index):
            if _overlaps(outputs[earlier], output):
                raise CallError(locations[index], "overlaps another output", got=locations[earlier].rpartition(", ")[2])
    buffers: list[NDArray] = []
    copies: list[tuple[NDArray, NDArray]] = []
    for output in outputs:
        flags = output.flags
        if flags.c_contiguous and flags.aligned and not any(np.may_share_memory(output, array) for array in inputs):
            buffers.append(output)
        else:
            temporary = np.empty(output.shape, output.dtype)
            buffers.append(temporary)
            copies.append((output, temporary))
    if not copies:
        return buffers, None

    def finish() -> None:
        for target, temporary in copies:
            target[...] = temporary

    return buffers, finish


def _is_ready(value: object, spec: TensorSpec) -> TypeGuard[NDArray]:
    """Return whether an input needs no conversion: the common case, decided in a few attribute reads."""
    if type(value) is not np.ndarray or value.dtype != _numpy_dtype(spec.dtype) or value.ndim != len(spec.shape):
        return False
    flags = value.flags
    return flags.c_contiguous and flags.aligned and (value.dtype is not BOOL or has_clean_bools(value))


def _to_array(value: object, where: str) -> NDArray:
    if isinstance(value, np.ndarray):
        return value.view(np.ndarray)
    if isinstance(value, np.generic):
        return np.asarray(value)
    return from_dlpack(value, where)


def _writable_view(value: object, array: NDArray, where: str) -> NDArray:
    """Return a writable array of the same memory, if the owner permits writes; otherwise ``array``.

    DLPack before version 1 cannot mark memory as read-only: numpy assumes read-only memory, but a producer of read-only
    memory has to refuse such an export. The object's own numpy view tells if there is one.
    """
    if not hasattr(value, "__array__"):
        found = writable_tensor(value, where)
        return array if found is None else found
    view = np.asarray(value)
    is_same = view.ctypes.data == array.ctypes.data and view.strides == array.strides and view.dtype == array.dtype
    return view if is_same else array


def check_dtype_and_rank(array: Typed, spec: TensorSpec, where: str) -> None:
    """Check dtype and rank of an array against a spec.

    Raises:
        CallError: the array has another dtype or rank.
    """
    expected = _numpy_dtype(spec.dtype)
    if array.dtype != expected:
        raise CallError(where, "wrong dtype", got=array.dtype, expected=spec.dtype)
    if array.ndim != len(spec.shape):
        raise CallError(
            where,
            "wrong rank",
            got=f"{array.ndim}, shape {list(array.shape)}",
            expected=f"{len(spec.shape)}, shape {_shape_text(spec, {})}",
        )


def _bind_dim(dim: Dim, size: int, sizes: dict[str, int]) -> bool:
    """Decide one dimension, perhaps binding a symbol; return ``False`` if wrong or not yet decidable."""
    try:
        if isinstance(dim, int) or dim.symbols <= sizes.keys():
            return evaluate(dim, sizes) == size
        value = substitute(dim, sizes)
    except IRTypeError:
        return False
    if isinstance(value, int):
        return value == size
    solved = solve_symbol(value, size)
    if solved is None:
        return False
    sizes[solved[0]] = solved[1]
    return True


def _is_decided(dim: Dim, sizes: dict[str, int]) -> bool:
    """Return whether an open dimension is certainly wrong, not just undetermined."""
    try:
        value = substitute(dim, sizes)
    except IRTypeError:
        return True
    if isinstance(value, int):
        return True
    names = symbols_of(value)
    if len(names) != 1:
        return False
    (name,) = names
    # Linear: one more of the symbol adds the same number everywhere; then no size of the symbol fits.
    return isinstance(substitute(value, {name: symbol(name) + 1}) - value, int)


def _shape_text(spec: TensorSpec, sizes: dict[str, int]) -> str:
    text = f"[{', '.join(map(str, spec.shape))}]"
    names = sorted(frozenset().union(*(symbols_of(dim) for dim in spec.shape if isinstance(dim, DimExpr))))
    bound = [f"{name} = {sizes[name]}" for name in names if name in sizes]
    return text + (f" with {', '.join(bound)}" if bound else "")


def _may_overlap_itself(array: NDArray) -> bool:
    """Return whether elements may share memory: some axis has a smaller stride than the span of the inner axes."""
    span = array.itemsize
    for stride, size in sorted((abs(stride), size) for stride, size in zip(array.strides, array.shape, strict=True)):
        if size > 1:
            if stride < span:
                return True
            span += stride * (size - 1)
    return False


def _overlaps(left: NDArray, right: NDArray) -> bool:
    if not np.may_share_memory(left, right):
        return False
    bounded: Callable[..., bool] = np.shares_memory
    try:
        return bounded(left, right, max_work=_OVERLAP_WORK)
    except np.exceptions.TooHardError:
        return True
