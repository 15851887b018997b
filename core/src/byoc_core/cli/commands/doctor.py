"""``byoc doctor``: faults of this installation, with remedies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import typer

if TYPE_CHECKING:
    from byoc_core.cli.plugin_status import PluginExaminer
    from byoc_core.plugin import Catalog

__all__ = ["examine"]

_VARIABLES = (
    "BYOC_BACKENDS",
    "BYOC_DISABLE_BACKENDS",
    "BYOC_PREFER",
    "BYOC_DEBUG",
    "BYOC_CACHE_DIR",
    "BYOC_LIBRARY_PATH",
    "BYOC_NATIVE",
    "BYOC_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "GOMP_SPINCOUNT",
)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A single line: ``fine``, ``note`` (works, but deserves a look) or ``fault`` (needs action)."""

    level: Literal["fine", "note", "fault"]
    subject: str
    text: str
    remedy: str = ""


def examine() -> None:
    """Examine the installation, and suggest remedies for its faults.

    Exits with 1 if there is a fault.
    """
    from byoc_core.cli.console import open_console

    console = open_console()
    styles = {"fine": "green", "note": "yellow", "fault": "bold red"}
    diagnoses = list(_find())
    for diagnosis in diagnoses:
        console.print(f"{diagnosis.level:<5}  ", style=styles[diagnosis.level], end="")
        console.print(f"{diagnosis.subject}: {diagnosis.text}", soft_wrap=True)
        if diagnosis.remedy:
            console.print(f"       {diagnosis.remedy}", soft_wrap=True)
    faults = sum(diagnosis.level == "fault" for diagnosis in diagnoses)
    console.print(f"\n{faults} fault{'' if faults == 1 else 's'} found." if faults else "\nNo faults found.")
    if faults:
        raise typer.Exit(1)


def _find() -> Iterator[Diagnosis]:
    from byoc_core.cli.plugin_status import PluginExaminer
    from byoc_core.plugin import BACKENDS_GROUP, IMPORTERS_GROUP, LIBRARIES_GROUP, RUNTIMES_GROUP, installed

    yield from _find_versions()
    backends, runtimes = installed(BACKENDS_GROUP), installed(RUNTIMES_GROUP)
    for problem in dict.fromkeys((*backends.problems, *runtimes.problems)):
        yield Diagnosis("fault", "plugins", problem, "Reinstall the distribution.")
    with PluginExaminer() as examiner:
        yield from _find_plugins("backend", "can compile", backends, examiner)
        yield from _find_plugins("runtime", "can run", runtimes, examiner)
        yield from _find_plugins("importer", "can import", installed(IMPORTERS_GROUP), examiner)
    yield from _find_libraries(installed(LIBRARIES_GROUP))
    yield _find_extension()
    yield _find_native_machine()
    yield _find_compiler()
    yield _find_num_threads()
    yield _find_openmp()
    yield from _find_settings()
    yield _find_cache()
    yield from _find_commands()


def _find_versions() -> Iterator[Diagnosis]:
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from byoc_core.version import __version__

    yield Diagnosis("fine", "byoc-core", __version__)
    yield Diagnosis("fine", "Python", f"{platform.python_version()} on {platform.platform()}")
    yield Diagnosis("fine", "numpy", version("numpy"))
    try:
        yield Diagnosis("fine", "onnx", version("onnx"))
    except PackageNotFoundError:
        remedy = "pip install 'byoc-core[onnx]'."
        yield Diagnosis("note", "onnx", "is not installed, so ONNX models cannot be imported", remedy)


def _find_plugins(kind: str, ability: str, catalog: Catalog, examiner: PluginExaminer) -> Iterator[Diagnosis]:
    from byoc_core.plugin import PluginState

    for listed in catalog.records:
        record, status = examiner.ask(listed)
        subject = f"{kind} `{record.name}` ({record.distribution} {record.version})"
        if status is None:
            level: Literal["note", "fault"] = "note" if record.state is PluginState.DISABLED else "fault"
            yield Diagnosis(level, subject, f"{record.state}: {record.reason}", record.remedy)
        elif status.ok:
            yield Diagnosis("fine", subject, ability + (f": {status.reason}" if status.reason else ""))
        else:
            yield Diagnosis("note", subject, f"is unusable here: {status.reason}", status.remedy)


def _find_libraries(catalog: Catalog) -> Iterator[Diagnosis]:
    """Yield the declarations of shared libraries; the code behind the declarations does not run."""
    from byoc_core.plugin import PluginState

    for record in catalog.records:
        subject = f"library `{record.name}` ({record.distribution} {record.version})"
        if record.state is PluginState.AVAILABLE:
            yield Diagnosis("fine", subject, "is declared")
        else:
            yield Diagnosis("fault", subject, f"{record.state}: {record.reason}", record.remedy)


def _find_extension() -> Diagnosis:
    from byoc_core.runtime.extension import extension_status

    is_there, reason = extension_status()
    if is_there:
        return Diagnosis("fine", "native calls", "run together, in the C extension")
    cost = "half a microsecond more for each step of a model, and five for each call"
    return Diagnosis(
        "note", "native calls", f"run one by one, in Python ({cost}): {reason}", _extension_remedy(os.name)
    )


def _find_native_machine() -> Diagnosis:
    from byoc_core.plugin import MACHINES_GROUP, installed
    from byoc_core.runtime.extension import extension_status
    from byoc_core.runtime.native_machines import NativeMachine, native_machines

    found = native_machines().open()
    if isinstance(found, NativeMachine):
        return Diagnosis("fine", "native machine", f"{found.label} runs models with data-dependent sizes and branches")
    is_faulty = bool(installed(MACHINES_GROUP).records) and extension_status()[0]
    cost = "some five microseconds of Python for each step of a model with data-dependent sizes"
    return Diagnosis("fault" if is_faulty else "note", "native machine", f"{found} ({cost})")


def _extension_remedy(system: str) -> str:
    """Return the remedy for a missing C extension, on a system with this ``os.name``."""
    from byoc_core.runtime.extension import SWITCH

    if os.environ.get(SWITCH) == "0":
        return f"Unset {SWITCH}."
    if system == "nt":
        return "There is no C extension for Windows."
    return "Install byoc-core from source (a checkout or an sdist) on a machine with a C compiler."


def _find_compiler() -> Diagnosis:
    from byoc_core.native.toolchain import Toolchain, find_toolchain

    status = Toolchain.status()
    if status.ok:
        return Diagnosis("fine", "C compiler", find_toolchain().version.splitlines()[0])
    return Diagnosis("note", "C compiler", status.reason.removeprefix("C compiler: "), status.remedy)


def _find_num_threads() -> Diagnosis:
    from byoc_core.errors import OptionsError
    from byoc_core.native.processors import count_cpus
    from byoc_core.runtime.threads import default_num_threads

    cpus = count_cpus()
    processors = f"{cpus} processor{'' if cpus == 1 else 's'} available"
    try:
        number = default_num_threads()
    except OptionsError as error:
        text = f"{error.where}: {error.problem}; got {error.got}, expected {error.expected}"
        return Diagnosis("fault", "threads", text, "Correct or unset the variable.")
    return Diagnosis("fine", "threads", f"{number} for each process; {processors}")


def _find_openmp() -> Diagnosis:
    from byoc_core.runtime.threads import use_openmp
    from byoc_core.runtime.threads.openmp import OPENMP_NAME, SPIN_COUNT

    library = use_openmp()
    if library is None:
        text = f"{OPENMP_NAME} was not found, so generated code runs on one thread"
        return Diagnosis("note", "OpenMP", text, "apt-get install libgomp1.")
    policy = f"look for work {SPIN_COUNT:,} times, then sleep" if library.spins else "wait as set in the environment"
    return Diagnosis("fine", "OpenMP", f"{library.path}; idle workers {policy}")


def _find_settings() -> Iterator[Diagnosis]:
    from byoc_core.errors import near_names
    from byoc_core.plugin import BACKENDS_GROUP, IMPORTERS_GROUP, RUNTIMES_GROUP, installed
    from byoc_core.plugin.settings import PluginSettings

    for variable in _VARIABLES:
        if os.environ.get(variable):
            yield Diagnosis("fine", f"environment variable {variable}", os.environ[variable])
    settings = PluginSettings.from_environment(os.environ)
    groups = (BACKENDS_GROUP, RUNTIMES_GROUP, IMPORTERS_GROUP)
    installed_names = {record.name for group in groups for record in installed(group).records}
    preferred = {name for name in settings.preferred if "." not in name}  # a dot: a domain or operator of ONNX
    for name in sorted(((settings.allowed or frozenset()) | settings.disabled | preferred) - installed_names):
        text = f"the environment names `{name}`, but no plugin with this name is installed"
        yield Diagnosis("note", "settings", text, near_names(name, installed_names))


def _find_cache() -> Diagnosis:
    from byoc_core.native.build_cache import cache_directory

    folder = cache_directory()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if os.access(existing, os.W_OK):
        return Diagnosis("fine", "cache", str(folder))
    return Diagnosis(
        "note", "cache", f"{folder} cannot be written", "Set BYOC_CACHE_DIR to a folder with write access."
    )


def _find_commands() -> Iterator[Diagnosis]:
    from byoc_core.cli.app import app
    from byoc_core.cli.installed_commands import CommandGroup, find_command_faults

    own = typer.main.get_command(app)
    assert isinstance(own, CommandGroup)
    for record in find_command_faults(own):
        subject = f"command `{record.name}` ({record.distribution} {record.version})"
        yield Diagnosis("fault", subject, f"{record.state}: {record.reason}", record.remedy)
