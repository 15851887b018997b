"""The subject's examples, saved and loaded again: the basis of the promises of the level."""

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
from byoc_conformance.lowered_calls import step_functions
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
"""The results of a function: dtype, shape and bytes of each result."""


@dataclass(frozen=True, eq=False)
class Saved:
    """A module of the subject and the payload.

    Attributes:
        module: the compiled module.
        runtime: saves and loads the module.
        payload: the saved bytes.
    """

    module: RuntimeModule
    runtime: RuntimeHandle
    payload: bytes

    def load(self, payload: bytes, constants: Mapping[str, Array] | None = None) -> RuntimeModule:
        """Return the module of a payload, with this module's constants or others.

        Native code is permitted only if this module is native.

        Raises:
            ByocError: the payload cannot be loaded.
        """
        available = self.module.constants if constants is None else constants
        return self.runtime.load(payload, LoadContext(available, self.module.is_native))

    def reload(self) -> RuntimeModule:
        """Return the module loaded from the saved payload.

        Raises:
            NotCoveredError: the payload cannot be loaded whole, as reported by ``L3-save-and-load``.
        """
        try:
            module = self.load(self.payload)
        except ByocError as error:
            raise NotCoveredError(
                f"the saved modules cannot be loaded, as reported by L3-save-and-load: {error}"
            ) from error
        if module.function_names != self.module.function_names:
            raise NotCoveredError("the saved modules lose functions, as reported by L3-save-and-load")
        return module


def examples_of(subject: Subject) -> tuple[Example, ...]:
    """Return the subject's examples.

    Raises:
        NotCoveredError: there are none.
    """
    examples = find_examples(subject)
    if not examples:
        raise NotCoveredError("no function was found for the backend to claim, compile and run")
    return examples


def compile_module(subject: Subject, module: IRModule) -> Attempt:
    """Return a compiled module, with every function compiled by the subject.

    Raises:
        NotCoveredError: the subject does not compile every function.
    """
    try:
        attempt = subject.attempt(module)
        if all(attempt.is_claimed(name) for name in module.functions) and not attempt.failures:
            return attempt
    except ByocError as error:
        raise NotCoveredError(f"the backend cannot be asked about the functions of this test: {error}") from error
    raise NotCoveredError("the backend does not compile the functions of this test")


def subject_modules(attempt: Attempt) -> tuple[RuntimeModule, ...]:
    """Return the modules compiled by the subject; modules of companions are ignored.

    Raises:
        NotCoveredError: a module has unrequested functions, as reported by level 1.
    """
    symbols = {region.attrs["global_symbol"] for regions in attempt.regions.values() for region in regions}
    mine = tuple(module for module in attempt.executable.modules if symbols & set(module.function_names))
    for module in mine:
        if more := sorted(set(module.function_names) - symbols - step_functions(module)):
            raise NotCoveredError(f"the module has unrequested functions, as reported by level 1: {', '.join(more)}")
    return mine


def _runtime_of(module: RuntimeModule) -> RuntimeHandle:
    """Return the runtime of a module.

    Raises:
        DeclinedError: no runtime is installed: the backend's modules are not for saving.
        NotCoveredError: the runtime cannot be used.
    """
    if module.type_key not in runtimes().names():
        raise DeclinedError(f"no runtime `{module.type_key}` is installed, so the modules cannot be saved")
    try:
        return runtimes().get(module.type_key)
    except PluginError as error:
        raise NotCoveredError(f"the runtime cannot be used, as reported by level 0: {error}") from error


def save_module(module: RuntimeModule) -> Saved:
    """Return a module with the saved payload.

    Raises:
        DeclinedError: modules of this runtime cannot be saved; a runtime may refuse this.
        ByocError: saving fails.
    """
    runtime = _runtime_of(module)
    try:
        return Saved(module, runtime, runtime.save(module))
    except HookError:
        raise
    except PluginError as error:  # no such hook
        raise DeclinedError(str(error)) from error


def payloads_of(attempt: Attempt) -> tuple[Saved, ...]:
    """Return the saved modules of the subject.

    Raises:
        DeclinedError: modules of this runtime cannot be saved.
        NotCoveredError: saving fails, as reported by ``L3-save-and-load``.
    """
    try:
        return tuple(save_module(module) for module in subject_modules(attempt))
    except ByocError as error:
        raise NotCoveredError(f"the modules cannot be saved, as reported by L3-save-and-load: {error}") from error


@cache
def save_examples(subject: Subject) -> tuple[Saved, ...]:
    """Return the subject's saved modules of all examples.

    Raises:
        VerdictError: there is nothing to save, or saving is impossible.
    """
    examples_of(subject)
    return payloads_of(compile_examples(subject))


def reload(subject: Subject, executable: byoc_core.Executable) -> byoc_core.Executable:
    """Return an executable saved to a file and loaded again.

    Raises:
        NotCoveredError: saving or loading fails, as reported by ``L3-save-and-load``.
        DeclinedError: the subject's modules cannot be saved.
    """
    save_examples(subject)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "examples.byoc"
        try:
            executable.save(path)
            return byoc_core.load(path, allow_native=True)
        except ByocError as error:
            raise NotCoveredError(
                f"the saved modules cannot be loaded, as reported by L3-save-and-load: {error}"
            ) from error


def results_of(vm: byoc_core.VirtualMachine, example: Example) -> Results:
    """Return the results of an example: dtypes, shapes, bytes."""
    results = call_function(vm, example.function, example.new_inputs())
    return tuple((array.dtype.name, tuple(array.shape), array.tobytes()) for array in results)


@cache
def settled_examples(subject: Subject) -> Mapping[Example, Results]:
    """Return the results of examples with bit-identical results in a second run.

    Raises:
        NotCoveredError: there is no such example, or the subject does not declare determinism.
    """
    examples = examples_of(subject)
    if not subject.info.deterministic:
        raise NotCoveredError("the backend declares `deterministic=False`")
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
