"""What `nox` runs: lint, types, and the tests of each package against its installed wheel.

``nox`` alone runs everything that must be green; ``nox -l`` lists the sessions; ``nox -s tests-core-3.13 -- -k dims``
runs a part of one. The Python that runs nox runs all tests, with all plugins. The farthest from it runs those whose
outcome may hang on the interpreter or its numpy (``pythons``, the tables ``DIFFERING``). The third runs core's part of
those, and core's tests that ask what is installed, without plugins (``core-alone``, the table ``ASKING_FOR_PLUGINS``).
``nox -t matrix`` runs all tests on each Python.

``nox -s demo`` does the main job of the README. Not among the default ones are ``nox -s floors`` and
``nox -s tvm-ffi``, parts of others that are quick alone, ``nox -s partition-laws``, which tries partition on many
random graphs, ``nox -s fuzz``, which loads and runs mutants of artifacts, ``nox -s thorough``, which holds all
properties to more examples, ``nox -s sanitizers``, which runs the C extensions' tests under gcc's sanitizers,
``nox -s sanitized-c``, which runs generated C under them, ``nox -s mutation``, which changes the code and counts the
changes that no test notices, ``nox -s zig``, which compiles all that ccompiler's tests generate by zig,
``nox -s release``, which builds and checks what a package index takes (``-- --rehearse`` before all that a release
needs is there), and ``nox -s minimums``, which tries the oldest dependencies.

Where nox finds uv (``pip install "nox[uv]"``), that makes the environments, else pip. They are reused between runs
(``nox --reuse-venv=no`` makes them anew), as is what C compilers made (``out/build-cache``, by a key of all that goes
into it); byoc's own wheels are always built and installed afresh. ``nox -s conformance`` leaves the kit's reports in
``out/conformance``.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import nox

nox.needs_version = ">=2025.5.1"

ROOT = Path(__file__).parent
DIST = ROOT / "dist"
GROUPS = nox.project.load_toml(ROOT / "pyproject.toml")
PYTHONS: tuple[str, ...] = tuple(GROUPS["tool"]["byoc"]["pythons"])
OWN = f"{sys.version_info.major}.{sys.version_info.minor}"
MAIN = OWN if OWN in PYTHONS else PYTHONS[0]


def answers(version: str) -> bool:
    """Tells whether there is an interpreter on the search path; a shim of pyenv may be none."""
    found = shutil.which(f"python{version}")
    return found is not None and subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0


def find_pyenv_interpreters() -> None:
    """Puts pyenv's interpreters on the search path: its shims answer only for the version that is switched on."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for version in PYTHONS:
        for found in [] if answers(version) else sorted(root.glob(f"versions/{version}.*/bin"))[-1:]:
            os.environ["PATH"] = f"{found}{os.pathsep}{os.environ['PATH']}"


find_pyenv_interpreters()
# Those that are here first, of these the farthest from MAIN first.
OTHERS = tuple(
    sorted(
        (version for version in PYTHONS if version != MAIN),
        key=lambda version: (answers(version), abs(PYTHONS.index(version) - PYTHONS.index(MAIN))),
        reverse=True,
    )
)
FARTHEST, THIRD = OTHERS[:2]
PLUGINS = tuple(sorted(path.parent.name for path in ROOT.glob("plugins/*/pyproject.toml")))
WITH_PEERS = ("core", "ccompiler", "dnnl")
"""Packages with tests that compare with other programs, or run in them."""
PACKAGES = {"core": "core"} | {name: f"plugins/{name}" for name in PLUGINS} | {"conformance": "conformance"}
EXAMPLES = tuple(path.parent for path in sorted(ROOT.glob("examples/*/pyproject.toml")))
REPORTS = ROOT / "out" / "conformance"
KIT_EXAMPLES = 5
CACHE = os.environ.setdefault("BYOC_CACHE_DIR", str(ROOT / "out" / "build-cache"))
KIT_CACHE = str(Path(CACHE) / "kit")  # by itself: a cache drops the oldest entries beyond a thousand
UNBUILT = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")

DIFFERING_IN_CORE = (
    *(f"core/tests/{name}" for name in ("architecture", "native", "plugin", "runtime", "seeds", "vm")),
    *(f"core/tests/test_{name}.py" for name in ("driver", "errors", "file_replacement", "script", "script_sources")),
    *(
        f"core/tests/artifact/test_{name}.py"
        for name in ("artifact", "fresh_process", "fuzzing", "hostile_artifact", "native_artifact", "shared_constants")
    ),
    *(f"core/tests/kernels/test_{name}.py" for name in ("kernels_dtypes", "numpy_kernel")),
    *(f"core/tests/cli/test_cli_{name}.py" for name in ("installed_commands", "models", "native", "shell")),
    "core/tests/debugging/test_debug_isolation.py",
)
"""Tests whose outcome may hang on the interpreter or on its numpy: of imports, parsing of Python, metadata, processes,
threads, files, the C extension, warnings of numpy. The others compute on what these have tested."""
DIFFERING = (
    *DIFFERING_IN_CORE,
    *(f"plugins/ccompiler/tests/test_ccompiler_{name}.py" for name in ("backend", "export", "seed_s002", "threads")),
    *(f"plugins/dnnl/tests/test_dnnl_{name}.py" for name in ("extension", "native_calls")),
    "plugins/examplejson/tests",
    *(f"conformance/tests/test_{name}.py" for name in ("fresh_process", "pytest_plugin", "subject")),
)
ASKING_FOR_PLUGINS = (
    *(f"core/tests/{name}" for name in ("architecture", "backend", "cli", "plugin", "scaffold", "seeds")),
    *(f"core/tests/host/test_host_{name}.py" for name in ("backend", "road")),
    *(
        f"core/tests/artifact/test_{name}.py"
        for name in ("artifact", "fresh_process", "fuzzing", "native_artifact", "report")
    ),
    *(f"core/tests/test_driver{name}.py" for name in ("", "_constraints")),
)
"""Core's tests of what looks for installed backends and runtimes."""

nox.options.sessions = [
    "lint",
    "types",
    "packaging",
    *(f"tests-{name}-{MAIN}" for name in PACKAGES),
    f"pythons-{FARTHEST}",
    "core-alone",
    "conformance",
    "tvm",
    "versions",
    "docs",
    "site",
    "demo",
]
nox.options.reuse_venv = "yes"
nox.options.default_venv_backend = os.environ.get("NOX_DEFAULT_VENV_BACKEND", "uv|virtualenv")
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = False  # shown as skipped in nox's closing list
sys.path.insert(0, str(ROOT))
import skipped_tests  # noqa: E402 - it lies beside this file, which nox does not look for

SKIPS = tempfile.TemporaryDirectory(prefix="byoc-skips-")
os.environ[skipped_tests.FOLDER] = SKIPS.name


@atexit.register
def show_skips() -> None:
    """Print at the end, whether sessions failed or not, which tests were skipped in them, and why."""
    if skips := skipped_tests.read_counts(Path(SKIPS.name)):
        print(skipped_tests.show_counts(skips), file=sys.stderr)
    SKIPS.cleanup()


os.environ.setdefault("UV_NATIVE_TLS", "1")  # as pip, it trusts whom the system trusts
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each of some thousand processes parses all that it imports


def group(*names: str) -> tuple[str, ...]:
    """Gives the requirements of dependency groups of the root pyproject.toml."""
    return nox.project.dependency_groups(GROUPS, *names)


def wheel(name: str) -> Path:
    """Gives the wheel that session `wheels` built for a package."""
    (found,) = DIST.glob(f"byoc_{name}-*.whl")
    return found


def install_wheels(session: nox.Session, names: tuple[str, ...], *requirements: str, zig: bool = False) -> None:
    """Installs the wheels of packages, core with its extra ``onnx``, and other requirements.

    With ``zig``, byoc-ccompiler has its extra too.
    """
    wheels = [wheel(name) for name in names]
    extras = {"core": "[onnx]", "ccompiler": "[zig]" if zig else ""}
    session.install(*(f"{path}{extras.get(name, '')}" for name, path in zip(names, wheels, strict=True)), *requirements)
    # A reused environment may hold an older build of the same version.
    session.install("--force-reinstall", "--no-deps", *map(str, wheels))


def install_peers(session: nox.Session) -> None:
    """Installs programs that tests compare with or run in; one without a wheel for this Python is left out, visibly."""
    pip = ["uv", "pip"] if session.venv_backend == "uv" else ["python", "-m", "pip"]
    command = [*pip, "install", "--quiet", "--only-binary", ":all:"]
    for requirement in group("peers"):
        printed = str(session.run(*command, requirement, success_codes=range(256), silent=True) or "")
        if any(text in printed for text in ("No matching distribution", "ResolutionImpossible", "No solution found")):
            session.warn(f"{requirement} has no wheel for Python {session.python}: tests that need it are skipped")
        elif "error:" in printed.lower():
            session.error(f"{requirement} cannot be installed: {printed}")


def count_workers() -> str:
    """Gives how many processes run tests at once."""
    return str(min(os.cpu_count() or 1, 4))


def run_tests(session: nox.Session, *arguments: str) -> None:
    """Runs pytest so that only installed packages can be imported, never the source tree."""
    workers = ("-n", count_workers(), "--dist", "worksteal")  # some tests take half a minute
    session.run("pytest", *workers, *arguments, *session.posargs, env={"BYOC_TEST_INSTALLED": "1"})


@nox.session
def wheels(session: nox.Session) -> None:
    """Builds the wheel of each package into dist/, from a clean copy of its source, with what it says that it needs."""
    built_with = [tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8")) for folder in PACKAGES.values()]
    session.install("pip", *sorted({need for project in built_with for need in project["build-system"]["requires"]}))
    shutil.rmtree(DIST, ignore_errors=True)
    copies = Path(session.create_tmp()) / "source"
    shutil.rmtree(copies, ignore_errors=True)
    for folder in PACKAGES.values():
        shutil.copytree(ROOT / folder, copies / folder, ignore=UNBUILT)
        shutil.rmtree(copies / folder / "tests")
    projects = [str(copies / folder) for folder in PACKAGES.values()]
    command = ("python", "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    session.run(*command, "--wheel-dir", str(DIST), *projects)
    session.log("built %s", ", ".join(sorted(path.name for path in DIST.glob("*.whl"))))


@nox.session
def lint(session: nox.Session) -> None:
    """Checks style and format."""
    session.install(*group("lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session(requires=["wheels"])
def types(session: nox.Session) -> None:
    """Checks the types of sources, tests, examples and benchmarks, strictly."""
    install_wheels(session, tuple(PACKAGES), *group("types"))
    session.run("mypy", *session.posargs)


@nox.session(requires=["wheels"])
def packaging(session: nox.Session) -> None:
    """Checks the metadata of all packages, and their wheels by the tools of packagers: the quick part of a release."""
    install_wheels(session, ("core",), *group("test", "packaging"))
    session.run("pytest", "-q", "release", *session.posargs)
    wheels = sorted(map(str, DIST.glob("*.whl")))
    session.run("python", "-m", "twine", "check", "--strict", *wheels)
    session.run("python", "-m", "check_wheel_contents", *wheels)


@nox.session
def release(session: nox.Session) -> None:
    """Builds what a package index takes into out/release, and checks it: ``nox -s release -- --rehearse``.

    Not among the default ones: it takes a quarter of an hour, and needs qemu and a network.
    """
    session.install(*group("release"))
    session.run("python", "-m", "release.run", *session.posargs)


MINIMUM_TESTS = (
    *(path for path in DIFFERING if not path.startswith("plugins/ccompiler")),
    *(f"core/tests/{name}" for name in ("cli", "kernels", "scaffold", "test_dims.py", "test_dtypes.py")),
    *(f"core/tests/frontend/test_onnx_{name}.py" for name in ("errors", "models", "sizes", "transformers")),
    "conformance/tests/test_command.py",
    "conformance/tests/report",
)
"""Tests of what calls other packages. Those of single ONNX ops want the newest opset, which needs the newest onnx."""


@nox.session(python=PYTHONS[0], requires=["wheels"], reuse_venv=False)
def minimums(session: nox.Session) -> None:
    """Runs tests with the lowest version of each dependency that the packages permit, on the oldest Python."""
    if session.venv_backend != "uv":
        session.error('only uv finds the lowest versions: pip install "nox[uv]"')
    files = {name: nox.project.load_toml(ROOT / folder / "pyproject.toml") for name, folder in PACKAGES.items()}
    lines = {line for file in files.values() for line in file["project"]["dependencies"]}
    lines |= set(files["core"]["project"]["optional-dependencies"]["onnx"])
    lowest = sorted(line for line in lines if not line.startswith("byoc-"))
    # What a wheel depends on does not count as named, so it is named here.
    session.install("--resolution", "lowest-direct", *lowest, *(str(wheel(name)) for name in PACKAGES))
    session.install(*group("test"), "onnxruntime>=1.20")  # what is there stays
    session.run("uv", "pip", "list", external=True)
    # The kit's schema is written by the newest pydantic; older ones spell the same differently.
    schema = "conformance/tests/report/test_model.py::test_the_shipped_schema_is_that_of_the_model"
    run_tests(session, f"--deselect={schema}", *([] if session.posargs else MINIMUM_TESTS))


@nox.session(requires=["wheels"])
def floors(session: nox.Session) -> None:
    """Checks who imports whom, what a bare import costs, and what the wheels hold."""
    install_wheels(session, tuple(PACKAGES), *group("test"))
    run_tests(session, "core/tests/architecture")


def add_tests(package: str) -> None:
    """Adds the sessions that test one package, one for each Python."""
    # Core's seed scenarios run for every installed backend, so its environment holds all plugins.
    names = tuple(PACKAGES) if package == "core" else ("core", package)

    @nox.session(python=PYTHONS, name=f"tests-{package}", requires=["wheels"], tags=["matrix"])
    def tests(session: nox.Session) -> None:
        """Runs the tests of the package against its installed wheel."""
        install_wheels(session, names, *group("test"))
        if package in WITH_PEERS:
            install_peers(session)
        run_tests(session, f"{PACKAGES[package]}/tests")


for _package in PACKAGES:
    add_tests(_package)


@nox.session(python=OTHERS, requires=["wheels"])
def pythons(session: nox.Session) -> None:
    """Runs the tests of all packages that may differ between Pythons."""
    install_wheels(session, tuple(PACKAGES), *group("test"))
    install_peers(session)
    run_tests(session, *DIFFERING)


@nox.session(python=THIRD if answers(THIRD) else MAIN, name="core-alone", requires=["wheels"])
def core_alone(session: nox.Session) -> None:
    """Runs core's tests of what looks for plugins, and of what may differ between Pythons, where none is installed."""
    install_wheels(session, ("core",), *group("test"))
    install_peers(session)
    session.run("python", "-c", "import byoc_core; assert byoc_core.backends.names() == ('host',)")
    wanted = {*ASKING_FOR_PLUGINS, *DIFFERING_IN_CORE}
    run_tests(session, *sorted(path for path in wanted if not wanted & set(map(str, Path(path).parents))))


LIBRARY_TESTS = (
    "core/tests/native",
    "core/tests/artifact/test_library_program.py",
    "plugins/ccompiler/tests/test_ccompiler_export.py",
)
"""What loads libraries in the programs of others."""


def add_foreign(name: str, modules: str) -> None:
    """Adds a session that loads exported libraries in another program; there no test is skipped for want of it."""

    @nox.session(name=name, requires=["wheels"])
    def foreign(session: nox.Session) -> None:
        """Loads exported libraries in the real package, and calls them."""
        install_wheels(session, ("core", "ccompiler"), *group("test", name))
        session.run("python", "-c", f"import {modules}")
        run_tests(session, *LIBRARY_TESTS)


add_foreign("tvm-ffi", "tvm_ffi")
add_foreign("tvm", "tvm, tvm_ffi")


@nox.session(requires=["wheels"])
def zig(session: nox.Session) -> None:
    """Runs ccompiler's tests, and those of the toolchain, with ``zig cc`` from PyPI as the only compiler.

    Not among the default ones: zig takes twice as long as gcc, and builds its C libraries for other machines first.
    """
    install_wheels(session, ("core", "ccompiler"), *group("test"), zig=True)
    compiler = f"{Path(session.bin) / 'python'} -m ziglang cc"
    environment = {"BYOC_TEST_INSTALLED": "1", "BYOC_CC": compiler}
    tests = session.posargs or ["core/tests/native", "plugins/ccompiler/tests"]
    session.run("pytest", "-n", count_workers(), *tests, env=environment)


@nox.session(requires=["wheels"])
def docs(session: nox.Session) -> None:
    """Runs the code of the README and of every page under docs/."""
    install_wheels(session, tuple(PACKAGES), *group("test"))
    run_tests(session, "docs")


@nox.session(requires=["wheels"])
def site(session: nox.Session) -> None:
    """Makes the documentation's site in out/site; a link that leads nowhere is an error."""
    install_wheels(session, ("core", "conformance"), *group("site"))
    session.run("python", "-m", "docs.site.build", "out/site")


@nox.session(name="partition-laws", requires=["wheels"])
def partition_laws(session: nox.Session) -> None:
    """Holds partition to its laws on many random graphs: ``nox -s partition-laws -- --graphs 20000 --seed 1``."""
    install_wheels(session, ("core",), *group("test"))
    session.run("python", "-m", "core.tests.partitioning.long_run", *(session.posargs or ["--graphs", "1000"]))


@nox.session(requires=["wheels"])
def fuzz(session: nox.Session) -> None:
    """Loads and runs many mutants of artifacts of every runtime: ``nox -s fuzz -- --mutants 20000 --seed 1``."""
    install_wheels(session, ("core", "examplejson", "ccompiler", "dnnl"), *group("test"))
    session.run("python", "-m", "core.tests.artifact.fuzzing.long_run", *session.posargs)


@nox.session(requires=["wheels"])
def sanitizers(session: nox.Session) -> None:
    """Runs the C extensions' tests under ThreadSanitizer, AddressSanitizer and UBSan: ``nox -s sanitizers -- thread``.

    Not among the default ones: it needs gcc's own sanitizers, which other compilers and many containers lack.
    """
    install_wheels(session, ("core",), *group("test"), "setuptools>=77")
    session.run("python", "-m", "core.tests.sanitizers.run", *session.posargs)


@nox.session(requires=["wheels"])
def mutation(session: nox.Session) -> None:
    """Changes modules in small ways and counts the changes that no test notices: ``nox -s mutation -- vm-verify``.

    Not among the default ones: each change runs the tests that reach it.
    """
    install_wheels(session, ("core", "dnnl"), *group("test", "mutation"))
    session.run("python", "-m", "core.tests.mutation.run", *session.posargs)


@nox.session(name="sanitized-c", requires=["wheels"])
def sanitized_c(session: nox.Session) -> None:
    """Runs ccompiler's tests, and the kit's numeric level on it, with generated C under AddressSanitizer and UBSan.

    Not among the default ones, for the reason that :func:`sanitizers` gives, and because it takes long.
    """
    install_wheels(session, ("core", "ccompiler", "conformance"), *group("test"), "setuptools>=77")
    # gcc takes minutes for some tests' sources then: no reason to print where everybody stands.
    pytest = "-m pytest -q -p no:cacheprovider --capture=sys -o faulthandler_timeout=1800"
    tests = f"{pytest} plugins/ccompiler/tests"
    kit = "-c 'from byoc_core.cli.main import main; main()' conformance ccompiler --level L2"
    command = ("python", "-m", "core.tests.sanitizers.run", "address")
    session.run(*command, "--python", tests, "--python", f"{kit} --report {REPORTS / 'sanitized-c'}")


@nox.session(requires=["wheels"])
def conformance(session: nox.Session) -> None:
    """Runs the conformance kit on the host and all plugins, alone and together, on the examples and on new backends.

    ``nox -s conformance -- ccompiler`` runs it on one alone, ``-- packages`` on what is not byoc's own. Beside
    the canonical cases there are 5 random examples for each property; ``nox -s thorough`` tries more.
    """
    install_wheels(session, tuple(PACKAGES), "pip", *group("test", "lint", "types"))
    chosen = session.posargs or ["host", *PLUGINS, "together", "packages"]
    broken = [name for name in ("host", *PLUGINS) if name in chosen and not keeps_promises(session, name)]
    if "together" in chosen:
        for name in PLUGINS:
            others = [f"--with={other}" for other in PLUGINS if other != name]
            if not keeps_promises(session, name, *others, folder=f"{name}-with-others"):
                broken.append(f"{name} with others")
    if "packages" in chosen:
        counts = ("--jobs", count_workers(), "--examples", str(KIT_EXAMPLES))
        trial = ("conformance/tests/new_backend_trial.py", "--reports", str(REPORTS), *counts, *map(str, EXAMPLES))
        session.run("python", *trial)
    if broken:
        session.error(f"promises are broken: {', '.join(broken)}; the reports are in {REPORTS}")


@nox.session(requires=["wheels"])
def thorough(session: nox.Session) -> None:
    """Runs the tests of properties with ten times as many random examples as usual, and the kit with four times."""
    install_wheels(session, tuple(PACKAGES), *group("test"))
    install_peers(session)
    folders = [f"{folder}/tests" for folder in PACKAGES.values()]
    environment = {"BYOC_TEST_INSTALLED": "1", "BYOC_EXAMPLES": "thorough"}
    session.run("pytest", "-n", count_workers(), "-m", "hypothesis", *folders, *session.posargs, env=environment)
    for name in ("host", *PLUGINS):
        if not keeps_promises(session, name, folder=f"{name}-thorough", examples=20):
            session.error(f"promises are broken: the report is in {REPORTS / name}-thorough")


def keeps_promises(
    session: nox.Session, backend: str, *arguments: str, folder: str = "", examples: int = KIT_EXAMPLES
) -> bool:
    """Runs the kit on one backend and leaves its report; whether no promise is broken."""
    report = REPORTS / (folder or backend)
    shutil.rmtree(report, ignore_errors=True)
    command = ("byoc", "conformance", backend, "--jobs", count_workers(), "--examples", str(examples))
    try:
        session.run(*command, "--report", str(report), *arguments, env={"BYOC_CACHE_DIR": KIT_CACHE})
    except nox.command.CommandFailed:
        return False
    return True


@nox.session(requires=["wheels"])
def versions(session: nox.Session) -> None:
    """Mixes the last published wheels with those of this checkout: what does not fit is said, never a traceback."""
    install_wheels(session, ("core",), "pip", *group("test"))
    session.run("python", "-m", "pip", "uninstall", "--quiet", "--yes", "byoc-core")  # its dependencies stay
    session.run("pytest", "-n", count_workers(), "published", *session.posargs, env={"BYOC_WHEELS": str(DIST)})


@nox.session(requires=["wheels"])
def demo(session: nox.Session) -> None:
    """Trains on handwritten digits, compiles, saves, and runs the artifacts in a process without the compiler."""
    install_wheels(session, ("core", "ccompiler", "dnnl"), *group("demo"))
    session.run("python", "-m", "examples.digits.demo", *session.posargs)
