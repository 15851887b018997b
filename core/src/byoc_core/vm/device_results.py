"""Results of a call in arrays on devices: the caller's, or fresh arrays where a device makes a result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from byoc_core.errors import CallError
from byoc_core.runtime.arguments import argument_places, bind_symbols
from byoc_core.runtime.device_arrays import DeviceArray
from byoc_core.vm.linked_function import LinkedFunction

__all__ = ["DeviceResults"]


class DeviceResults:
    """The arrays on devices for the results of a call.

    Args:
        linked: the function.
        inputs: the inputs of the call.
        sizes: the sizes of the symbols.
        out: buffers of the caller, by name.
        state_buffers: buffers of states, by index of the result.
        on_device: whether fresh results made by a device stay there.

    Attributes:
        host_buffers: the buffers of the caller in the host's memory, by name.

    Raises:
        CallError: a buffer does not fit its result, lies on another device, or overlaps another buffer.
        ExecutionError: a device has no memory for a fresh result.
    """

    def __init__(
        self,
        linked: LinkedFunction,
        inputs: Sequence[object],
        sizes: dict[str, int],
        out: Mapping[str, object],
        state_buffers: Mapping[int, Any],
        *,
        on_device: bool,
    ) -> None:
        self._linked = linked
        self._state_buffers = state_buffers
        specs = linked.function.results
        self._locations = argument_places(f"function `{linked.function.name}`", "output", specs)
        self.host_buffers = {name: buffer for name, buffer in out.items() if not isinstance(buffer, DeviceArray)}
        self._arrays: dict[int, DeviceArray] = {}
        used = [array for array in inputs if isinstance(array, DeviceArray)]
        # Arrays written by the function: the caller's, or temporaries for arrays with memory of an input.
        self._targets: dict[int, DeviceArray] = {}
        for index, spec in enumerate(specs):
            buffer = out.get(spec.name)
            if not isinstance(buffer, DeviceArray) or index in state_buffers:
                continue
            array = linked.device_values.accept_output(buffer, spec, self._locations[index])
            if any(array.overlaps(other) for other in self._arrays.values()):
                raise CallError(self._locations[index], "shares memory with another output")
            self._arrays[index] = array
        early = [index for index in self._arrays if linked.early_results[index]]
        bind_symbols(
            [specs[index] for index in early],
            [self._arrays[index] for index in early],
            [self._locations[index] for index in early],
            sizes=dict(sizes),
        )
        for index, array in self._arrays.items():
            if index in early and linked.device_values.is_made_on(index, array.device):
                overlaps = any(array.overlaps(other) for other in used)
                where = self._locations[index]
                self._targets[index] = (
                    DeviceArray.empty(array.device, specs[index].dtype, array.shape, where) if overlaps else array
                )
        if on_device:
            skipped = {*self._arrays, *state_buffers, *(i for i, spec in enumerate(specs) if spec.name in out)}
            for index, array in linked.device_values.new_results(linked.result_types(sizes), skipped).items():
                self._arrays[index] = self._targets[index] = array

    def fill(self, run: Callable[[Mapping[int, Any]], list[Any]]) -> list[Any]:
        """Run the function, and return its results with the arrays on devices in their places.

        Args:
            run: runs the function with buffers by index of the result, and returns the results.
        """
        results = run({**self._state_buffers, **self._targets})
        for index, array in self._arrays.items():
            target = self._targets.get(index, results[index])
            if target is not array:
                if target.shape != array.shape:
                    raise CallError(
                        self._locations[index],
                        "has another shape than the result",
                        got=list(array.shape),
                        expected=list(target.shape),
                    )
                array.assign(target)
            results[index] = array
        return results
