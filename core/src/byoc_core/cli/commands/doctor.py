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
class Finding:
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
    findings = list(_find())
    for finding in findings:
        console.print(f"{finding.level:<5}  ", style=styles[finding.level], end="")
        console.print(f"{finding.subject}: {finding.text}", soft_wrap=True)
        if finding.remedy:
            console.print(f"       {finding.remedy}", soft_wrap=True)
    faults = sum(finding.level == "fault" for finding in findings)
    console.print(f"\n{faults} fault{'' if faults == 1 else 's'} found." if faults else "\nNo faults found.")
    if faults:
        raise typer.Exit(1)


def _find() -> Iterator[Finding]:
    from byoc_core.cli.plugin_status import PluginExaminer
    from byoc_core.plugin import BACKENDS_GROUP, LIBRARIES_GROUP, RUNTIMES_GROUP, installed

    yield from _find_versions()
    backends, runtimes = installed(BACKENDS_GROUP), installed(RUNTIMES_GROUP)
    for problem in dict.fromkeys((*backends.problems, *runtimes.problems)):
        yield Finding("fault", "plugins", problem, "Reinstall the distribution.")
    with PluginExaminer() as examiner:
        yield from _find_plugins("backend", "can compile", backends, examiner)
        yield from _find_plugins("runtime", "can run", runtimes, examiner)
    yield from _find_libraries(installed(LIBRARIES_GROUP))
    yield _find_extension()
    yield _find_compiler()
    yield _find_num_threads()
    yield _find_openmp()
    yield from _find_settings()
    yield _find_cache()
    yield from _find_commands()


def _find_versions() -> Iterator[Finding]:
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from byoc_core.version import __version__

    yield Finding("fine", "byoc-core", __version__)
    yield Finding("fine", "Python", f"{platform.python_version()} on {platform.platform()}")
    yield Finding("fine", "numpy", version("numpy"))
    try:
        yield Finding("fine", "onnx", version("onnx"))
    except PackageNotFoundError:
        remedy = "pip install 'byoc-core[onnx]'."
        yield Finding("note", "onnx", "is not installed, so ONNX models cannot be imported", remedy)


def _find_plugins(kind: str, ability: str, catalog: Catalog, examiner: PluginExaminer) -> Iterator[Finding]:
    from byoc_core.plugin import PluginState

    for listed in catalog.records:
        record, status = examiner.ask(listed)
        subject = f"{kind} `{record.name}` ({record.distribution} {record.version})"
        if status is None:
            level: Literal["note", "fault"] = "note" if record.state is PluginState.DISABLED else "fault"
            yield Finding(level, subject, f"{record.state}: {record.reason}", record.remedy)
        elif status.ok:
            yield Finding("fine", subject, ability + (f": {status.reason}" if status.reason else ""))
        else:
            yield Finding("note", subject, f"is unusable here: {status.reason}", status.remedy)


def _find_libraries(catalog: Catalog) -> Iterator[Finding]:
    """Yield the declarations of shared libraries; the code behind the declarations does not run."""
    from byoc_core.plugin import PluginState

    for record in catalog.records:
        subject = f"library `{record.name}` ({record.distribution} {record.version})"
        if record.state is PluginState.AVAILABLE:
            yield Finding("fine", subject, "is declared")
        else:
            yield Finding("fault", subject, f"{record.state}: {record.reason}", record.remedy)


def _find_extension() -> Finding:
    from byoc_core.runtime.extension import extension_status

    is_there, reason = extension_status()
    if is_there:
        return Finding("fine", "native calls", "run together, in the C extension")
    cost = "half a microsecond more for each step of a model, and five for each call"
    return Finding("note", "native calls", f"run one by one, in Python ({cost}): {reason}", _extension_remedy(os.name))


def _extension_remedy(system: str) -> str:
    """Return the remedy for a missing C extension, on a system with this ``os.name``."""
    from byoc_core.runtime.extension import SWITCH

    if os.environ.get(SWITCH) == "0":
        return f"Unset {SWITCH}."
    if system == "nt":
        return "There is no C extension for Windows."
    return "Install byoc-core from source (a checkout or an sdist) on a machine with a C compiler."


def _find_compiler() -> Finding:
    from byoc_core.native.toolchain import Toolchain, find_toolchain

    status = Toolchain.status()
    if status.ok:
        return Finding("fine", "C compiler", find_toolchain().version.splitlines()[0])
    return Finding("note", "C compiler", status.reason.removeprefix("C compiler: "), status.remedy)


def _find_num_threads() -> Finding:
    from byoc_core.errors import OptionsError
    from byoc_core.native.processors import count_cpus
    from byoc_core.runtime.threads import default_num_threads

    cpus = count_cpus()
    processors = f"{cpus} processor{'' if cpus == 1 else 's'} available"
    try:
        number = default_num_threads()
    except OptionsError as error:
        text = f"{error.where}: {error.problem}; got {error.got}, expected {error.expected}"
        return Finding("fault", "threads", text, "Correct or unset the variable.")
    return Finding("fine", "threads", f"{number} for each process; {processors}")


def _find_openmp() -> Finding:
    from byoc_core.runtime.threads import use_openmp
    from byoc_core.runtime.threads.openmp import OPENMP_NAME, SPIN_COUNT

    library = use_openmp()
    if library is None:
        text = f"{OPENMP_NAME} was not found, so generated code runs on one thread"
        return Finding("note", "OpenMP", text, "apt-get install libgomp1.")
    policy = f"look for work {SPIN_COUNT:,} times, then sleep" if library.spins else "wait as set in the environment"
    return Finding("fine", "OpenMP", f"{library.path}; idle workers {policy}")


def _find_settings() -> Iterator[Finding]:
    from byoc_core.errors import near_names
    from byoc_core.plugin import BACKENDS_GROUP, RUNTIMES_GROUP, installed
    from byoc_core.plugin.settings import PluginSettings

    for variable in _VARIABLES:
        if os.environ.get(variable):
            yield Finding("fine", f"environment variable {variable}", os.environ[variable])
    settings = PluginSettings.from_environment(os.environ)
    installed_names = {record.name for group in (BACKENDS_GROUP, RUNTIMES_GROUP) for record in installed(group).records}
    for name in sorted(
        ((settings.allowed or frozenset()) | settings.disabled | set(settings.preferred)) - installed_names
    ):
        text = f"the environment names `{name}`, but no plugin with this name is installed"
        yield Finding("note", "settings", text, near_names(name, installed_names))


def _find_cache() -> Finding:
    from byoc_core.native.build_cache import cache_directory

    folder = cache_directory()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if os.access(existing, os.W_OK):
        return Finding("fine", "cache", str(folder))
    return Finding("note", "cache", f"{folder} cannot be written", "Set BYOC_CACHE_DIR to a folder with write access.")


def _find_commands() -> Iterator[Finding]:
    from byoc_core.cli.app import app
    from byoc_core.cli.installed_commands import CommandGroup, find_command_faults

    own = typer.main.get_command(app)
    assert isinstance(own, CommandGroup)
    for record in find_command_faults(own):
        subject = f"command `{record.name}` ({record.distribution} {record.version})"
        yield Finding("fault", subject, f"{record.state}: {record.reason}", record.remedy)
