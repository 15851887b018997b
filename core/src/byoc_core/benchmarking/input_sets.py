"""The sets of inputs of a benchmark, given or drawn at random."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from byoc_core.dims import shape_symbols
from byoc_core.errors import CallError, OptionsError, near_names
from byoc_core.runtime.arguments import argument_places, as_input, bind_symbols
from byoc_core.runtime.drawn_inputs import draw_inputs
from byoc_core.runtime.module import NDArray, Signature

__all__ = ["Arrays", "Inputs", "batch_symbol", "sets_of_inputs"]

Inputs = Mapping[str, object]
Arrays = Mapping[str, NDArray]


def sets_of_inputs(
    signature: Signature,
    function: str,
    inputs: Inputs | Sequence[Inputs] | None,
    sizes: Mapping[str, int | Sequence[int]],
    seed: int,
) -> list[Arrays]:
    """Return the given sets of inputs, checked, or drawn sets of inputs.

    Args:
        signature: of the function.
        function: the name of the function, for errors.
        inputs: a set of inputs by name, or several; ``None`` to draw inputs.
        sizes: a size or several for each symbol of drawn inputs.
        seed: of drawn inputs.

    Raises:
        OptionsError: sizes are given beside inputs, a size is unknown, or there is no set.
        CallError: an input is missing or does not fit.
    """
    if inputs is None:
        return [draw_inputs(signature.inputs, numbers, seed) for numbers in _combinations(signature, sizes)]
    if sizes:
        raise OptionsError("bench, sizes", "are given beside inputs", expected="sizes of drawn inputs")
    sets = [inputs] if isinstance(inputs, Mapping) else list(inputs)
    if not sets:
        raise OptionsError("bench, inputs", "is an empty list", expected="a set of inputs, or several")
    return [_checked_inputs(signature, function, arrays) for arrays in sets]


def _combinations(signature: Signature, sizes: Mapping[str, int | Sequence[int]]) -> list[dict[str, int]]:
    """Return each size of a symbol with each size of other symbols."""
    symbols = sorted(shape_symbols(dim for spec in signature.inputs for dim in spec.shape))
    for name in sizes:
        if name not in symbols:
            raise OptionsError(
                f"bench, size `{name}`",
                "is not a symbolic size of the inputs",
                expected=", ".join(symbols) or "no size: all sizes are fixed",
                hint=near_names(name, symbols) or None,
            )
    lists = [[numbers] if isinstance(numbers, int) else list(numbers) for numbers in sizes.values()]
    return [dict(zip(sizes, numbers, strict=True)) for numbers in itertools.product(*lists)]


def _checked_inputs(signature: Signature, function: str, inputs: Inputs) -> Arrays:
    where = f"function `{function}`"
    names = [spec.name for spec in signature.inputs]
    for name in inputs:
        if name not in names:
            hint = near_names(name, names) or None
            raise CallError(where, f"has no input `{name}`", expected=", ".join(names), hint=hint)
    if missing := [name for name in names if name not in inputs]:
        raise CallError(where, f"lacks input {', '.join(f'`{name}`' for name in missing)}")
    locations = argument_places(where, "input", signature.inputs)
    arrays = [as_input(inputs[spec.name], spec, locations[index]) for index, spec in enumerate(signature.inputs)]
    bind_symbols(signature.inputs, arrays, locations)
    return dict(zip(names, arrays, strict=True))


def batch_symbol(signature: Signature) -> str | None:
    """Return the symbol in front of all inputs with axes; ``None`` without such a symbol."""
    first = {str(spec.shape[0]) for spec in signature.inputs if spec.shape}
    symbols = shape_symbols(dim for spec in signature.inputs for dim in spec.shape)
    return next((name for name in first if len(first) == 1 and name in symbols), None)
