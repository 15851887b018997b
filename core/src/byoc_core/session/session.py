"""The session: a model that is opened by path and called by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from byoc_core.errors import CallError, OptionsError, near_names
from byoc_core.native.processors import count_cpus
from byoc_core.runtime.arguments import argument_places, as_input, bind_symbols, join_inputs
from byoc_core.runtime.devices import Device
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.state_pairs import read_state_pairs
from byoc_core.runtime.threads import num_threads as threads_of_process
from byoc_core.runtime.value_forms import OPTIONAL, pack_value, value_unpacker
from byoc_core.session.buckets import Buckets, relative_difference
from byoc_core.session.feeding import CASTINGS, Casting, as_dtype
from byoc_core.session.opening import Opened, OpeningSettings, Origin, open_model, reopen
from byoc_core.session.values import ValueInfo, values_of_function
from byoc_core.vm.device_choice import devices_by_domain
from byoc_core.vm.machine import VirtualMachine

if TYPE_CHECKING:
    from pathlib import Path

    from byoc_core.artifact.adapters import Adapter
    from byoc_core.artifact.executable import Executable
    from byoc_core.vm.machine_choice import Machine, MachineChoice
    from byoc_core.vm.state import State

__all__ = ["Session"]


class Session:
    """A compiled model, ready for calls by name.

    ::

        session = byoc_core.Session("model.onnx")
        (y,) = session.run(None, {"x": x})          # a list, in the order of the outputs
        y = session(x)["y"]                         # by position or keyword; a dictionary by name

    An ONNX model is compiled when first opened, and kept in the user's cache by the content of all files, the choices,
    the installed plugins and the machine: later sessions, in this or another process, load the compiled model. The
    constants of an artifact are mapped from its file, so all processes share one copy. ``byoc cache`` lists and clears
    the cache.

    Inputs are numpy arrays or objects with ``__dlpack__`` in memory of the CPU (tensors of PyTorch, JAX and others),
    read in place; results are fresh numpy arrays, or the buffers of ``out``. Several threads may call a session.

    A session can be pickled. With an artifact in a file, also one in the cache, the pickle holds the path, and another
    process of the machine maps the same file; otherwise it holds the artifact. Unpickle only what you trust.

    Args:
        model: the path or the bytes of an artifact or of an ONNX model, an ``onnx.ModelProto``, an IR module, or an
            executable.
        backends: names or plugin objects; the first is asked first. ``"auto"``: all installed backends able to compile
            here, placed by expected time.
        function: the function to call.
        num_threads: the number of threads of a call; by default the number of the process.
        casting: the permitted conversions of inputs: ``"no"``; ``"safe"``, conversions without loss; ``"same_kind"``,
            also from float64 to float32, and of integers in the range of the dtype. With either of the latter, numbers
            and nested lists of numbers are inputs too.
        buckets: the permitted sizes of some symbols: a call pads its inputs to the next larger sizes, and cuts the
            results, so only these sizes are ever prepared. Only for models whose results do not depend on what lies
            behind the inputs; see :meth:`compare_buckets`.
        padding: the value behind an input, by name: a number, or ``"edge"`` for the last index repeated; 0 by default.
        cache: whether a compiled model is kept in the user's cache; or the folder of another cache. Models with choices
            that are objects of the caller are not kept.
        allow_native: whether native code in an artifact may be loaded. Artifacts compiled by this user are trusted.
        externs: see :class:`byoc_core.VirtualMachine`.
        device: for a model with regions on a device: the device, or its index among the devices of the runtime; for
            several memory domains, a mapping by domain. By default the device of the number in the program, mostly 0.
        machine: see :class:`byoc_core.VirtualMachine`. A session without a file of its model, and a session with
            adapters, has Python's machine.
        max_nodes: see :func:`byoc_core.from_onnx`.
        progress: called with the name of each stage of a compilation at the beginning of the stage.
        states: see :func:`byoc_core.from_onnx`.
        swappable_weights: see :func:`byoc_core.from_onnx`.
        adapters: low-rank adapters to add to the weights of a model compiled with swappable weights; adapters, or paths
            for :func:`byoc_core.artifact.load_adapter`. Sessions of one artifact share all other weights.
        choices: further arguments of :func:`byoc_core.build`, such as ``options`` or ``fallback``.

    Attributes:
        executable: the compiled model.
        inputs: the inputs, in order.
        outputs: the outputs, in order.

    Raises:
        OptionsError: an argument has a bad value, or choices for a compilation are given for a compiled model.
        UntrustedCodeError: an artifact holds native code of another user, and ``allow_native`` is false.
        OSError: the file cannot be read.
        CallError: there is no such function.
        WeightsError: an adapter does not fit the weights.
        ByocError: see :func:`byoc_core.load`, :func:`byoc_core.from_onnx` and :func:`byoc_core.build`.
    """

    def __init__(
        self,
        model: Any,
        backends: str | Sequence[str | object] | None = None,
        *,
        function: str = "main",
        num_threads: int | None = None,
        casting: Casting = "no",
        buckets: Mapping[str, Sequence[int]] | None = None,
        padding: Mapping[str, Any] | None = None,
        cache: bool | str | os.PathLike[str] = True,
        allow_native: bool = False,
        externs: Mapping[str, Callable[..., object]] | None = None,
        device: Device | int | Mapping[str, Device | int] | None = None,
        machine: Machine | None = None,
        max_nodes: int | None = None,
        progress: Callable[[str], None] | None = None,
        states: str | Sequence[Any] = (),
        swappable_weights: bool | Sequence[str] = False,
        adapters: Iterable[Adapter | str | os.PathLike[str]] = (),
        **choices: Any,
    ) -> None:
        if casting not in CASTINGS:
            raise OptionsError("casting", "has an unknown value", got=repr(casting), expected=" or ".join(CASTINGS))
        if isinstance(swappable_weights, str):
            problem, expected = "is a single text", "a list of names"
            raise OptionsError("swappable_weights", problem, got=repr(swappable_weights), expected=expected)
        if padding and buckets is None:
            raise OptionsError("padding", "needs buckets", hint="Pass buckets={symbol: [sizes]}.")
        settings = OpeningSettings(
            {name: value for name, value in {"backends": backends, **choices}.items() if value is not None},
            cache,
            allow_native,
            num_threads,
            max_nodes,
            progress,
            read_state_pairs(states),
            swappable_weights if isinstance(swappable_weights, bool) else tuple(swappable_weights),
        )
        calls = {
            "function": function,
            "num_threads": num_threads,
            "casting": casting,
            "buckets": {} if buckets is None else buckets,
            "padding": padding or {},
            "externs": externs,
            "device": device,
            "machine": machine,
            "adapters": tuple(adapters),
        }
        self._start(open_model(model, settings), calls)

    def _start(self, opened: Opened, calls: Mapping[str, Any]) -> None:
        self._opened, self._calls = opened, calls
        adapters = calls["adapters"]
        self.executable: Executable = opened.executable.with_adapters(adapters) if adapters else opened.executable
        self._casting: Casting = calls["casting"]
        name = calls["function"]
        self.inputs, self.outputs = values_of_function(self.executable, name)
        self._devices = devices_by_domain(self.executable.program, calls["device"])
        machine = VirtualMachine(
            self.executable,
            externs=calls["externs"],
            num_threads=calls["num_threads"],
            devices=self._devices,
            machine=calls["machine"],
        )
        self._call = machine[name]
        self._input_names = tuple(value.name for value in self.inputs)
        self._output_names = tuple(value.name for value in self.outputs)
        self._has_states = any(found.name == name and found.states for found in self.executable.program.functions)
        if calls["buckets"] != {} and self._has_states:
            raise OptionsError("buckets", "are not for models with states: padding would become part of a state")
        self._buckets = (
            Buckets(self.inputs, self.outputs, calls["buckets"], calls["padding"]) if calls["buckets"] != {} else None
        )
        self._has_plain_inputs = (
            self._casting == "no" and self._buckets is None and all(value.form == "tensor" for value in self.inputs)
        )
        self._is_plain = self._has_plain_inputs and all(value.form == "tensor" for value in self.outputs)
        self._unpackers = tuple(_unpackers(self.outputs))
        self._pool: tuple[int, ThreadPoolExecutor] | None = None

    @property
    def backends(self) -> tuple[str, ...]:
        """The backends chosen for the compilation, in order; the report has the share of each."""
        names = self.executable.request_data.get("backends", ())
        return tuple(str(name) for name in names)

    @property
    def machine(self) -> MachineChoice:
        """The machine that runs the model, ``"python"`` or ``"native"``, and the reason."""
        return self._call.machine

    def report(self) -> str:
        """Return the offload report as text, and the machine.

        The report has the share of each backend, and the reasons for ops on the host.
        """
        return f"{self.executable.report().rstrip()}\nmachine: {self.machine}\n"

    def __call__(self, /, *inputs: object, **named: object) -> dict[str, Any]:
        """Run the model on inputs by position, then by keyword, and return all outputs by name.

        Raises:
            CallError: an input is missing, unknown, given twice, or does not fit.
            ExecutionError: a callee of the model failed.
        """
        arrays: Sequence[Any]
        if self._is_plain and not named:
            arrays = _as_list(self._call(*inputs))
        else:
            arrays = self._run(join_inputs("session", self._input_names, inputs, named), None)
        return dict(zip(self._output_names, arrays, strict=True))

    def run(
        self,
        output_names: Iterable[str] | None,
        feeds: Mapping[str, object],
        *,
        out: Mapping[str, object] | None = None,
        state: State | None = None,
        on_device: bool = False,
    ) -> list[Any]:
        """Run the model on inputs by name.

        Args:
            output_names: the outputs to return, in this order; ``None`` for all. All are computed in any case.
            feeds: every input, by name. ``None`` is an absent optional value.
            out: buffers for some or all outputs, by name; the others are fresh.
            state: the values kept from call to call, of a model with states; by default the state of the session.
            on_device: whether fresh outputs made by a device stay there, as device arrays; see
                :meth:`byoc_core.VirtualMachine.run`.

        Returns:
            The outputs: arrays; arrays of strings, lists of arrays or of maps for outputs of these forms.

        Raises:
            CallError: a name is unknown or missing, or an argument does not fit.
            ExecutionError: a callee of the model failed.
        """
        if output_names is None:
            return self._run(feeds, out, state, on_device=on_device)
        if isinstance(output_names, str):
            raise CallError("session", "output names are a single text", got=repr(output_names), expected="a list")
        names = [*output_names]
        for name in names:
            if name not in self._output_names:
                raise _unknown("output", name, self._output_names)
        results = dict(zip(self._output_names, self._run(feeds, out, state, on_device=on_device), strict=True))
        return [results[name] for name in names]

    def run_async(
        self,
        output_names: Iterable[str] | None,
        feeds: Mapping[str, object],
        *,
        out: Mapping[str, object] | None = None,
        state: State | None = None,
        on_device: bool = False,
    ) -> Future[list[Any]]:
        """Start :meth:`run` in a thread of the session, and return its future.

        The session has as many threads as calls of ``num_threads`` fit on the processors, and at least one; further
        calls wait. Calls of a model with states run one after the other, in the order of their start.
        ``await asyncio.wrap_future(session.run_async(None, feeds))`` waits in a coroutine.
        """
        return self._executor().submit(self.run, output_names, feeds, out=out, state=state, on_device=on_device)

    @property
    def state(self) -> State:
        """The values kept from call to call, of a model with states: the state of all calls without another state.

        Raises:
            CallError: the model has no states.
        """
        return self._call.state

    def new_state(self, *, capacity: int = 0, limit: int | None = None) -> State:
        """Return a new state, for another sequence of calls; see :meth:`byoc_core.VirtualMachine.new_state`.

        Raises:
            CallError: the model has no states.
            OptionsError: a number is no number of rows.
        """
        return self._call.new_state(capacity=capacity, limit=limit)

    def reset(self) -> None:
        """Return the state of the session to the values before the first call.

        Raises:
            CallError: the model has no states, or a call is running.
        """
        self._call.state.reset()

    def warm_up(self, inputs: Mapping[str, object] | None = None, /, **sizes: Any) -> None:
        """Run the model once at each combination of sizes, so that later calls at these sizes find everything made.

        ::

            session.warm_up(batch=[1, 8, 32], length=128)

        Args:
            inputs: inputs to run on; the others are drawn at random (:meth:`ValueInfo.draw`), each time anew.
            sizes: a size or several, by symbol. A symbol without size gets the size in ``inputs``, its buckets, or 1.

        Raises:
            OptionsError: a size is not of the model, or is negative.
            CallError: an input is unknown or does not fit.
            ExecutionError: a callee of the model failed.
        """
        symbols = {name for value in self.inputs for name in value.symbols}
        for name, sizes_of_name in sizes.items():
            if name not in symbols:
                raise OptionsError(
                    f"size `{name}`",
                    "is no size of the inputs",
                    expected=", ".join(sorted(symbols)) or "no size: all are fixed",
                    hint=near_names(name, symbols) or None,
                )
            for size in _listed(sizes_of_name):
                if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 0:
                    raise OptionsError(f"size `{name}`", "is no size", got=repr(size), expected="an integer, 0 or more")
        arrays = {} if inputs is None else dict(inputs)
        if self._buckets is not None:
            fixed = {name for value in self.inputs if value.name in arrays for name in value.symbols}
            sizes = {**{name: found for name, found in self._buckets.sizes.items() if name not in fixed}, **sizes}
        for combination in product(*map(_listed, sizes.values())):
            state = self._call.new_state() if self._has_states else None  # the session's own state stays as it is
            self._run(self._drawn(arrays, dict(zip(sizes, map(int, combination), strict=True))), None, state)

    def check(self, feeds: Mapping[str, object]) -> dict[str, int]:
        """Check inputs without a run, and return the size of each symbol.

        Raises:
            CallError: a name is unknown or missing, or an input does not fit.
        """
        arrays = self._packed(feeds)
        specs = [spec for value in self.inputs for spec in value.specs]
        locations = argument_places("session", "input", specs)
        accepted = [
            as_input(arrays[spec.name], spec, location) for spec, location in zip(specs, locations, strict=True)
        ]
        return bind_symbols(specs, accepted, locations)

    def compare_buckets(self, feeds: Mapping[str, object]) -> dict[str, float]:
        """Run the model on inputs as given and on the padded inputs, and return the differences of the outputs.

        Returns:
            By output, the largest difference over the largest magnitude: 0 or the size of roundings if the results do
            not depend on what lies behind the inputs. Infinite if NaN or infinities are at different places.

        Raises:
            OptionsError: the session has no buckets.
            CallError: a name is unknown or missing, or an input does not fit.
            ExecutionError: a callee of the model failed.
        """
        if self._buckets is None:
            raise OptionsError("buckets", "are not chosen for this session", hint="Pass buckets={symbol: [sizes]}.")
        arrays = self._packed(feeds)
        call = self._buckets.pad(arrays)
        padded = call.cut(_as_list(self._call.run(call.arrays)), {})
        names = [spec.name for value in self.outputs for spec in value.specs]
        pairs = zip(padded, _as_list(self._call.run(arrays)), strict=True)
        return {name: relative_difference(*pair) for name, pair in zip(names, pairs, strict=True)}

    def profile(
        self,
        feeds: Mapping[str, object] | None = None,
        *,
        sizes: Mapping[str, int] | None = None,
        state: State | None = None,
        **options: Any,
    ) -> Any:
        """Return a :class:`byoc_core.profiling.Profile` of calls: the time of each region and kernel.

        All calls of a model with states begin at the same values, in a copy: the session's state stays as it is.

        Args:
            feeds: inputs by name; the others are drawn at random.
            sizes: the sizes of drawn inputs, by symbol; 1 by default, or the sizes of the state.
            state: the values before each call, of a model with states; by default the state of the session.
            options: further arguments of :func:`byoc_core.profile`, such as ``seconds``.
        """
        from byoc_core.profiling import profile

        state = self._call.state if state is None and self._has_states else state
        known_sizes = {} if state is None else state.known_sizes()
        arrays = self._packed(self._drawn(dict(feeds or {}), {**known_sizes, **(sizes or {})}))
        own = {"num_threads": self._calls["num_threads"], "externs": self._calls["externs"], "devices": self._devices}
        options = {**own, "state": state, **options}
        return profile(self.executable, arrays, function=self._call.name, **options)

    def _run(
        self,
        feeds: Mapping[str, object],
        out: Mapping[str, object] | None,
        state: State | None = None,
        *,
        on_device: bool = False,
    ) -> list[Any]:
        if self._is_plain:
            call = partial(self._call.run, on_device=True) if on_device else self._call.run
            return [*_as_list(call(feeds, out, state))]
        if on_device:
            raise CallError(
                "session",
                "leaves no outputs on devices: inputs or outputs are converted by casting, buckets or their form",
            )
        if self._has_plain_inputs:
            results = _as_list(self._call.run(feeds, out, state))
        else:
            results = self._run_packed(self._packed(feeds), out, state)
        return [unpack(*results[parts]) for unpack, parts in self._unpackers]

    def _run_packed(
        self, arrays: Mapping[str, Any], out: Mapping[str, object] | None, state: State | None
    ) -> Sequence[NDArray]:
        call = None if self._buckets is None else self._buckets.pad(arrays)
        if call is None or not call.is_padded:
            return _as_list(self._call.run(arrays, out, state))
        names = [spec.name for value in self.outputs for spec in value.specs]
        for name in out or ():
            if name not in names:
                raise _unknown("output", name, names)
        return call.cut(_as_list(self._call.run(call.arrays)), out or {})

    def _packed(self, feeds: Mapping[str, object]) -> dict[str, Any]:
        """Return the arrays of the compiled model by name, converted as permitted."""
        if not isinstance(feeds, Mapping):
            raise CallError("session", "inputs are not given by name", got=type(feeds).__name__, expected="a mapping")
        for name in feeds:
            if name not in self._input_names:
                raise _unknown("input", name, self._input_names)
        missing = [
            value.name for value in self.inputs if value.name not in feeds and not value.form.startswith(OPTIONAL)
        ]
        if missing:
            names = ", ".join(f"`{name}`" for name in missing)
            raise CallError("session", f"input {names} is missing", expected=", ".join(self._input_names))
        arrays: dict[str, Any] = {}
        for value in self.inputs:
            where = f"session, input `{value.name}`"
            parts: Sequence[NDArray | object] = pack_value(value.form, value.specs, feeds.get(value.name), where)
            if self._casting != "no":
                parts = [
                    as_dtype(part, spec.dtype, self._casting, where)
                    for part, spec in zip(parts, value.specs, strict=True)
                ]
            arrays.update(zip((spec.name for spec in value.specs), parts, strict=True))
        return arrays

    def _drawn(self, inputs: dict[str, object], sizes: dict[str, int]) -> dict[str, object]:
        """Return given inputs, with the others drawn at random."""
        for name in inputs:
            if name not in self._input_names:
                raise _unknown("input", name, self._input_names)
        generator = np.random.default_rng(0)
        for value in self.inputs:
            shape = getattr(inputs.get(value.name), "shape", ())
            for dim, size in zip(value.shape or (), shape, strict=False):
                sizes.setdefault(str(dim), int(size))
        return {
            value.name: inputs[value.name]
            if value.name in inputs
            else value.draw(generator, {symbol: sizes.get(symbol, 1) for symbol in value.symbols})
            for value in self.inputs
        }

    def _executor(self) -> ThreadPoolExecutor:
        process = os.getpid()
        if self._pool is None or self._pool[0] != process:  # a forked child has no threads of its parent
            threads = self._calls["num_threads"] or threads_of_process()
            workers = 1 if self._has_states else max(1, count_cpus() // threads)
            self._pool = process, ThreadPoolExecutor(workers, thread_name_prefix="byoc-session")
        return self._pool[1]

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        opened = self._opened
        if opened.path is not None:
            return _reopened, (type(self), opened.path, opened.digest, opened.origin, dict(self._calls))
        return _loaded, (type(self), opened.executable.to_bytes(), dict(self._calls))

    @classmethod
    def _of(cls, opened: Opened, calls: Mapping[str, Any]) -> Self:
        session = cls.__new__(cls)
        session._start(opened, calls)
        return session

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, values)) for values in (self.inputs, self.outputs))
        return f"<session {inputs} -> {outputs}; backends: {', '.join(self.backends) or 'host'}>"


def _as_list(results: NDArray | tuple[NDArray, ...]) -> Sequence[NDArray]:
    return results if isinstance(results, tuple) else (results,)


def _unpackers(outputs: Iterable[ValueInfo]) -> Iterator[tuple[Callable[..., Any], slice]]:
    """Yield the function from arrays to each output, and the place of the arrays among all results."""
    start = 0
    for output in outputs:
        stop = start + len(output.specs)
        yield value_unpacker(output.form), slice(start, stop)
        start = stop


def _listed(sizes: Any) -> Sequence[Any]:
    return sizes if isinstance(sizes, Sequence) else [sizes]


def _unknown(role: str, name: object, names: Sequence[str]) -> CallError:
    return CallError(
        "session",
        f"has no {role} `{name}`",
        expected=", ".join(names) or f"no {role} at all",
        hint=near_names(str(name), names) or None,
    )


def _reopened(kind: type[Session], path: Path, digest: str, origin: Origin | None, calls: Mapping[str, Any]) -> Session:
    return kind._of(reopen(path, digest, origin), calls)


def _loaded(kind: type[Session], data: bytes, calls: Mapping[str, Any]) -> Session:
    opened = open_model(data, OpeningSettings({}, allow_native=True))
    return kind._of(opened, calls)
