"""A test vector: inputs of a function, and the outputs computed by the virtual machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from byoc_core.dims import solve_symbol, symbols_of
from byoc_core.errors import ByocError, CallError
from byoc_core.runtime.drawn_inputs import draw_input
from byoc_core.runtime.module import NDArray, Signature

if TYPE_CHECKING:
    from byoc_core.artifact.executable import Executable
    from byoc_core.vm.program import VMFunction

__all__ = ["TestVector", "make_test_vector"]

_SEED = 0
_SMALL_SIZES = (3, 4, 2, 1, 8, 6, 16)


@dataclass(frozen=True, slots=True)
class TestVector:
    """Inputs and expected outputs of a function.

    Attributes:
        function: the function.
        sizes: the size of each symbol.
        inputs: the arrays of the inputs, in order.
        outputs: the expected arrays of the outputs, in order.
    """

    function: str
    sizes: Mapping[str, int]
    inputs: tuple[NDArray, ...]
    outputs: tuple[NDArray, ...]


def make_test_vector(
    executable: Executable, max_sizes: Mapping[str, int] | None, test_inputs: Mapping[str, NDArray] | None
) -> TestVector | None:
    """Return a test vector of ``main``, or of the first function.

    Args:
        executable: the model.
        max_sizes: the largest size of each symbol, taken as the size of drawn inputs; ``None``: small sizes.
        test_inputs: the inputs by name; inputs left out are drawn at random, with a fixed seed.

    Returns:
        The test vector; ``None`` if no inputs are given, and the model fails with drawn inputs of several sizes or
        this machine cannot run the executable.

    Raises:
        CallError: an unknown input is given, or the model fails with the given inputs.
    """
    from byoc_core.vm.machine import VirtualMachine

    signatures = executable.functions
    function = "main" if "main" in signatures else next(iter(signatures))
    signature = signatures[function]
    names = [spec.name for spec in signature.inputs]
    unknown = [name for name in test_inputs or {} if name not in names]
    if unknown:
        names_text = ", ".join(names) or "no input"
        raise CallError("option `test_inputs`", f"names an unknown input `{unknown[0]}`", expected=names_text)
    arrays = {name: np.asarray(array, order="C") for name, array in (test_inputs or {}).items()}
    program_function = next(item for item in executable.program.functions if item.name == function)
    for sizes in _candidate_sizes(signature, max_sizes, arrays, _first_lengths(program_function)):
        generator = np.random.default_rng(_SEED)
        inputs = {
            spec.name: arrays[spec.name] if spec.name in arrays else draw_input(generator, spec, sizes)
            for spec in signature.inputs
        }
        try:
            results = VirtualMachine(executable).run(function, inputs)
        except ByocError:
            if arrays:
                raise
            continue
        outputs = results if isinstance(results, tuple) else (results,)
        expected = tuple(np.asarray(array, order="C") for array in outputs)
        return TestVector(function, sizes, tuple(inputs.values()), expected)
    return None


def _candidate_sizes(
    signature: Signature,
    max_sizes: Mapping[str, int] | None,
    test_inputs: Mapping[str, NDArray],
    lengths: Mapping[str, int],
) -> Iterator[dict[str, int]]:
    """Yield sizes of all symbols: implied by a given input, else the largest, else small sizes; ``lengths`` stay.

    Raises:
        CallError: a size of a given input exceeds the largest size.
    """
    implied = {**_implied_sizes(signature, test_inputs), **lengths}
    largest = dict(max_sizes or {})
    for name, size in implied.items():
        if size > largest.get(name, size):
            raise CallError(
                "option `test_inputs`",
                f"exceeds the largest size of `{name}`",
                got=size,
                expected=f"{largest[name]} or less",
            )
    symbols = sorted({name for spec in signature.inputs for dim in spec.shape for name in symbols_of(dim)} | {*lengths})
    if largest:
        yield {name: implied.get(name, largest[name]) for name in symbols}
    if test_inputs and largest:
        return
    # Some models need even sizes, or equal sizes.
    for small in _SMALL_SIZES:
        yield {name: implied.get(name, min(small, largest.get(name, small))) for name in symbols}


def _first_lengths(function: VMFunction) -> dict[str, int]:
    """Return the moving lengths of states before the first call, by symbol."""
    return {str(function.params[s.param].shape[s.axis]): 0 for s in function.states if s.axis is not None}


def _implied_sizes(signature: Signature, test_inputs: Mapping[str, NDArray]) -> dict[str, int]:
    found: dict[str, int] = {}
    for spec in signature.inputs:
        shape = test_inputs[spec.name].shape if spec.name in test_inputs else ()
        for dim, size in zip(spec.shape, shape, strict=False):
            solved = solve_symbol(dim, size)
            if solved is not None:
                found.setdefault(*solved)
    return found
