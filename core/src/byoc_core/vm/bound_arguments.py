"""Arguments bound to a function: fixed arrays of the caller, used in place by each call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from byoc_core.errors import CallError
from byoc_core.runtime.arguments import argument_places, as_input, as_output, bind_symbols, separate_outputs
from byoc_core.runtime.module import NDArray, TensorSpec

__all__ = ["BoundArguments", "fix_arguments"]


@dataclass(frozen=True, slots=True)
class BoundArguments:
    """Fixed arrays of a call.

    Attributes:
        inputs: the arrays read by the function: the caller's, and own arrays of clean bools.
        outputs: the arrays written by the function.
        sizes: the size of each symbol.
        clean: by index of an input of bools, the array of the caller.
    """

    inputs: Sequence[NDArray]
    outputs: Sequence[NDArray]
    sizes: dict[str, int]
    clean: Mapping[int, NDArray]

    def refresh(self) -> None:
        """Copy the bools of the caller: any byte other than 0 is true."""
        for index, array in self.clean.items():
            np.not_equal(array.view(np.uint8), 0, out=self.inputs[index])


def fix_arguments(
    where: str,
    params: Sequence[TensorSpec],
    results: Sequence[TensorSpec],
    inputs: Mapping[str, object],
    out: Mapping[str, object],
    new_outputs: Callable[[dict[str, int]], list[NDArray]],
    known_sizes: Mapping[str, int] | None = None,
) -> BoundArguments:
    """Return the arguments of a bound function.

    Args:
        where: the function, for errors.
        params: the inputs of the function.
        results: the results of the function; the inputs and known sizes determine all sizes.
        inputs: the arrays of the inputs, by name; the names are checked already.
        out: buffers for some results, by name.
        new_outputs: returns a fresh buffer for each result.
        known_sizes: the sizes known without inputs, by symbol.

    Raises:
        CallError: an argument is unfit, in need of a copy, or overlapping.
    """
    locations = argument_places(where, "input", params)
    arrays = [as_input(inputs[spec.name], spec, locations[i], is_fixed=True) for i, spec in enumerate(params)]
    for index, (spec, array) in enumerate(zip(params, arrays, strict=True)):
        _check_fixed(array, inputs[spec.name], locations[index])
    sizes = bind_symbols(params, arrays, locations, sizes=dict(known_sizes or {}))
    locations = argument_places(where, "output", results)
    outputs = new_outputs(sizes)
    for index, spec in enumerate(results):
        if spec.name in out:
            outputs[index] = as_output(out[spec.name], spec, locations[index])
            _check_fixed(outputs[index], out[spec.name], locations[index])
    bind_symbols(results, outputs, locations, sizes=dict(sizes))
    buffers, finish = separate_outputs(arrays, outputs, locations)
    if finish is not None:
        index = next(i for i, (own, output) in enumerate(zip(buffers, outputs, strict=True)) if own is not output)
        raise CallError(locations[index], "cannot be bound: the buffer shares memory with an input")
    bools = {index: arrays[index] for index, spec in enumerate(params) if spec.dtype == "bool"}
    fixed = [np.empty_like(array) if index in bools else array for index, array in enumerate(arrays)]
    return BoundArguments(fixed, outputs, sizes, bools)


def _check_fixed(array: NDArray, value: object, where: str) -> None:
    """Check an argument for permanent use in place, without a copy."""
    is_copy = array is not value and array.flags.owndata
    if is_copy or not (array.flags.c_contiguous and array.flags.aligned):
        raise CallError(
            where,
            "cannot be bound: each call would copy the array",
            expected="a C-contiguous and aligned array",
        )
