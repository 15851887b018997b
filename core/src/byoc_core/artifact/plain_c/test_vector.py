"""A test vector: inputs of a function, and the outputs computed by the virtual machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from byoc_core.dims import solve_symbol, symbols_of
from byoc_core.errors import ByocError, CallError
from byoc_core.runtime.drawn_inputs import draw_input
from byoc_core.runtime.module import NDArray, Signature

if TYPE_CHECKING:
    from byoc_core.artifact.executable import Executable

__all__ = ["TestVector", "make_test_vector"]

_SEED = 0
_SMALL_SIZE = 3


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
        The test vector; ``None`` if this machine cannot run the executable, and no inputs are given.

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
    sizes = _sizes(signature, max_sizes, test_inputs or {})
    generator = np.random.default_rng(_SEED)
    inputs = {
        spec.name: np.ascontiguousarray((test_inputs or {})[spec.name])
        if spec.name in (test_inputs or {})
        else draw_input(generator, spec, sizes)
        for spec in signature.inputs
    }
    try:
        results = VirtualMachine(executable).run(function, inputs)
    except ByocError:
        if test_inputs:
            raise
        return None
    outputs = results if isinstance(results, tuple) else (results,)
    return TestVector(function, sizes, tuple(inputs.values()), tuple(map(np.ascontiguousarray, outputs)))


def _sizes(
    signature: Signature, max_sizes: Mapping[str, int] | None, test_inputs: Mapping[str, NDArray]
) -> dict[str, int]:
    """Return the size of each symbol: implied by a given input, else the largest, else a small size."""
    found: dict[str, int] = {}
    for spec in signature.inputs:
        shape = test_inputs[spec.name].shape if spec.name in test_inputs else ()
        for dim, size in zip(spec.shape, shape, strict=False):
            solved = solve_symbol(dim, size)
            if solved is not None:
                found.setdefault(*solved)
    symbols = sorted({name for spec in signature.inputs for dim in spec.shape for name in symbols_of(dim)})
    return {name: found.get(name, (max_sizes or {}).get(name, _SMALL_SIZE)) for name in symbols}
