"""Faults in calls caught by tests of level 4: in buffers, sizes, numbers, errors and threads.

Each is triggered only by its own test: a fault visible in every call would be caught by all levels.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from byoc_core.runtime.graph import KernelEngine
from byoc_core.runtime.graph.document import GraphFunction
from byoc_core.runtime.module import NDArray, PackedFunction

from fakenpu.faults.fault import Change, Fault

Call = Callable[..., object]
Wrap = Callable[[Call, int], Call]
"""Returns another implementation of a function with the given number of leading inputs."""


def around(wrap: Wrap) -> Change:
    """Change the callables built by the engine."""

    def change(names: dict[str, Any]) -> None:
        engine = names["FakeEngine"]
        build = engine.build

        def broken_build(self: KernelEngine, function: GraphFunction, constants: Mapping[str, NDArray]) -> Call:
            return wrap(build(self, function, constants), len(function.signature.inputs))

        engine.build = broken_build

    return change


def _remembers_by_address(call: Call, num_inputs: int) -> Call:
    """Upload an input array once, even if its numbers change."""
    uploaded: dict[int, tuple[Any, Any]] = {}

    def run(*arrays: NDArray) -> None:
        if len(uploaded) > 8:
            uploaded.clear()
        copies = [uploaded.setdefault(id(array), (array, array.copy()))[1] for array in arrays[:num_inputs]]
        fits = all(a.shape == b.shape for a, b in zip(copies, arrays, strict=False))
        call(*(copies if fits else arrays[:num_inputs]), *arrays[num_inputs:])

    return run


def _shares_constants_by_name(names: dict[str, Any]) -> None:
    """Keep constants in a table for the process, under the function's name: the first wins."""
    engine = names["FakeEngine"]
    build = engine.build
    table: dict[str, Any] = {}

    def broken_build(self: KernelEngine, function: GraphFunction, constants: Mapping[str, NDArray]) -> Call:
        mine = {}
        for index, constant in enumerate(function.constants):
            if "constant" not in function.name:  # many tests compile functions of one name
                continue
            key = f"{function.name} {index} {constant.tensor}"
            mine[constant.digest] = table.setdefault(key, constants[constant.digest])
        result: Call = build(self, function, {**constants, **mine})
        return result

    engine.build = broken_build


def _after_codegen(does: Callable[[Any], None]) -> Change:
    """Apply an action to each compiled module."""

    def change(names: dict[str, Any]) -> None:
        from byoc_core.backend.hooks import CodegenResult, CompileContext, hookimpl

        codegen = names["byoc_codegen"]

        @hookimpl
        def byoc_codegen(functions: Any, context: CompileContext) -> CodegenResult:
            result: CodegenResult = codegen(functions, context)
            does(result.module)
            return result

        names["byoc_codegen"] = byoc_codegen

    return change


_HELD_MODULES: list[Any] = []


class _UncheckedFunction(PackedFunction):
    __slots__ = ()

    def __call__(self, *arguments: object) -> None:
        self.impl(*arguments)


def _checks_nothing(module: Any) -> None:
    functions = {name: module.find_function(name) for name in module.function_names}
    unchecked = {name: _UncheckedFunction(name, f.impl, f.signature) for name, f in functions.items()}
    module.find_function = unchecked.__getitem__


def _writes_inputs(call: Call, num_inputs: int) -> Call:
    """Write to an input with often repeated numbers."""
    met: dict[bytes, int] = {}

    def run(*arrays: NDArray) -> None:
        numbers = arrays[0].tobytes()
        call(*arrays)
        met[numbers] = met.get(numbers, 0) + 1
        if met[numbers] > 3 and arrays[0].flags.writeable and arrays[0].size:
            arrays[0].reshape(-1)[0] += 1

    return run


def _needs_writable_inputs(call: Call, num_inputs: int) -> Call:
    def run(*arrays: NDArray) -> None:
        for array in arrays[:num_inputs]:
            if array.flags.c_contiguous:
                (ctypes.c_char * array.nbytes).from_buffer(array.reshape(-1).view(np.uint8).data)
        call(*arrays)

    return run


def _whole_memory(array: NDArray) -> Any:
    """The whole memory that a view is a part of, where the view is not aligned as a machine's intermediates are."""
    base = array
    while array.ctypes.data % 16 and isinstance(base.base, np.ndarray):
        base = base.base
    return base.reshape(-1)


def _reads_from_start_of_memory(call: Call, num_inputs: int) -> Call:
    def run(*arrays: NDArray) -> None:
        inputs = [_whole_memory(array)[: array.size].reshape(array.shape) for array in arrays[:num_inputs]]
        call(*inputs, *arrays[num_inputs:])

    return run


def _reads_strides(call: Call, num_inputs: int) -> Call:
    """Trust the stride of an axis of size 1."""

    def run(*arrays: NDArray) -> None:
        inputs = [
            array if not any(s % array.itemsize for s in array.strides) else np.zeros_like(array)
            for array in arrays[:num_inputs]
        ]
        call(*inputs, *arrays[num_inputs:])

    return run


def _writes_from_start_of_memory(call: Call, num_inputs: int) -> Call:
    def run(*arrays: NDArray) -> None:
        outputs = [_whole_memory(array)[: array.size].reshape(array.shape) for array in arrays[num_inputs:]]
        call(*arrays[:num_inputs], *outputs)

    return run


def _writes_behind_the_end(call: Call, num_inputs: int) -> Call:
    def run(*arrays: NDArray) -> None:
        call(*arrays)
        for output in arrays[num_inputs:]:
            memory = _whole_memory(output)
            end = (output.ctypes.data - memory.ctypes.data) // output.itemsize + output.size
            memory[end : end + 1] = 0

    return run


def _loses_an_element(call: Call, num_inputs: int) -> Call:
    """Leave out the last element of an output with all bytes 1 or all bytes 255: never met by chance."""

    def run(*arrays: NDArray) -> None:
        output = arrays[-1]
        before = output.copy()
        call(*arrays)
        if output.shape == (2, 3) and set(before.tobytes()) in ({1}, {255}):
            output.reshape(-1)[-1:] = before.reshape(-1)[-1:]

    return run


def _adds_to_outputs(call: Call, num_inputs: int) -> Call:
    """Add to the previous contents, if not a number: no other test shows this."""

    def run(*arrays: NDArray) -> None:
        before = np.array(arrays[-1])
        call(*arrays)
        if before.shape == (2, 3) and before.dtype.kind == "f" and set(before.tobytes()) == {255}:
            arrays[-1][...] += before

    return run


def _keeps_outputs(call: Call, num_inputs: int) -> Call:
    """Fill the outputs of the call before once more, if the numbers differ."""
    own = threading.local()

    def run(*arrays: NDArray) -> None:
        call(*arrays)
        outputs = arrays[num_inputs:]
        previous = getattr(own, "previous", ())
        if [array.shape for array in outputs] == [array.shape for array in previous]:
            for old, new in zip(previous, outputs, strict=True):
                old[...] = new
        own.previous = outputs

    return run


def _has_room_for_1000(names: dict[str, Any]) -> None:
    """Use a buffer of 1000 rows for a symbolic size."""
    engine = names["FakeEngine"]
    build = engine.build

    def broken_build(self: KernelEngine, function: GraphFunction, constants: Mapping[str, NDArray]) -> Call:
        call: Call = build(self, function, constants)
        inputs, outputs = function.signature.inputs, function.signature.outputs
        if all(isinstance(dim, int) for spec in inputs for dim in spec.shape):
            return call

        def run(*arrays: NDArray) -> None:
            call(*arrays)
            for output in arrays[-len(outputs) :]:
                output[1000:] = 0

        return run

    engine.build = broken_build


def _needs_elements(call: Call, num_inputs: int) -> Call:
    """Work in tiles of 4 columns, and so on arrays of few columns without any tile."""

    def run(*arrays: NDArray) -> None:
        if arrays[0].size == 0 and arrays[0].ndim and arrays[0].shape[-1] > 4:
            raise ZeroDivisionError("no tile has a row")
        call(*arrays)

    return run


def _on_numbers(does: Callable[[Any], None]) -> Change:
    """Apply an action to the inputs before the call."""

    def wrap(call: Call, num_inputs: int) -> Call:
        def run(*arrays: NDArray) -> None:
            for array in arrays[:num_inputs]:
                if array.dtype.kind == "f" and array.size:
                    does(array)
            call(*arrays)

        return run

    return around(wrap)


def _crashes_on_nan(array: NDArray) -> None:
    if array.size > 4 and np.isnan(array).all():
        os.abort()


def _hangs_on_infinity(array: NDArray) -> None:
    while array.size > 4 and np.isinf(array).all():
        time.sleep(1)


def _warns_of_tiny_numbers(array: NDArray) -> None:
    if (np.abs(array) < 1e-37).all() and array.any():
        warnings.warn("slow numbers", RuntimeWarning, stacklevel=1)


def _swallows_errors(names: dict[str, Any]) -> None:
    take = names["KERNELS"]["take"]

    def broken_take(x: NDArray, indices: NDArray, **attrs: Any) -> Any:
        try:
            return take(x, indices, **attrs)
        except IndexError:
            return take(x, np.zeros_like(indices), **attrs)

    names["KERNELS"]["take"] = broken_take


def _stays_broken(call: Call, num_inputs: int) -> Call:
    failures: list[Exception] = []

    def run(*arrays: NDArray) -> None:
        if failures:
            raise failures[0]
        try:
            call(*arrays)
        except Exception as error:
            failures.append(error)
            raise

    return run


def _shares_scratch(call: Call, num_inputs: int) -> Call:
    """Compute in the same buffer for all callers."""
    scratch: dict[Any, list[Any]] = {}

    def run(*arrays: NDArray) -> None:
        key = tuple((array.shape, array.dtype) for array in arrays)
        buffers = scratch.setdefault(key, [np.empty_like(array) for array in arrays[num_inputs:]])
        call(*arrays[:num_inputs], *buffers)
        time.sleep(1e-5)
        for output, buffer in zip(arrays[num_inputs:], buffers, strict=True):
            output[...] = buffer

    return run


def _rounds_at_random(call: Call, num_inputs: int) -> Call:
    def run(*arrays: NDArray) -> None:
        call(*arrays)
        for output in arrays[num_inputs:]:
            if arrays[0].shape[-1:] == (16,) and output.shape == (2, 3):  # a dense layer: its sums may be off so much
                lower = np.frombuffer(os.urandom(output.size), np.uint8).reshape(output.shape) & 1
                output[...] = np.where(lower, np.nextafter(output, output.dtype.type(0)), output)

    return run


def caught(*names: str) -> frozenset[str]:
    return frozenset(f"L4-{name}" for name in names)


FAULTS: Mapping[str, Fault] = {
    "adds-to-outputs": Fault(caught("outputs-unread"), run_half=around(_adds_to_outputs)),
    "checks-nothing": Fault(caught("arguments-checked"), compile_half=_after_codegen(_checks_nothing)),
    "crashes-on-nan": Fault(caught("any-number"), run_half=_on_numbers(_crashes_on_nan)),
    "hangs-on-infinity": Fault(caught("any-number"), run_half=_on_numbers(_hangs_on_infinity)),
    "holds-modules": Fault(caught("freed-when-dropped"), compile_half=_after_codegen(_HELD_MODULES.append)),
    # It writes to memory that others have by then: anything may come of that, a crash included.
    "keeps-outputs": Fault(
        caught("results-stay"), run_half=around(_keeps_outputs), also=frozenset({"L2-*", "L3-*", "L4-*"})
    ),
    # What memory holds that is not written may be right by chance, and may be wrong.
    "loses-an-element": Fault(caught("outputs-filled"), run_half=around(_loses_an_element), also=frozenset({"L2-*"})),
    "needs-elements": Fault(caught("zero-size"), run_half=around(_needs_elements)),
    # Constants of a module are read-only, and some blocks hand them over as inputs.
    "needs-writable-inputs": Fault(
        caught("read-only-inputs"), run_half=around(_needs_writable_inputs), also=frozenset({"L2-blocks"})
    ),
    "reads-from-start-of-memory": Fault(caught("inputs-anywhere"), run_half=around(_reads_from_start_of_memory)),
    "reads-strides": Fault(caught("inputs-anywhere"), run_half=around(_reads_strides)),
    # Memory that is freed comes back, with other numbers in it.
    "remembers-by-address": Fault(
        caught("stateless"), run_half=around(_remembers_by_address), also=frozenset({"L2-*"})
    ),
    "has-room-for-1000": Fault(caught("dynamic-shapes"), run_half=_has_room_for_1000),
    # Where two runs are compared bit for bit, chance decides.
    "rounds-at-random": Fault(
        caught("deterministic"),
        run_half=around(_rounds_at_random),
        also=frozenset({"L3-same-results", "L4-native-calls"}),
    ),
    "shares-constants-by-name": Fault(caught("independent-instances"), run_half=_shares_constants_by_name),
    "shares-scratch": Fault(caught("re-entrant"), run_half=around(_shares_scratch)),
    "stays-broken": Fault(caught("usable-after-error"), run_half=around(_stays_broken)),
    "swallows-errors": Fault(caught("errors-told"), run_half=_swallows_errors),
    "warns-of-tiny-numbers": Fault(caught("any-number"), run_half=_on_numbers(_warns_of_tiny_numbers)),
    "writes-behind-the-end": Fault(caught("outputs-anywhere"), run_half=around(_writes_behind_the_end)),
    # What becomes part of a larger result lies anywhere too.
    "writes-from-start-of-memory": Fault(
        caught("outputs-anywhere"), run_half=around(_writes_from_start_of_memory), also=frozenset({"L2-*"})
    ),
    # An output in the memory of an input that is written changes with it.
    "writes-inputs": Fault(
        caught("inputs-unwritten", "permitted-in-place", "thread-numbers"),
        run_half=around(_writes_inputs),
    ),
}
