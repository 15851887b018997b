"""The virtual machine: runs the functions of an executable on arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from byoc_core.errors import CallError, near_names
from byoc_core.runtime.arguments import argument_places, as_output, bind_symbols, separate_outputs
from byoc_core.runtime.module import NDArray, RuntimeModule, TensorSpec
from byoc_core.runtime.threads import check_num_threads, enter_call, leave_call, open_accounts
from byoc_core.vm.frame import LinkedFunction
from byoc_core.vm.linking import link
from byoc_core.vm.program import Program
from byoc_core.vm.verify import verify

__all__ = ["ExecutableLike", "VMCallable", "VirtualMachine"]


class ExecutableLike(Protocol):
    """What a machine needs: a program, the modules that define its symbols, and its constants by digest."""

    @property
    def program(self) -> Program:
        """The program."""

    @property
    def modules(self) -> Sequence[RuntimeModule]:
        """The modules that define the program's external symbols."""

    @property
    def constants(self) -> Mapping[str, Any]:
        """The program's constants, by digest."""


class VMCallable:
    """A function of a machine: ``f(*inputs)`` gives an array, or a tuple of arrays where it has not exactly one result.

    Inputs are numpy arrays or anything with ``__dlpack__``; results are fresh arrays.
    """

    __slots__ = ("_linked", "_num_threads", "_uses_threads")

    def __init__(self, linked: LinkedFunction, *, uses_threads: bool, num_threads: int | None) -> None:
        self._linked = linked
        self._uses_threads = uses_threads
        self._num_threads = num_threads

    @property
    def name(self) -> str:
        """The function's name."""
        return self._linked.function.name

    @property
    def params(self) -> tuple[TensorSpec, ...]:
        """Names, dtypes and shapes of the inputs."""
        return self._linked.function.params

    @property
    def results(self) -> tuple[TensorSpec, ...]:
        """Names, dtypes and shapes of the results."""
        return self._linked.function.results

    def __call__(self, *inputs: object) -> NDArray | tuple[NDArray, ...]:
        """Runs the function.

        Raises:
            CallError: wrong count, dtype, rank or shape of an input.
            ExecutionError: something the function calls failed.
        """
        linked = self._linked
        arrays, sizes = linked.accept(inputs)
        results = self._run(arrays, None, sizes)
        return results[0] if len(results) == 1 else tuple(results)

    def _run(
        self, inputs: Sequence[NDArray], outputs: Sequence[NDArray | None] | None, sizes: dict[str, int]
    ) -> list[NDArray]:
        if not self._uses_threads:
            return self._linked.run(inputs, outputs, sizes)
        token = enter_call(self._num_threads)
        try:
            return self._linked.run(inputs, outputs, sizes)
        finally:
            leave_call(token)

    def run(
        self, inputs: Mapping[str, object], out: Mapping[str, object] | None = None
    ) -> NDArray | tuple[NDArray, ...]:
        """Runs the function on named inputs; see :meth:`VirtualMachine.run`."""
        linked = self._linked
        where = f"function `{self.name}`"
        _check_names(where, "input", inputs, self.params, complete=True)
        arrays, sizes = linked.accept([inputs[param.name] for param in self.params])
        if out is not None:
            _check_names(where, "output", out, self.results, complete=False)
        results = self._run_into(arrays, sizes, out) if out else self._run(arrays, None, sizes)
        return results[0] if len(results) == 1 else tuple(results)

    def _run_into(self, inputs: Sequence[NDArray], sizes: dict[str, int], out: Mapping[str, object]) -> list[NDArray]:
        linked = self._linked
        places = argument_places(f"function `{self.name}`", "output", self.results)
        given = {
            index: as_output(out[spec.name], spec, places[index])
            for index, spec in enumerate(self.results)
            if spec.name in out
        }
        early = [index for index in given if linked.early_results[index]]
        bind_symbols(
            [self.results[i] for i in early], [given[i] for i in early], [places[i] for i in early], sizes=dict(sizes)
        )
        separated, finish = separate_outputs(inputs, list(given.values()), [places[index] for index in given])
        targets = dict(zip(given, separated, strict=True))
        buffers = [targets[index] if index in early else None for index in range(len(self.results))]
        results = self._run(inputs, buffers, sizes)
        for index, target in targets.items():
            if index not in early:
                if results[index].shape != target.shape:
                    raise CallError(
                        places[index],
                        "has another shape than the result",
                        got=list(target.shape),
                        expected=list(results[index].shape),
                    )
                target[...] = results[index]
            results[index] = given[index]
        if finish is not None:
            finish()
        return results

    def __repr__(self) -> str:
        return f"<VM function {self.name}>"


class VirtualMachine:
    """Runs the functions of an executable.

    The program is verified and linked here, once; nothing runs before all its symbols are found. Several threads may
    use one machine: each call has its own registers and memory for intermediates.

    Args:
        executable: program, modules and constants.
        externs: callables by symbol, for symbols that no module defines, or instead of a module's.
            One that is called in destination-passing style is ``f(*inputs, *outputs)`` and its value is ignored; one
            that ``call_packed`` calls returns an array or a tuple of arrays.
        num_threads: how many threads each call may use, its own among them; the number of the process where not given
            (see :mod:`byoc_core.runtime.threads`).

    Raises:
        OptionsError: ``num_threads`` or ``BYOC_NUM_THREADS`` is no number of threads.
        ProgramError: the program breaks a law.
        LinkError: a symbol or constant is missing, is defined twice, or does not fit.
    """

    def __init__(
        self,
        executable: ExecutableLike,
        *,
        externs: Mapping[str, Callable[..., object]] | None = None,
        num_threads: int | None = None,
    ) -> None:
        if num_threads is not None:
            check_num_threads(num_threads)
        verify(executable.program)
        self._program = executable.program
        # An extern may be anything: it is told the number of threads, and OpenMP code in it keeps to that.
        uses_threads = bool(externs) or any(module.uses_threads for module in executable.modules)
        if uses_threads:
            open_accounts()
        self._callables = {
            name: VMCallable(linked, uses_threads=uses_threads, num_threads=num_threads)
            for name, linked in link(
                executable.program, executable.modules, executable.constants, externs or {}
            ).items()
        }

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of all functions, in order."""
        return self._program.function_names

    def __getitem__(self, name: str) -> VMCallable:
        """Gives the function of that name.

        Raises:
            CallError: there is none; near names are listed.
        """
        function = self._callables.get(name)
        if function is None:
            raise CallError(
                f"function `{name}`",
                "is not in the program",
                expected=", ".join(self.functions) or "no function at all",
                hint=near_names(name, self.functions) or None,
            )
        return function

    def run(
        self, name: str, inputs: Mapping[str, object], out: Mapping[str, object] | None = None
    ) -> NDArray | tuple[NDArray, ...]:
        """Runs a function on named inputs.

        Args:
            name: the function.
            inputs: every input, by name.
            out: buffers for some or all results, by name; the others are fresh. A buffer may overlap an input, and
                need not be contiguous.

        Returns:
            The result, or a tuple of all results where there is not exactly one; buffers of ``out`` are among them.

        Raises:
            CallError: an unknown or missing name, or an argument that does not fit; nothing has run then, unless it
                is a buffer for a result whose size only running tells.
            ExecutionError: something the function calls failed.
        """
        return self[name].run(inputs, out)

    def __repr__(self) -> str:
        return f"<virtual machine: {', '.join(self.functions)}>"


def _check_names(
    where: str, what: str, given: Mapping[str, object], specs: Sequence[TensorSpec], *, complete: bool
) -> None:
    names = [spec.name for spec in specs]
    if not isinstance(given, Mapping):
        raise CallError(where, f"{what}s are not given by name", got=type(given).__name__, expected="a mapping")
    for name in given:
        if name not in names:
            raise CallError(
                where,
                f"has no {what} `{name}`",
                expected=", ".join(names) or f"no {what} at all",
                hint=near_names(name, names) or None,
            )
    missing = [name for name in names if name not in given]
    if complete and missing:
        raise CallError(
            where, f"{what} {', '.join(f'`{name}`' for name in missing)} is missing", expected=", ".join(names)
        )
