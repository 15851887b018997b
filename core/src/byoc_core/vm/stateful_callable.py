"""Functions with states as callables: the machine passes and stores the values kept from call to call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from byoc_core.dims import LinearTerms, linear_terms, shape_symbols
from byoc_core.dtypes import to_numpy
from byoc_core.errors import CallError, ExecutionError
from byoc_core.runtime.arguments import argument_places, as_output, bind_symbols, concrete_shape, separate_outputs
from byoc_core.runtime.device_arrays import DeviceArray
from byoc_core.runtime.module import NDArray, TensorSpec
from byoc_core.vm.bound_arguments import fix_arguments
from byoc_core.vm.bound_call import BoundCall
from byoc_core.vm.linked_function import LinkedFunction
from byoc_core.vm.machine_choice import MachineChoice
from byoc_core.vm.native_states import NativeStates
from byoc_core.vm.program import HOST
from byoc_core.vm.state import State
from byoc_core.vm.state_buffers import StateBuffer
from byoc_core.vm.state_values import MAX_LENGTH, StateInfo, StateValues
from byoc_core.vm.vm_callable import VMCallable, check_names, other_shape

__all__ = ["StatefulCallable", "bind_linear", "stateful_callables"]


class StatefulCallable(VMCallable):
    """A function with states: inputs, outputs and results are without the states.

    Args:
        linked: the function.
        infos: the states of the function.
        choice: the machine of the function.
        num_threads: the number of threads of a call, in the sense of :class:`NativeStates`.
    """

    __slots__ = (
        "_infos",
        "_input_keys",
        "_input_places",
        "_linear_shapes",
        "_locations",
        "_native_states",
        "_output_names",
        "_output_places",
        "_plain_inputs",
        "_plain_outputs",
        "_state",
    )

    def __init__(
        self, linked: LinkedFunction, infos: Sequence[StateInfo], choice: MachineChoice, num_threads: int | None
    ) -> None:
        function = linked.function
        self._linked = linked
        self._choice, self._native, self._run_linked = choice, None, linked.run
        self._infos = tuple(infos)
        self._plain_inputs, self._plain_outputs = function.inputs, function.outputs
        self._input_names = tuple(spec.name for spec in self._plain_inputs)
        self._input_keys = frozenset(self._input_names)
        self._output_names = tuple(spec.name for spec in self._plain_outputs)
        state_params = {info.slot.param for info in infos}
        self._input_places = tuple(index for index in range(len(function.params)) if index not in state_params)
        state_results = {info.slot.result for info in infos}
        self._output_places = tuple(index for index in range(len(function.results)) if index not in state_results)
        self._locations = argument_places(f"function `{self.name}`", "input", self._plain_inputs)
        self._linear_shapes = _linear_shapes(self._plain_inputs)
        self._native_states: NativeStates | None = None
        self._call = self._call_checked
        self._state = self.new_state()
        if choice.program is not None:
            self._native_states = NativeStates(linked, self._infos, choice.program, num_threads)

    @property
    def _native_calls(self) -> NativeStates | None:
        return self._native_states

    @property
    def params(self) -> tuple[TensorSpec, ...]:
        """Names, dtypes and shapes of the inputs, without states."""
        return self._plain_inputs

    @property
    def results(self) -> tuple[TensorSpec, ...]:
        """Names, dtypes and shapes of the results, without states."""
        return self._plain_outputs

    @property
    def has_states(self) -> bool:
        """Whether the function keeps values from call to call."""
        return True

    @property
    def state(self) -> State:
        """The state of calls without another state."""
        return self._state

    def new_state(self, *, capacity: int = 0, limit: int | None = None) -> State:
        """Return a new state; see :meth:`byoc_core.VirtualMachine.new_state`."""
        return State(self.name, self._infos, capacity=capacity, limit=MAX_LENGTH if limit is None else limit)

    def run(
        self,
        inputs: Mapping[str, object],
        out: Mapping[str, object] | None = None,
        state: State | None = None,
        *,
        on_device: bool = False,
    ) -> Any:
        """Run the function on named inputs; see :meth:`byoc_core.VirtualMachine.run`."""
        if out or type(inputs) is not dict or inputs.keys() != self._input_keys:
            where = f"function `{self.name}`"
            check_names(where, "input", inputs, self.params, complete=True)
            check_names(where, "output", out or {}, self.results, complete=False)
        values = [inputs[name] for name in self._input_names]
        return self._run_on(self._state if state is None else state, values, out, on_device=on_device)

    def bind(
        self, inputs: Mapping[str, object], out: Mapping[str, object] | None = None, state: State | None = None
    ) -> Callable[[], Any]:
        """Bind the function to fixed buffers and a state; see :meth:`byoc_core.VirtualMachine.bind`."""
        where = f"function `{self.name}`"
        check_names(where, "input", inputs, self.params, complete=True)
        check_names(where, "output", out or {}, self.results, complete=False)
        owner = self._state if state is None else state
        self._check_fixed_sizes(where)
        with owner.calling(self._infos) as state_values:
            known_sizes = state_values.sizes
        arguments = fix_arguments(where, self.params, self.results, inputs, out or {}, self._new_results, known_sizes)
        buffers = dict(zip(self._output_places, arguments.outputs, strict=True))

        def run() -> None:
            arguments.refresh()
            with owner.calling(self._infos) as state_values:
                present_sizes = state_values.sizes
                sizes = {**arguments.sizes, **present_sizes}
                for name in present_sizes.keys() - self._lengths:
                    if sizes[name] != arguments.sizes[name]:
                        problem = f"is bound to arrays of another size `{name}` than the state's"
                        raise CallError(where, problem, got=arguments.sizes[name], expected=sizes[name])
                self._advance(
                    owner,
                    state_values,
                    arguments.inputs,
                    sizes,
                    lambda values, states: self._run_linked(
                        values, [*map({**buffers, **states}.get, range(len(self._linked.function.results)))], sizes
                    ),
                )

        outputs = arguments.outputs
        return BoundCall(run, outputs[0] if len(outputs) == 1 else tuple(outputs))

    @property
    def _lengths(self) -> frozenset[str]:
        """The symbols of moving lengths."""
        return frozenset(info.length_symbol for info in self._infos if info.length_symbol is not None)

    def _check_fixed_sizes(self, where: str) -> None:
        """Check the sizes of inputs and results: the same in each call.

        Raises:
            CallError: a size moves with the length of a state, or is known only after a run.
        """
        lengths = self._lengths
        for role, specs in (("input", self.params), ("result", self.results)):
            for spec in specs:
                if not lengths.isdisjoint(shape_symbols(spec.shape)):
                    problem = f"cannot be bound: the size of {role} `{spec.name}` moves with the length of a state"
                    raise CallError(where, problem)
        for index, spec in zip(self._output_places, self.results, strict=True):
            if not self._linked.early_results[index]:
                raise CallError(where, f"cannot be bound: the size of result `{spec.name}` is known only after a run")

    def _new_results(self, sizes: dict[str, int]) -> list[NDArray]:
        where = f"function `{self.name}`"
        try:
            return [
                np.empty(concrete_shape(spec, sizes, f"{where}, result `{spec.name}`"), to_numpy(spec.dtype))
                for spec in self.results
            ]
        except (MemoryError, ValueError, OverflowError) as error:
            raise ExecutionError(where, "the results cannot be allocated") from error

    def sizes_of(self, inputs: Sequence[object], known_sizes: Mapping[str, int]) -> dict[str, int]:
        """Return the size of each symbol; see :meth:`VMCallable.sizes_of`."""
        return dict(self._accept(inputs, dict(known_sizes))[1])

    def _call_checked(self, *inputs: object) -> NDArray | tuple[NDArray, ...]:
        return self._run_on(self._state, inputs, None)

    def _run_on(
        self,
        state: State,
        values: Sequence[object],
        out: Mapping[str, object] | None,
        *,
        on_device: bool = False,
    ) -> NDArray | tuple[NDArray, ...]:
        if len(values) != len(self._plain_inputs):
            raise CallError(
                f"function `{self.name}`",
                "wrong number of inputs",
                got=len(values),
                expected=f"{len(self._plain_inputs)} ({', '.join(self._input_names)})" if values else "none",
            )
        native = self._native_states
        found: tuple[NDArray, ...] | str | None = None
        if native is not None and not (native.end_reason or on_device or (out and _has_device_arrays(out))):
            found = self._run_natively(native, state, values, out)
        if not isinstance(found, tuple):
            refusal, found = found, self._run_by_python(state, values, out, on_device=on_device)
            if native is not None and refusal is not None:
                native.refusals.count(refusal)
        return found[0] if len(found) == 1 else found

    def _run_natively(
        self, native: NativeStates, state: State, values: Sequence[object], out: Mapping[str, object] | None
    ) -> tuple[NDArray, ...] | str | None:
        """Return the results of the native machine; the reason for a refusal, or ``None`` if Python has to look.

        Arguments may be unfit or wrong, or the state may be in use.
        """
        found: tuple[NDArray, ...] | str | None = None
        if not out:
            found = state.move_to(native).run(tuple(values), ())
        elif len(out) == len(self._output_names):
            found = state.move_to(native).run(tuple(values), tuple([out[name] for name in self._output_names]))
        if found is None or (out and isinstance(found, str)):  # a buffer may share memory with an input
            found = self._run_converted(native, state, values, out or {})
        return found

    def _run_converted(
        self, native: NativeStates, state: State, values: Sequence[object], out: Mapping[str, object]
    ) -> tuple[NDArray, ...] | str | None:
        """Run the native machine on converted inputs, and copy results into buffers of the caller."""
        specs = self._plain_outputs
        all_locations = argument_places(f"function `{self.name}`", "output", self._linked.function.results)
        locations = [all_locations[index] for index in self._output_places]
        is_early = [self._linked.early_results[index] for index in self._output_places]
        try:
            with state.calling(self._infos) as state_values:
                arrays, sizes = self._accept(values, state_values.sizes)
                buffers = {i: as_output(out[s.name], s, locations[i]) for i, s in enumerate(specs) if s.name in out}
                early = [i for i in buffers if is_early[i]]
                early_specs = [specs[i] for i in early]
                bind_symbols(early_specs, [buffers[i] for i in early], [locations[i] for i in early], sizes=sizes)
                separate_outputs(arrays, [*buffers.values()], [locations[i] for i in buffers])  # only for the errors
        except CallError:
            return None  # Python's machine raises the first error in its order of checks
        found = state.move_to(native).run(tuple(arrays), ())
        if not isinstance(found, tuple):
            return found
        results = [*found]
        for index, buffer in buffers.items():
            if results[index].shape != buffer.shape:
                with state.calling(self._infos):
                    state.spoil()
                raise other_shape(locations[index], buffer, results[index])
            buffer[...] = results[index]
            results[index] = buffer
        return tuple(results)

    def _run_by_python(
        self, state: State, values: Sequence[object], out: Mapping[str, object] | None, *, on_device: bool
    ) -> tuple[NDArray, ...]:
        with state.calling(self._infos) as state_values:
            arrays, sizes = self._accept(values, state_values.sizes)
            results = self._advance(
                state,
                state_values,
                arrays,
                sizes,
                lambda arguments, buffers: self._run_into(arguments, sizes, out or {}, buffers, on_device=on_device),
            )
        return tuple(results[index] for index in self._output_places)

    def _advance(
        self,
        state: State,
        state_values: StateValues,
        arrays: Sequence[Any],
        sizes: dict[str, int],
        run: Callable[[list[Any], dict[int, Any]], list[Any]],
    ) -> list[Any]:
        """Run the function on a held state, and take over the new values.

        Args:
            state: the state, held by the caller.
            state_values: the values of the state.
            arrays: the inputs without states.
            sizes: the size of each symbol.
            run: takes all arguments, and the buffers of the new values by index of the result; returns all results.
        """
        if state_values.buffers is None:
            state_values.allocate(sizes)
        lengths = state_values.next_lengths(sizes)
        state_values.reserve(lengths)
        arguments = self._with_states(arrays, state_values.views())
        buffers = dict(zip((info.slot.result for info in self._infos), state_values.views(lengths), strict=True))
        try:
            results = run(arguments, buffers)
        except CallError:
            if not all(self._linked.early_results):  # the call ended after the run, because of a size learnt by the run
                state.spoil()
            raise
        except BaseException:
            state.spoil()
            raise
        state_values.lengths = lengths
        return results

    def _with_states(self, values: Sequence[Any], old_values: Sequence[StateBuffer]) -> list[Any]:
        """Return the arguments of the linked function."""
        arguments: list[Any] = [None] * (len(values) + len(old_values))
        for index, value in zip(self._input_places, values, strict=True):
            arguments[index] = value
        for info, array in zip(self._infos, old_values, strict=True):
            arguments[info.slot.param] = array
        return arguments

    def _accept(self, values: Sequence[object], known_sizes: dict[str, int]) -> tuple[list[NDArray], dict[str, int]]:
        """Return the inputs as arrays readable by the function, and the sizes of its symbols."""
        specs, locations = self._plain_inputs, self._locations
        arrays = [
            self._linked.device_values.accept_input(value, spec, locations[i])
            for i, (value, spec) in enumerate(zip(values, specs, strict=True))
        ]
        # Each call has other sizes. Binding sums of symbols directly takes a tenth of the time of the general way.
        shapes = self._linear_shapes
        sizes = None if shapes is None else bind_linear(shapes, arrays, known_sizes)
        return arrays, bind_symbols(specs, arrays, locations, sizes=known_sizes) if sizes is None else sizes


def _linear_shapes(specs: Sequence[TensorSpec]) -> list[list[LinearTerms]] | None:
    """Return the shapes if all sizes are sums of symbols, else ``None``."""
    shapes = []
    for spec in specs:
        shape = [terms for dim in spec.shape if (terms := linear_terms(dim)) is not None]
        if len(shape) < len(spec.shape):
            return None
        shapes.append(shape)
    return shapes


def bind_linear(
    shapes: Sequence[Sequence[LinearTerms]], arrays: Sequence[NDArray], known_sizes: Mapping[str, int]
) -> dict[str, int] | None:
    """Return the sizes of all symbols; ``None`` if the general way must decide, or report an error."""
    sizes = dict(known_sizes)
    for shape, array in zip(shapes, arrays, strict=True):
        for (constant, factors), size in zip(shape, array.shape, strict=True):
            rest, unknown = size - constant, None
            for name, factor in factors:
                value = sizes.get(name)
                if value is not None:
                    rest -= value * factor
                elif unknown is None and factor == 1:
                    unknown = name
                else:
                    return None
            if rest < 0 or (rest and unknown is None):
                return None
            if unknown is not None:
                sizes[unknown] = rest
    return sizes


def _has_device_arrays(buffers: Mapping[str, object]) -> bool:
    return any(isinstance(buffer, DeviceArray) for buffer in buffers.values())


def stateful_callables(
    linked: Mapping[str, LinkedFunction],
    constants: Mapping[str, NDArray],
    choices: Mapping[str, MachineChoice],
    num_threads: int | None,
) -> dict[str, StatefulCallable]:
    """Return the functions with states as callables, by name.

    Args:
        linked: all functions, by name.
        constants: the constants of the program, by digest.
        choices: the machine of each function.
        num_threads: the number of threads of a call, in the sense of :class:`NativeStates`.
    """
    found = {}
    for name, target in linked.items():
        function, references = target.function, target.program.constants
        devices = target.devices
        infos = [
            StateInfo(
                slot,
                function.params[slot.param],
                function.results[slot.result],
                None if slot.initial is None else constants[references[slot.initial].digest],
                None if devices is None or domain == HOST else devices[domain],
            )
            for slot in function.states
            for domain in [function.domain_of(slot.param)]
        ]
        if infos:
            found[name] = StatefulCallable(target, infos, choices[name], num_threads)
    return found
