"""An artifact from a stranger: loaded, inspected, verified and run, on guarded buffers."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from byoc_core.artifact import Executable, inspect, load, swap_weights, verify
from byoc_core.dims import evaluate, shape_symbols
from byoc_core.dtypes import to_numpy
from byoc_core.errors import ArtifactError, ByocError, HookError, InternalError, RuntimeNotFoundError
from byoc_core.runtime.module import TensorSpec
from byoc_core.vm import VirtualMachine

from core.tests.artifact.fuzzing.guarded import guarded_empty

__all__ = ["try_artifact"]

MOST_NBYTES = 1 << 24
"""The limit on bytes of inputs: the artifact itself asks for these bytes, visibly for any caller."""

OUR_FAULTS = (InternalError, HookError)
"""Errors of byoc blaming byoc or a plugin."""


def try_artifact(path: Path, *, allow_native: bool) -> str:
    """Return the outcome of an artifact in a word: ``refused``, ``unfit`` (linking or running fails), or ``ran``.

    Raises:
        Exception: a fault: any exception not documented by the called functions.
    """
    _lawful(lambda: inspect(path).report())
    verified = _lawful(lambda: verify(path))
    executable = _lawful(lambda: load(path, allow_native=allow_native))
    if executable is None:
        return "refused"
    if verified is None:
        raise AssertionError("what `verify` calls wrong is loaded")
    _swap(path, executable)
    try:
        machine = VirtualMachine(executable)
    except OUR_FAULTS:
        raise
    except ByocError:
        return "unfit"
    outcomes = [_call(machine, name, at_end=at_end) for name in machine.functions for at_end in (True, False)]
    return "ran" if "ran" in outcomes else "unfit"


def _lawful(action: Callable[[], Any]) -> Any:
    """Return the result of an action; ``None`` after a documented refusal of the artifact."""
    try:
        return action()
    except (ArtifactError, RuntimeNotFoundError):
        return None


def _swap(path: Path, executable: Executable) -> None:
    """Give all weights other values, in memory and as a file."""
    target = path.with_name(f"{path.name}.swapped")
    try:
        values = {
            weight.name: np.zeros(weight.shape, to_numpy(weight.dtype))
            for weight in executable.weights.weights
            if weight.nbytes <= MOST_NBYTES
        }
        executable.with_weights(values)
        swap_weights(path, values, target)
        verify(target)
    except OUR_FAULTS:
        raise
    except ByocError:
        return
    finally:
        target.unlink(missing_ok=True)


def _call(machine: VirtualMachine, name: str, *, at_end: bool) -> str:
    function = machine[name]
    names = sorted(shape_symbols([size for spec in function.params for size in spec.shape]))
    try:
        sizes = {symbol: 3 + index for index, symbol in enumerate(names)}
        inputs = {spec.name: _filled(spec, sizes, at_end=at_end) for spec in function.params}
        out = {spec.name: _filled(spec, sizes, at_end=at_end) for spec in function.results}
    except (ByocError, LookupError, ValueError):
        return "unfit"
    if any(array is None for array in (*inputs.values(), *out.values())):
        return "unfit"
    try:
        machine.run(name, inputs, out)
    except OUR_FAULTS:
        raise
    except ByocError:
        return "unfit"
    return "ran"


def _filled(spec: TensorSpec, sizes: dict[str, int], *, at_end: bool) -> np.ndarray[Any, Any] | None:
    """Return a guarded array of ones; ``None`` if the array would be very large."""
    shape = tuple(evaluate(size, sizes) for size in spec.shape)
    dtype = to_numpy(spec.dtype)
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > MOST_NBYTES:
        return None
    array = guarded_empty(shape, dtype, at_end=at_end)
    array[...] = np.ones((), dtype)
    return array
