"""Buckets of sizes: inputs are padded to few sizes, and results are cut to the sizes of the call.

Serving systems of static-shape engines do the same: every size costs a preparation, so calls share a few sizes. The
results are right if what lies behind the inputs has no effect on the part kept: texts behind the texts of a batch, or
steps hidden by a mask. The caller knows this of a model, and :func:`relative_difference` measures it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from byoc_core.dims import bound_symbols, shape_symbols
from byoc_core.dtypes import dtype_info, dtype_name, to_numpy
from byoc_core.errors import CallError, OptionsError, near_names
from byoc_core.runtime.arguments import argument_places, as_input, as_output, bind_symbols, concrete_shape
from byoc_core.runtime.module import NDArray, TensorSpec
from byoc_core.session.values import ValueInfo

__all__ = ["EDGE", "BucketedCall", "Buckets", "relative_difference"]

EDGE = "edge"
"""The padding repeating the last index of an axis."""


class Buckets:
    """The permitted sizes of some symbols.

    A size is rounded up to the next bucket. A size of 0, and a size above the last bucket, stays as it is.

    Args:
        inputs: the inputs of the session.
        outputs: the outputs of the session.
        sizes: the buckets of each symbol, in any order.
        padding: the value behind an input, by name: a number, or :data:`EDGE`; 0 by default.

    Attributes:
        sizes: the buckets of each symbol, rising.

    Raises:
        OptionsError: a symbol, a bucket, a name or a value is none of the model's, a padded value is no tensor, or the
            size of an output is known only after the run, so the output cannot be cut.
    """

    def __init__(
        self,
        inputs: Sequence[ValueInfo],
        outputs: Sequence[ValueInfo],
        sizes: Mapping[str, Sequence[int]],
        padding: Mapping[str, Any],
    ) -> None:
        if not isinstance(sizes, Mapping):
            raise OptionsError("buckets", "are not given by symbol", got=type(sizes).__name__, expected="a mapping")
        symbols = {name for value in inputs for spec in value.specs for name in shape_symbols(spec.shape)}
        self.sizes: dict[str, tuple[int, ...]] = {}
        for name, buckets in sizes.items():
            if name not in symbols:
                raise _unknown_name("buckets", "size of the inputs", name, symbols)
            self.sizes[name] = _checked_buckets(name, buckets)
        self._input_specs = [spec for value in inputs for spec in value.specs]
        self._output_specs = [spec for value in outputs for spec in value.specs]
        input_symbols = bound_symbols(spec.shape for spec in self._input_specs)
        for value in (*inputs, *outputs):
            self._check_form(value)
        for spec in self._output_specs:
            if unknown := shape_symbols(spec.shape) - input_symbols:
                raise OptionsError(
                    "buckets",
                    f"output `{spec.name}` cannot be cut: its size {', '.join(sorted(unknown))} is known only after"
                    " the run",
                )
        self._locations = argument_places("session", "input", self._input_specs)
        self._padding = self._checked_padding(padding)

    def pad(self, feeds: Mapping[str, object]) -> BucketedCall:
        """Return the inputs of a call at the sizes of the buckets.

        Args:
            feeds: the array of every input, by name.

        Raises:
            CallError: an input does not fit, or has a size falling with the size of a symbol.
        """
        pairs = list(zip(self._input_specs, self._locations, strict=True))
        arrays = [as_input(feeds[spec.name], spec, location) for spec, location in pairs]
        sizes = bind_symbols(self._input_specs, arrays, self._locations)
        padded_sizes = {name: _round_up(size, self.sizes.get(name, ())) for name, size in sizes.items()}
        if padded_sizes == sizes:
            return BucketedCall(feeds, self._output_specs, sizes, is_padded=False)
        padded = {
            spec.name: self._padded(array, concrete_shape(spec, padded_sizes, location), spec.name, location)
            for (spec, location), array in zip(pairs, arrays, strict=True)
        }
        return BucketedCall(padded, self._output_specs, sizes, is_padded=True)

    def _padded(self, array: NDArray, shape: tuple[int, ...], name: str, location: str) -> NDArray:
        if array.shape == shape:
            return array
        widths = [(0, new - old) for old, new in zip(array.shape, shape, strict=True)]
        if any(width < 0 for _, width in widths):
            raise CallError(location, "cannot be padded: a size falls as the size of a symbol rises", got=list(shape))
        value = self._padding.get(name, 0)
        if isinstance(value, str) and array.size:
            return np.pad(array, widths, mode="edge")
        padded = np.full(shape, 0 if isinstance(value, str) else value, array.dtype)
        padded[tuple(slice(size) for size in array.shape)] = array
        return padded

    def _check_form(self, value: ValueInfo) -> None:
        if value.form == "tensor":
            return
        found = {name for spec in value.specs for name in shape_symbols(spec.shape)}
        if found.intersection(self.sizes):
            raise OptionsError("buckets", f"`{value.name}` is no tensor, and cannot be padded", got=value.form)

    def _checked_padding(self, padding: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(padding, Mapping):
            raise OptionsError("padding", "is not given by input", got=type(padding).__name__, expected="a mapping")
        dtypes = {spec.name: to_numpy(spec.dtype) for spec in self._input_specs}
        return {name: _checked_value(name, value, dtypes) for name, value in padding.items()}


class BucketedCall:
    """The inputs of a call at the sizes of the buckets, and the results of the call.

    Attributes:
        arrays: the inputs, by name.
        is_padded: whether an input is longer than given.
    """

    def __init__(
        self, arrays: Mapping[str, Any], output_specs: Sequence[TensorSpec], sizes: dict[str, int], *, is_padded: bool
    ) -> None:
        self.arrays, self.is_padded = arrays, is_padded
        self._output_specs, self._sizes = output_specs, sizes

    def cut(self, results: Iterable[NDArray], out: Mapping[str, object]) -> list[NDArray]:
        """Return results at the sizes of the call: C-contiguous arrays, or the buffers of ``out``.

        Raises:
            CallError: a buffer does not fit.
        """
        locations = argument_places("session", "output", self._output_specs)
        found = []
        for spec, location, result in zip(self._output_specs, locations, results, strict=True):
            shape = concrete_shape(spec, self._sizes, location)
            if shape != result.shape:
                result = np.ascontiguousarray(result[tuple(map(slice, shape))])
            if spec.name in out:
                buffer = as_output(out[spec.name], spec, location)
                if buffer.shape != shape:
                    raise CallError(location, "has the wrong shape", got=list(buffer.shape), expected=list(shape))
                buffer[...] = result
                result = buffer
            found.append(result)
        return found


def relative_difference(found: NDArray, expected: NDArray) -> float:
    """Return the largest difference of two results, over the largest magnitude of the expected; NaN equals NaN."""
    wide = np.complex128 if np.iscomplexobj(expected) else np.float64
    left, right = found.astype(wide), expected.astype(wide)
    same = (left == right) | ((left != left) & (right != right))
    if same.all():
        return 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        differences = np.abs(left - right)[~same]
    scale = np.abs(right[np.isfinite(right)]).max(initial=0.0)
    largest = float(differences.max())
    return largest / scale if np.isfinite(largest) and scale else float("inf")


def _checked_buckets(name: str, buckets: Any) -> tuple[int, ...]:
    items = list(buckets) if isinstance(buckets, Iterable) and not isinstance(buckets, str) else [buckets]
    for size in items:
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
            raise OptionsError(f"buckets of `{name}`", "hold no size", got=repr(size), expected="an integer, 1 or more")
    if not items:
        raise OptionsError(f"buckets of `{name}`", "are empty", expected="a size or several")
    return tuple(sorted(set(map(int, items))))


def _checked_value(name: str, value: Any, dtypes: Mapping[str, np.dtype[Any]]) -> Any:
    if name not in dtypes:
        raise _unknown_name("padding", "input", name, dtypes)
    if isinstance(value, str):
        if value != EDGE:
            raise OptionsError(f"padding of `{name}`", "is unknown", got=repr(value), expected=f"a number or {EDGE!r}")
        return value
    is_complex = np.iscomplexobj(value) and dtypes[name].kind != "c"
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            converted = np.asarray(value).astype(dtypes[name]) if not is_complex else np.empty(1)
        is_float = dtype_info(dtype_name(dtypes[name])).kind in ("float", "complex")
        is_exact = converted.ndim == 0 and bool(
            np.isfinite(converted.astype(np.complex128)) == np.isfinite(value)
            if is_float
            else converted == np.asarray(value)
        )
    except (TypeError, ValueError, OverflowError):
        is_exact = False
    if not is_exact:
        raise OptionsError(f"padding of `{name}`", f"is no number of {dtypes[name]}", got=repr(value))
    return converted[()]


def _unknown_name(option: str, kind: str, name: object, names: Iterable[str]) -> OptionsError:
    listed = sorted(names)
    return OptionsError(
        option,
        f"`{name}` is no {kind}",
        expected=", ".join(listed) or f"no {kind} at all",
        hint=near_names(str(name), listed) or None,
    )


def _round_up(size: int, buckets: Sequence[int]) -> int:
    index = bisect_left(buckets, size)
    return buckets[index] if size and index < len(buckets) else size
