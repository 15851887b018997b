"""The subject's examples, saved and loaded again: what the promises of the level look at."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import byoc_core
from byoc_core.errors import ByocError, HookError, PluginError
from byoc_core.ir import IRModule
from byoc_core.runtime import RuntimeHandle, runtimes
from byoc_core.runtime.hooks import LoadContext
from byoc_core.runtime.module import RuntimeModule

from byoc_conformance.examples import Array, Example, compile_examples, find_examples
from byoc_conformance.outcome import DeclinedError, NotCoveredError
from byoc_conformance.subject import Attempt, Subject, call_function

__all__ = [
    "Results",
    "Saved",
    "compile_module",
    "examples_of",
    "payloads_of",
    "reload",
    "results_of",
    "save_examples",
    "save_module",
    "settled_examples",
    "subject_modules",
]

Results = tuple[tuple[str, tuple[int, ...], bytes], ...]
"""What a function gave: dtype, shape and bytes of each result."""


@dataclass(frozen=True, eq=False)
class Saved:
    """A module of the subject and its payload.

    Attributes:
        module: as it was compiled.
        runtime: saves and loads it.
        payload: as it was saved.
    """

    module: RuntimeModule
    runtime: RuntimeHandle
    payload: bytes

    def load(self, payload: bytes, constants: Mapping[str, Array] | None = None) -> RuntimeModule:
        """Gives the module of a payload, with this module's constants or others; native code is permitted if it is.

        Raises:
            ByocError: it cannot be loaded.
        """
        given = self.module.constants if constants is None else constants
        return self.runtime.load(payload, LoadContext(given, self.module.is_native))

    def reload(self) -> RuntimeModule:
        """Gives the module of its own payload.

        Raises:
            NotCoveredError: it cannot be loaded whole, which ``L3-save-and-load`` tells.
        """
        try:
            module = self.load(self.payload)
        except ByocError as error:
            raise NotCoveredError(f"what it saves cannot be loaded, as L3-save-and-load tells: {error}") from error
        if module.function_names != self.module.function_names:
            raise NotCoveredError("what it saves loses functions, as L3-save-and-load tells")
        return module


def examples_of(subject: Subject) -> tuple[Example, ...]:
    """Gives the subject's examples.

    Raises:
        NotCoveredError: there are none.
    """
    examples = find_examples(subject)
    if not examples:
        raise NotCoveredError("no function was found that it claims, compiles and runs")
    return examples


def compile_module(subject: Subject, module: IRModule) -> Attempt:
    """Gives a module compiled, every function of it by the subject.

    Raises:
        NotCoveredError: the subject does not do that.
    """
    try:
        attempt = subject.attempt(module)
        if all(attempt.is_claimed(name) for name in module.functions) and not attempt.failures:
            return attempt
    except ByocError as error:
        raise NotCoveredError(f"cannot be asked about what this test is about: {error}") from error
    raise NotCoveredError("does not compile what this test is about")


def subject_modules(attempt: Attempt) -> tuple[RuntimeModule, ...]:
    """Gives the modules that the subject compiled; those of companions are not looked at.

    Raises:
        NotCoveredError: one has functions that it was not asked for, which level 1 tells.
    """
    symbols = {region.attrs["global_symbol"] for regions in attempt.regions.values() for region in regions}
    mine = tuple(module for module in attempt.executable.modules if symbols & set(module.function_names))
    for module in mine:
        if more := sorted(set(module.function_names) - symbols):
            raise NotCoveredError(
                f"its module has functions that nobody asked for, as level 1 tells: {', '.join(more)}"
            )
    return mine


def _runtime_of(module: RuntimeModule) -> RuntimeHandle:
    """Gives the runtime of a module.

    Raises:
        DeclinedError: none is installed: the backend's modules are not for saving.
        NotCoveredError: it cannot be used.
    """
    if module.type_key not in runtimes().names():
        raise DeclinedError(f"no runtime `{module.type_key}` is installed, so its modules cannot be saved")
    try:
        return runtimes().get(module.type_key)
    except PluginError as error:
        raise NotCoveredError(f"its runtime cannot be used, as level 0 tells: {error}") from error


def save_module(module: RuntimeModule) -> Saved:
    """Gives a module with its payload.

    Raises:
        DeclinedError: modules of this runtime cannot be saved, which is a runtime's right.
        ByocError: saving fails.
    """
    runtime = _runtime_of(module)
    try:
        return Saved(module, runtime, runtime.save(module))
    except HookError:
        raise
    except PluginError as error:  # it has no such hook
        raise DeclinedError(str(error)) from error


def payloads_of(attempt: Attempt) -> tuple[Saved, ...]:
    """Gives what the subject compiled, saved.

    Raises:
        DeclinedError: modules of this runtime cannot be saved.
        NotCoveredError: saving fails, which ``L3-save-and-load`` tells.
    """
    try:
        return tuple(save_module(module) for module in subject_modules(attempt))
    except ByocError as error:
        raise NotCoveredError(f"its modules cannot be saved, as L3-save-and-load tells: {error}") from error


@cache
def save_examples(subject: Subject) -> tuple[Saved, ...]:
    """Gives the subject's modules of all examples, saved.

    Raises:
        VerdictError: there is nothing, or it cannot be saved.
    """
    examples_of(subject)
    return payloads_of(compile_examples(subject))


def reload(subject: Subject, executable: byoc_core.Executable) -> byoc_core.Executable:
    """Gives an executable saved to a file and loaded from it.

    Raises:
        NotCoveredError: that fails, which ``L3-save-and-load`` tells.
        DeclinedError: the subject's modules cannot be saved.
    """
    save_examples(subject)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "examples.byoc"
        try:
            executable.save(path)
            return byoc_core.load(path, allow_native=True)
        except ByocError as error:
            raise NotCoveredError(f"what it saves cannot be loaded, as L3-save-and-load tells: {error}") from error


def results_of(vm: byoc_core.VirtualMachine, example: Example) -> Results:
    """Gives what an example gave: dtypes, shapes, bytes."""
    results = call_function(vm, example.function, example.new_inputs())
    return tuple((array.dtype.name, tuple(array.shape), array.tobytes()) for array in results)


@cache
def settled_examples(subject: Subject) -> Mapping[Example, Results]:
    """Gives the results of the examples that give the same, bit for bit, when they run again.

    Raises:
        NotCoveredError: none does, or the subject does not promise it.
    """
    examples = examples_of(subject)
    if not subject.info.deterministic:
        raise NotCoveredError("does not say that equal inputs give equal outputs, bit for bit")
    vm = compile_examples(subject).vm
    settled = {}
    for example in examples:
        try:
            first, second = (results_of(vm, example) for _ in range(2))
        except ByocError:  # level 4 tells
            continue
        if first == second:
            settled[example] = first
    if not settled:
        raise NotCoveredError("no example gives the same results twice")
    return settled
