"""Faults caught by tests of level 4 in the permissions of functions for callers, and in calls by machine code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from byoc_core.runtime.module import NDArray, RuntimeModule

from fakenpu.faults.fault import Change, Fault
from fakenpu.faults.l4 import Call, around

_POISON = 0xA5


def _loses_strided_outputs(call: Call, num_inputs: int) -> Call:
    """Fill a compact copy of a strided output, and forget the output."""

    def run(*arrays: NDArray) -> object:
        outputs = (np.ascontiguousarray(array) if array.ndim else array for array in arrays[num_inputs:])
        return call(*arrays[:num_inputs], *outputs)

    return run


def _clears_outputs_first(call: Call, num_inputs: int) -> Call:
    """Clear outputs before reading the inputs."""

    def run(*arrays: NDArray) -> object:
        for output in arrays[num_inputs:]:
            output[...] = 0
        return call(*arrays)

    return run


def _overruns_its_workspace(call: Call, num_inputs: int) -> Call:
    """Write a byte behind a workspace, if the memory up to the next aligned place belongs to nobody."""

    def run(*arrays: NDArray) -> object:
        found = call(*arrays)
        workspace = arrays[-1]
        if len(arrays) == num_inputs + 2 and workspace.dtype == np.uint8 and workspace.nbytes % 64:
            ctypes.memset(workspace.ctypes.data + workspace.nbytes, 0x77, 1)
        return found

    return run


def _trusts_workspace(call: Call, num_inputs: int) -> Call:
    """Expect earlier contents in a workspace, if not all zeros: a cache kept by nobody."""

    def run(*arrays: NDArray) -> object:
        found = call(*arrays)
        workspace = arrays[-1]
        if workspace.dtype == np.uint8 and workspace.size and _is_left[0]:
            arrays[num_inputs][...] = 0
        return found

    _is_left = [False]

    def watch(*arrays: NDArray) -> object:
        workspace = arrays[-1]
        _is_left[0] = workspace.dtype == np.uint8 and workspace.ndim == 1 and bool((workspace == _POISON).all())
        return run(*arrays)

    return watch


def _ignores_strides_in_machine_code() -> Change:
    """Treat tensors as compact if machine code calls a product."""

    def compact(array: NDArray) -> NDArray:
        steps = np.cumprod((1, *array.shape[:0:-1]))[::-1] * array.itemsize
        return np.lib.stride_tricks.as_strided(array, array.shape, steps[: array.ndim])

    def change(names: dict[str, Any]) -> None:
        new_entry = names["native_entry"]

        def entry(function: Callable[..., object], dtypes: Sequence[str]) -> object:
            return new_entry(lambda *arrays: function(*map(compact, arrays)), dtypes)

        names["native_entry"] = entry

    return change


def _rounds_otherwise_in_python() -> Change:
    """Return the number next to machine code's result, if Python calls a product."""

    def change(names: dict[str, Any]) -> None:
        module = names["FakeModule"]
        find = module.find_function

        def find_broken(self: RuntimeModule, name: str) -> Any:
            function = find(self, name)
            if function.native is not None and not hasattr(function.impl, "is_broken"):
                right, num_inputs = function.impl, len(function.signature.inputs)

                def impl(*arrays: NDArray) -> None:
                    right(*arrays)
                    output = arrays[num_inputs]
                    if output.dtype.kind == "f":
                        output[...] = np.nextafter(output, output.dtype.type(np.inf))

                impl.is_broken = True  # type: ignore[attr-defined]
                function.impl = impl
            return function

        module.find_function = find_broken

    return change


FAULTS = {
    "loses-strided-outputs": Fault(
        frozenset({"L2-onnx", "L4-permitted-strides"}),
        run_half=around(_loses_strided_outputs),
        also=frozenset({"L4-native-strides"}),
    ),
    "overruns-its-workspace": Fault(
        frozenset({"L2-op", "L4-permitted-workspace"}), run_half=around(_overruns_its_workspace)
    ),
    # Machines take that permission at its word in every graph of several regions.
    "clears-outputs-first": Fault(
        frozenset({"L2-blocks", "L2-onnx", "L2-random-graphs", "L4-permitted-in-place"}),
        run_half=around(_clears_outputs_first),
    ),
    "trusts-workspace": Fault(frozenset({"L4-permitted-workspace"}), run_half=around(_trusts_workspace)),
    # Models whose products lie in strides are as wrong.
    "ignores-strides-in-machine-code": Fault(
        frozenset({"L4-native-strides"}), run_half=_ignores_strides_in_machine_code(), also=frozenset({"L2-*"})
    ),
    "rounds-otherwise-in-python": Fault(frozenset({"L4-native-calls"}), run_half=_rounds_otherwise_in_python()),
}
