"""The declarations of both halves: capabilities, hooks, and the same answers each time."""

from __future__ import annotations

from collections.abc import Iterator

from byoc_core.backend import hooks as backend_hooks
from byoc_core.backend.hooks import BackendInfo
from byoc_core.runtime import hooks as runtime_hooks
from byoc_core.runtime import runtimes
from byoc_core.runtime.hooks import RuntimeInfo
from pydantic import BaseModel

from byoc_conformance.outcome import FailedError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l0_declares.distribution import opened_runtimes
from byoc_conformance.subject import Subject

__all__ = ["PROMISES"]

_FLAGS = ("dynamic_shapes", "data_dependent_sizes", "deterministic", "native", "strided", "quantised", "finite_only")
_HOOK_MODULES = (backend_hooks, runtime_hooks)
_HOOKS = frozenset(name for module in _HOOK_MODULES for name in module.__all__ if name.startswith("byoc_"))


def _check_info(subject: Subject, case: str) -> None:
    faults = list(_info_faults(subject.info))
    if faults:
        raise FailedError("\n".join(faults))


def _info_faults(info: BackendInfo) -> Iterator[str]:
    for name in _FLAGS:
        value = getattr(info, name)
        if not isinstance(value, bool):
            yield f"`{name}` is {value!r}, expected True or False"
    options: object = info.options
    if options is not None and not (isinstance(options, type) and issubclass(options, BaseModel)):
        yield f"`options` is {options!r}, expected a pydantic model, or None"


def _is_tuple_of(value: object, kind: type) -> bool:
    return isinstance(value, tuple) and all(isinstance(item, kind) for item in value)


def _check_runtime_info(subject: Subject, case: str) -> None:
    for runtime in opened_runtimes(subject):
        faults = list(_runtime_info_faults(runtime.info(), runtimes().catalog.load(runtime.type_key)))
        if faults:
            raise FailedError("\n".join(f"runtime `{runtime.type_key}`: {fault}" for fault in faults))


def _runtime_info_faults(info: RuntimeInfo, plugin: object) -> Iterator[str]:
    fork_safe: object = info.fork_safe
    if not isinstance(fork_safe, bool):
        yield f"`fork_safe` is {fork_safe!r}, expected True or False"
    if not _is_tuple_of(info.formats, int) or min(info.formats) < 1 or len(set(info.formats)) < len(info.formats):
        yield f"`formats` is {info.formats!r}, expected a tuple of numbers from 1, each once"
    if not _is_tuple_of(info.file_formats, str):
        yield f"`file_formats` is {info.file_formats!r}, expected a tuple of names"
    elif bool(info.file_formats) != hasattr(plugin, "byoc_load_file"):
        has = "there is no" if info.file_formats else "there is a"
        yield f"`file_formats` is {info.file_formats!r}, and {has} hook `byoc_load_file`"
    if info.concurrency not in ("reentrant", "serial"):
        yield f"`concurrency` is {info.concurrency!r}, expected 'reentrant' or 'serial'"
    if hasattr(plugin, "byoc_save_module") != hasattr(plugin, "byoc_load_module"):
        present = "save" if hasattr(plugin, "byoc_save_module") else "load"
        yield f"only `byoc_{present}_module` exists, expected both `byoc_save_module` and `byoc_load_module`"


def _check_hook_names(subject: Subject, case: str) -> None:
    plugin = subject.handle.plugin
    functions = {name: getattr(plugin, name) for name in dir(plugin) if name.startswith("byoc_")}
    for name, function in functions.items():
        is_imported = str(getattr(function, "__module__", "")).partition(".")[0] == "byoc_core"
        if name in _HOOKS or is_imported or not callable(function):
            continue
        marks = getattr(function, f"{backend_hooks.hookimpl.project_name}_impl", None) or {}
        if not marks.get("specname") and not marks.get("optionalhook"):
            raise FailedError(
                f"function `{name}` is no hook and is never called; the hooks are {', '.join(sorted(_HOOKS))}"
            )


def _check_repeats(subject: Subject, case: str) -> None:
    first, second = _answers(subject), _answers(subject)
    for hook, answer in first.items():
        if answer != second[hook]:
            raise FailedError(f"hook `{hook}` returned {answer}, then {second[hook]}")


def _answers(subject: Subject) -> dict[str, list[str]]:
    """Return the answers of the hooks without arguments, each item as text."""
    patterns = [f"{p.name}, priority {p.priority}, leaked {p.leaked}: {p.pattern}" for p in subject.handle.patterns()]
    return {"byoc_patterns": patterns, "byoc_ops": [op.name for op in subject.handle.ops()]}


PROMISES = (
    Promise(Level.L0, "info-fields", "fills the fields of `BackendInfo` with values of the right types", _check_info),
    Promise(
        Level.L0,
        "runtime-info",
        "fills the fields of `RuntimeInfo` with valid values, consistent with the hooks",
        _check_runtime_info,
    ),
    Promise(Level.L0, "hook-names", "has no functions with the prefix `byoc_` other than hooks", _check_hook_names),
    Promise(
        Level.L0,
        "answers-repeat",
        "returns the same patterns and ops, in the same order, on every call",
        _check_repeats,
    ),
)
