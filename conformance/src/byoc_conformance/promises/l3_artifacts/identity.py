"""Identity of modules saved and loaded in the same process."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import byoc_core
from byoc_core.errors import ByocError
from byoc_core.ir import IRModule

from byoc_conformance.examples import Example, compile_examples, join_examples
from byoc_conformance.outcome import FailedError, NotCoveredError
from byoc_conformance.promises.l3_artifacts.saved import (
    Saved,
    compile_module,
    examples_of,
    payloads_of,
    reload,
    results_of,
    save_examples,
    save_module,
    settled_examples,
    subject_modules,
)
from byoc_conformance.subject import Subject

__all__ = [
    "require_same_bytes",
    "same_kind",
    "same_payload_for_equal_functions",
    "same_payload_of_loaded",
    "same_payload_twice",
    "same_results",
    "same_source",
    "saves_and_loads",
    "two_artifacts",
]

_TWIN = "twin"
_NUM_TWINS = 4


def saves_and_loads(subject: Subject, case: str) -> None:
    """Check that compiled modules come back from a file, with the same functions."""
    examples_of(subject)
    attempt = compile_examples(subject)
    for module in subject_modules(attempt):
        save_module(module)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "examples.byoc"
        try:
            attempt.executable.save(path)
            loaded = byoc_core.load(path, allow_native=True)
        except ByocError as error:
            raise FailedError(f"the compiled modules cannot be saved and loaded: {error}") from error
    before = [module.function_names for module in attempt.executable.modules]
    after = [module.function_names for module in loaded.modules]
    if before != after:
        raise FailedError(f"the loaded module has other functions; got {after}, expected {before}")


def same_results(subject: Subject, case: str) -> None:
    """Check that loaded functions return the results of the compiled functions."""
    settled = settled_examples(subject)
    vm = byoc_core.VirtualMachine(reload(subject, compile_examples(subject).executable))
    for example, expected in settled.items():
        if results_of(vm, example) != expected:
            raise FailedError(f"`{example.name}` gives other results after saving and loading")


def same_source(subject: Subject, case: str) -> None:
    """Check that loaded modules have the text form of the compiled modules."""
    for saved in save_examples(subject):
        before, after = saved.module.get_source(), saved.reload().get_source()
        if before != after:
            raise FailedError(f"saving and loading changed the source; got {after!r:.200}, expected {before!r:.200}")


def same_kind(subject: Subject, case: str) -> None:
    """Check that loaded modules belong to the loading runtime."""
    for saved in save_examples(subject):
        loaded = saved.reload()
        if loaded.type_key != saved.module.type_key:
            raise FailedError(
                f"the loaded module has the type key `{loaded.type_key}`; expected `{saved.module.type_key}`"
            )


def same_payload_twice(subject: Subject, case: str) -> None:
    """Check that saving a module again gives the same bytes."""
    for saved in save_examples(subject):
        second_payload = saved.runtime.save(saved.module)
        if second_payload != saved.payload:
            raise FailedError(
                f"saving the same module twice gave different bytes; {_first_difference(saved.payload, second_payload)}"
            )


def same_payload_of_loaded(subject: Subject, case: str) -> None:
    """Check that saving a loaded module gives the loaded bytes."""
    for saved in save_examples(subject):
        require_same_bytes(saved)
        second_payload = saved.runtime.save(saved.reload())
        if second_payload != saved.payload:
            raise FailedError(
                f"saving a loaded module gave different bytes; {_first_difference(saved.payload, second_payload)}"
            )


def same_payload_for_equal_functions(subject: Subject, case: str) -> None:
    """Check that compiling the same functions again gives the same bytes."""
    if not subject.info.deterministic:
        raise NotCoveredError("the backend declares `deterministic=False`")
    first = save_examples(subject)
    for saved in first:
        require_same_bytes(saved)
    second = payloads_of(subject.attempt(join_examples(examples_of(subject))))
    for saved_first, saved_second in zip(first, second, strict=True):
        if saved_first.payload != saved_second.payload:
            difference = _first_difference(saved_first.payload, saved_second.payload)
            raise FailedError(f"compiling equal functions twice gave different bytes; {difference}")


def two_artifacts(subject: Subject, case: str) -> None:
    """Check that artifacts with equal function names run side by side."""
    settled = settled_examples(subject)
    if len(settled) < 2:
        raise NotCoveredError("there is only a single example")
    attempts = [(example, compile_module(subject, _renamed(example))) for example in list(settled)[:_NUM_TWINS]]
    for example, attempt in attempts:
        vm = byoc_core.VirtualMachine(attempt.executable)
        if results_of(vm, replace(example, function=_TWIN)) != settled[example]:
            raise NotCoveredError("the functions give other results under other names")
    executables = [(example, reload(subject, attempt.executable)) for example, attempt in attempts]
    for example, executable in (*executables, *reversed(executables)):
        try:
            results = results_of(byoc_core.VirtualMachine(executable), replace(example, function=_TWIN))
        except ByocError as error:
            raise FailedError(f"`{example.name}` fails beside artifacts with equal function names: {error}") from error
        if results != settled[example]:
            raise FailedError(f"`{example.name}` gives other results beside artifacts with equal function names")


def _renamed(example: Example) -> IRModule:
    function = replace(example.module[example.function], name=_TWIN)
    return example.module.with_functions({_TWIN: function})


def _first_difference(first: bytes, second: bytes) -> str:
    offset = next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )
    return f"{len(first)} and {len(second)} bytes, first difference at byte {offset}"


def require_same_bytes(saved: Saved) -> None:
    """Raise :class:`NotCoveredError` if saving a module again gives other bytes."""
    if saved.runtime.save(saved.module) != saved.payload:
        raise NotCoveredError("the same module is not saved as the same bytes, as reported by L3-saves-the-same-bytes")
